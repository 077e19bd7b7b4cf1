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

/// Says whether one of the numbers would be rounded to infinity, or is NaN.
pub(super) fn any_beyond<T: Range>(wide: &[f32]) -> bool {
    vectorized(Any { of: wide, is: |x: &f32| is_beyond::<T>(*x) })
}

/// Says whether one of the numbers is infinite or NaN.
pub(super) fn any_not_finite(low: &[bf16]) -> bool {
    vectorized(Any { of: low, is: |x: &bf16| x.to_bits() & 0x7fff >= 0x7f80 })
}

#[inline(always)]
fn is_beyond<T: Range>(x: f32) -> bool {
    (x.abs() >= T::BEYOND) | x.is_nan()
}

/// Puts back the numbers before the update where they were finite and would be infinite in the format, or are NaN: an infinity
/// on the way to the new number becomes one. Returns how many these are.
pub(super) fn keep_finite<T: Range>(wide: &mut [f32], before: impl Fn(usize) -> f32) -> u64 {
    if !any_beyond::<T>(wide) {
        return 0;
    }
    let mut kept = 0;
    for (i, x) in wide.iter_mut().enumerate() {
        let before = before(i);
        if is_beyond::<T>(*x) && before.is_finite() {
            *x = before;
            kept += 1;
        }
    }
    kept
}

/// A condition, and numbers of which one may meet it.
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
    fn a_number_is_beyond_where_rounding_does_not_leave_it_finite() {
        fn check<T: Range>(is_finite: impl Fn(f32) -> bool) {
            let below = f32::from_bits(T::BEYOND.to_bits() - 1);
            for x in [T::BEYOND, -T::BEYOND, below, -below, f32::MAX, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 0.0] {
                assert_eq!(any_beyond::<T>(&[1.0, x, 2.0]), !is_finite(x), "{x}");
            }
        }
        check::<f16>(|x| f16::from_f32(x).is_finite());
        check::<bf16>(|x| bf16::from_f32(x).is_finite());
        let any = any_not_finite;
        assert!(any(&[bf16::ONE, bf16::NEG_INFINITY]) && any(&[bf16::NAN]) && !any(&[bf16::MIN, bf16::MAX]));
    }

    #[test]
    fn what_was_finite_is_put_back_and_nothing_else() {
        let mut wide = [1.0, 7e4, -65520.0, 65519.0, f32::INFINITY, f32::NAN, f32::NAN];
        let before = [2.0, 65504.0, -3.0, 4.0, f32::INFINITY, 5.0, f32::INFINITY];
        assert_eq!(keep_finite::<f16>(&mut wide, |i| before[i]), 3);
        assert_eq!(wide[..6], [1.0, 65504.0, -3.0, 65519.0, f32::INFINITY, 5.0]);
        assert!(wide[6].is_nan());
    }
}
