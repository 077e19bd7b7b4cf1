//! Squares that overflow or underflow, although the lengths and deviations computed from them do not.
//!
//! A sum of squares is first computed directly. Only if it is infinite, or so small that squares lost digits, it is
//! computed again from the numbers divided by a power of two, which changes no digit.

use std::borrow::Cow;

use super::sum::{sum, sum_of};
use crate::float::Real;

/// Returns whether a sum of `terms` squares has all its digits: it is finite, and any loss of squares below the
/// smallest normal number is negligible relative to it.
#[inline(always)]
pub fn keeps_digits<R: Real>(sum: R, terms: usize) -> bool {
    sum.is_finite() && sum >= R::min_positive_value() * R::of(terms as f64)
}

/// Returns the largest power of two that does not exceed a positive number, but at least 2^-1022.
pub fn power_below<R: Real>(x: R) -> R {
    R::of(f64::from_bits(x.as_f64().to_bits() & f64::INFINITY.to_bits()).max(f64::MIN_POSITIVE))
}

/// Returns the power of two of the largest of these numbers; `None` if all are 0 or one is infinite.
pub fn magnitude<R: Real>(x: &[R]) -> Option<R> {
    let largest = x.iter().fold(R::zero(), |largest, x| if x.abs() > largest { x.abs() } else { largest });
    (largest > R::zero() && largest.is_finite()).then(|| power_below(largest))
}

/// Computes the mean, even if the sum overflows. Must be called from a [`vectorized`] body.
#[inline(always)]
pub fn mean<R: Real>(x: &[R]) -> R {
    let mean = sum_of([x], |[x]| x) / R::of(x.len() as f64);
    if mean.is_finite() { mean } else { mean_in_range(x).unwrap_or(mean) }
}

/// Computes the mean, and the sum of squared deviations from it. Must be called from a [`vectorized`] body.
#[inline(always)]
pub fn moments<R: Real>(x: &[R]) -> (R, R) {
    let deviations = |mean: R| sum_of([x], |[x]| (x - mean) * (x - mean));
    let mean = mean(x);
    let squares = deviations(mean);
    // Numbers that vary by less than this would be measured by the rounding of their sum.
    let most = R::epsilon() * mean * mean * R::of(x.len() as f64);
    if squares < most || most.is_infinite() {
        let mean = mean_of_close(x);
        return (mean, deviations(mean));
    }
    (mean, squares)
}

/// Computes the mean of numbers that are close to each other, from their exact distances to the first.
#[cold]
fn mean_of_close<R: Real>(x: &[R]) -> R {
    let distances: Vec<R> = x.iter().map(|&number| number - x[0]).collect();
    x[0] + sum(&distances) / R::of(x.len() as f64)
}

#[cold]
fn mean_in_range<R: Real>(x: &[R]) -> Option<R> {
    let scale = magnitude(x)?;
    Some(sum(&x.iter().map(|&x| x / scale).collect::<Vec<R>>()) / R::of(x.len() as f64) * scale)
}

/// Computes the sum of squares with `squares`. If it does not [keep its digits](keeps_digits), the sum is computed from
/// the numbers divided by a power of two. Returns the numbers used, the power (else 1) and the sum.
pub fn in_range<R: Real>(x: &[R], squares: impl Fn(&[R]) -> R) -> (Cow<'_, [R]>, R, R) {
    let sum = squares(x);
    if !keeps_digits(sum, x.len())
        && let Some(scale) = magnitude(x)
    {
        let x: Vec<R> = x.iter().map(|&x| x / scale).collect();
        let sum = squares(&x);
        return (x.into(), scale, sum);
    }
    (x.into(), R::one(), sum)
}

/// A sum of squares: `sum * scale²`. The scale is a power of two, and 1 if squares keep their digits.
#[derive(Clone, Copy, Debug)]
pub struct Squares {
    sum: f64,
    scale: f64,
}

impl Squares {
    /// The empty sum.
    pub const NONE: Squares = Squares { sum: 0.0, scale: 1.0 };

    /// Computes the sum of squares of some numbers.
    pub fn of<R: Real>(x: &[R]) -> Squares {
        let (_, scale, sum) = in_range(x, |x| R::vectorized(|| sum_of([x], |[x]| x * x)));
        Squares { sum: sum.as_f64(), scale: scale.as_f64() }
    }

    /// Uses a sum of `terms` squares, or recomputes it from the numbers if it does not keep its digits.
    pub fn or<R: Real>(sum: R, terms: usize, numbers: impl FnOnce() -> Vec<R>) -> Squares {
        if keeps_digits(sum, terms) { Squares { sum: sum.as_f64(), scale: 1.0 } } else { Squares::of(&numbers()) }
    }

    /// Returns the root of the sum.
    pub fn root(self) -> f64 {
        self.sum.sqrt() * self.scale
    }

    /// Returns the mean of `terms` squares.
    pub fn mean(self, terms: usize) -> f64 {
        self.sum / terms as f64 * self.scale * self.scale
    }

    /// Returns the root of the mean of `terms` squares.
    pub fn root_mean(self, terms: usize) -> f64 {
        (self.sum / terms as f64).sqrt() * self.scale
    }
}

impl std::ops::AddAssign for Squares {
    fn add_assign(&mut self, other: Squares) {
        if !(self.sum + other.sum).is_finite() {
            *self = Squares { sum: self.sum + other.sum, scale: 1.0 };
        } else if self.sum == 0.0 {
            *self = other;
        } else if other.sum != 0.0 {
            let scale = self.scale.max(other.scale);
            let at_scale = |x: Squares| x.sum * (x.scale / scale) * (x.scale / scale);
            *self = Squares { sum: at_scale(*self) + at_scale(other), scale };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_of_two_is_exact_at_every_size() {
        for (x, power) in
            [(1f32, 1f32), (3.0, 2.0), (f32::MAX, 2f32.powi(127)), (1e-45, 1e-45), (1.5e-39, 2f32.powi(-129))]
        {
            assert_eq!(power_below(x), power, "{x:e}");
        }
        assert_eq!(power_below(1e-320), f64::MIN_POSITIVE);
        assert_eq!(magnitude(&[0.0, -3.0, 1.0]), Some(2.0));
        assert_eq!((magnitude(&[0f32; 3]), magnitude(&[1.0, f32::NEG_INFINITY])), (None, None));
    }

    #[test]
    fn squares_of_all_sizes_are_added() {
        let root = |parts: &[&[f64]]| {
            let mut all = Squares::NONE;
            parts.iter().for_each(|part| all += Squares::of(part));
            all.root()
        };
        let within = |bound: f64, got: f64, want: f64| assert!((got / want - 1.0).abs() < bound, "{got:e} {want:e}");
        let near = |got, want| within(1e-15, got, want);
        near(root(&[&[3e200], &[4e200]]), 5e200);
        near(root(&[&[3e-200], &[4e-200]]), 5e-200);
        near(root(&[&[3.0], &[4.0]]), 5.0);
        near(root(&[&[1.0], &[2e200], &[1e-200]]), 2e200);
        assert_eq!(root(&[&[0.0], &[0.0]]), 0.0);
        assert_eq!(root(&[&[f64::INFINITY], &[1e200]]), f64::INFINITY);
        assert!(root(&[&[f64::NAN], &[1e200]]).is_nan());
        within(1e-7, Squares::of(&[3e30f32, 4e30]).root(), f64::from(3e30f32).hypot(f64::from(4e30f32)));
        within(1e-7, Squares::of(&[1e25f32; 4]).root_mean(4), f64::from(1e25f32));
    }
}
