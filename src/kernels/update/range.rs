//! The range of the 16-bit formats: an update that leaves it must not make a number infinite.

use half::{bf16, f16};

use crate::kernels::{
    float::Float,
    simd::{Body, vectorized},
};

/// A 16-bit format.
pub(crate) trait Range: Float<Wide = f32> {
    /// The least size whose nearest number is infinite: halfway between the largest number and the next power of 2, as the
    /// largest number is odd.
    const BEYOND: f32;
}

impl Range for f16 {
    const BEYOND: f32 = 65520.0;
}

impl Range for bf16 {
    const BEYOND: f32 = f32::from_bits(0x7f7f_8000);
}

/// Whether one of the numbers would be rounded to infinity. NaN is not.
pub(super) fn lies_beyond<T: Range>(wide: &[f32]) -> bool {
    vectorized(Any { of: wide, is: |x: &f32| x.abs() >= T::BEYOND })
}

/// Whether one of the numbers is infinite.
pub(super) fn any_infinite(low: &[bf16]) -> bool {
    vectorized(Any { of: low, is: |x: &bf16| x.to_bits() & 0x7fff == 0x7f80 })
}

/// Puts back the numbers before the update where it would make them infinite in the format and they were finite. Returns how
/// many these are.
pub(super) fn keep_finite<T: Range>(wide: &mut [f32], before: impl Fn(usize) -> f32) -> u64 {
    if !lies_beyond::<T>(wide) {
        return 0;
    }
    let mut kept = 0;
    for (i, x) in wide.iter_mut().enumerate() {
        let before = before(i);
        if x.abs() >= T::BEYOND && before.is_finite() {
            *x = before;
            kept += 1;
        }
    }
    kept
}

/// Whether a condition holds for one of some numbers, all of which are looked at.
struct Any<'a, T, F> {
    of: &'a [T],
    is: F,
}

impl<T, F: Fn(&T) -> bool> Body for Any<'_, T, F> {
    type Output = bool;
    #[inline(always)]
    fn run(self) -> bool {
        let mut met = 0;
        for x in self.of {
            met |= u32::from((self.is)(x));
        }
        met != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bounds are those at which the crate `half` rounds to infinity.
    #[test]
    fn a_number_is_beyond_where_rounding_makes_it_infinite() {
        fn check<T: Range>(is_infinite: impl Fn(f32) -> bool) {
            let below = f32::from_bits(T::BEYOND.to_bits() - 1);
            for x in [T::BEYOND, -T::BEYOND, below, -below, f32::MAX, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 0.0] {
                assert_eq!(lies_beyond::<T>(&[1.0, x, 2.0]), is_infinite(x), "{x}");
            }
        }
        check::<f16>(|x| f16::from_f32(x).is_infinite());
        check::<bf16>(|x| bf16::from_f32(x).is_infinite());
        assert!(any_infinite(&[bf16::ONE, bf16::NEG_INFINITY]) && !any_infinite(&[bf16::NAN, bf16::MAX]));
    }

    #[test]
    fn what_was_finite_is_put_back_and_nothing_else() {
        let mut wide = [1.0, 7e4, -65520.0, 65519.0, f32::INFINITY, f32::NAN];
        let before = [2.0, 65504.0, -3.0, 4.0, f32::INFINITY, 5.0];
        assert_eq!(keep_finite::<f16>(&mut wide, |i| before[i]), 2);
        assert_eq!(wide[..5], [1.0, 65504.0, -3.0, 65519.0, f32::INFINITY]);
        assert!(wide[5].is_nan(), "NaN is found by others");
    }
}
