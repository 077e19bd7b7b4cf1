//! Numbers updated by a formula, bounded by the range of their storage format.

use std::ops::Range;

use half::{bf16, f16};

use crate::{
    arrays::{array_of, mapped},
    float::{Float, Real},
    simd::{Body, vectorized},
};

/// Storage format of numbers.
pub trait Bounded: Float {
    /// Smallest magnitude that is rounded to infinity.
    const BEYOND: Self::Wide;
}

impl Bounded for f64 {
    const BEYOND: f64 = f64::INFINITY;
}

impl Bounded for f32 {
    const BEYOND: f32 = f32::INFINITY;
}

/// For 16 bits: halfway between the largest number and the next power of 2, as the largest number is odd.
impl Bounded for f16 {
    const BEYOND: f32 = 65520.0;
}

impl Bounded for bf16 {
    const BEYOND: f32 = f32::from_bits(0x7f7f_8000);
}

/// Some numbers of a parameter, in the dtype of the arithmetic. A number that would not be finite in its storage format
/// keeps its value.
pub struct Values<'a, R> {
    numbers: &'a mut [R],
    /// Smallest magnitude that exceeds the format.
    beyond: R,
    /// Count of finite numbers that kept their values.
    infinite: u64,
}

impl<'a, R: Real> Values<'a, R> {
    /// Takes numbers of a format whose range ends below `beyond`.
    pub fn new(numbers: &'a mut [R], beyond: R) -> Self {
        Values { numbers, beyond, infinite: 0 }
    }

    /// Returns the number of numbers.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Returns the count of numbers that kept their values because new ones would not have been finite.
    pub fn infinite(&self) -> u64 {
        self.infinite
    }

    /// Replaces each number of a range by `f` of it and of the inputs at its position.
    #[inline(always)]
    pub fn replace<const N: usize>(&mut self, range: Range<usize>, inputs: [&[R]; N], f: impl Fn(R, [R; N]) -> R) {
        self.count(range, |numbers, beyond| vectorized(Replace { numbers, beyond, inputs, f }));
    }

    /// Runs a loop over the numbers of a range. It receives their bound and returns how many are [`kept`].
    #[inline(always)]
    pub(super) fn count(&mut self, range: Range<usize>, run: impl FnOnce(&mut [R], R) -> u64) {
        let numbers = &mut self.numbers[range];
        let kept = run(numbers, self.beyond);
        if kept > 0 {
            // Replaced numbers are finite, so the others are those that were non-finite before.
            self.infinite += kept - numbers.iter().filter(|x| !x.is_finite()).count() as u64;
        }
    }
}

/// Returns the new number and 0, or the old one and 1 if the new one is not within the bound.
#[inline(always)]
pub(super) fn kept<R: Real>(old: R, new: R, beyond: R) -> (R, u32) {
    // Not `>=`: an infinity on the way to the new number may have become NaN.
    #[expect(clippy::neg_cmp_op_on_partial_ord, reason = "NaN is meant, and one comparison is faster than two")]
    let stays = !(new.abs() < beyond);
    (if stays { old } else { new }, u32::from(stays))
}

struct Replace<'a, R, const N: usize, F> {
    numbers: &'a mut [R],
    beyond: R,
    inputs: [&'a [R]; N],
    f: F,
}

impl<R: Real, const N: usize, F: Fn(R, [R; N]) -> R> Body for Replace<'_, R, N, F> {
    type Output = u64;
    #[inline(always)]
    fn run(self) -> u64 {
        let Replace { numbers, beyond, inputs, f } = self;
        // Slices of one length, so that the loop has no bounds checks.
        let len = numbers.len();
        let inputs = mapped(inputs, |input| &input[..len]);
        let mut infinite = 0;
        for i in 0..len {
            let old = numbers[i];
            let (new, stays) = kept(old, f(old, array_of(|k| inputs[k][i])), beyond);
            numbers[i] = new;
            infinite += stays;
        }
        infinite.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the bounds against those at which the crate `half` rounds to infinity.
    #[test]
    fn a_number_is_beyond_where_rounding_does_not_leave_it_finite() {
        fn check<T: Bounded<Wide = f32>>(is_finite: impl Fn(f32) -> bool) {
            let below = f32::from_bits(T::BEYOND.to_bits() - 1);
            for x in [T::BEYOND, -T::BEYOND, below, -below, f32::MAX, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 0.0] {
                assert_eq!(kept(1.0, x, T::BEYOND).1 == 0, is_finite(x), "{x}");
            }
        }
        check::<f16>(|x| f16::from_f32(x).is_finite());
        check::<bf16>(|x| bf16::from_f32(x).is_finite());
        check::<f32>(f32::is_finite);
    }

    #[test]
    fn what_was_finite_is_kept_and_nothing_else() {
        let new = [1.0, 7e4, -65520.0, 65519.0, f32::NAN, f32::NAN, f32::NAN];
        let mut numbers = [2.0, 65504.0, -3.0, 4.0, f32::INFINITY, 5.0, f32::NAN];
        let mut values = Values::new(&mut numbers, f16::BEYOND);
        values.replace(0..7, [&new], |_, [new]| new);
        assert_eq!((values.infinite(), values.len()), (3, 7));
        assert_eq!(numbers[..6], [1.0, 65504.0, -3.0, 65519.0, f32::INFINITY, 5.0]);
        assert!(numbers[6].is_nan());
    }
}
