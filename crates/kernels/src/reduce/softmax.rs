//! Softmax and its logarithm, stable for any finite input.

use super::{
    slices::AlongAxis,
    sum::{fill, largest, replace, sum_of},
};
use crate::{
    elementwise::{Saved, math},
    float::Real,
    simd::Body,
};

/// Fills `y` with `exp(x) / sum exp(x)`, reading `y` itself if `x` is `None`. `largest` is the largest element.
#[inline(always)]
pub fn weights<R: Real>(x: Option<&[R]>, y: &mut [R], largest: R) {
    fill(x, y, |x| math::raised_exp(x - largest));
    let scale = sum_of([y], |[y]| y).recip();
    fill(None, y, |y| y * scale);
}

/// Returns the two terms of `ln(sum exp(x))`: the largest x, and the rest. They are separate because their sum would
/// lose the second when the first is large.
#[inline(always)]
fn log_sum_exp<R: Real>(x: &[R]) -> (R, R) {
    let most = largest(x);
    (most, (sum_of([x], |[x]| math::raised_exp(x - most)) * R::of(math::RAISED_ONE.recip())).ln())
}

/// [`log_sum_exp`] as a body of [`vectorized`](crate::simd::vectorized). If exactly one x is infinite, the
/// rest is its limit, 0.
pub struct LogSumExp<'a, R>(pub &'a [R]);

impl<R: Real> Body for LogSumExp<'_, R> {
    type Output = (R, R);
    #[inline(always)]
    fn run(self) -> (R, R) {
        let (most, rest) = log_sum_exp(self.0);
        let infinite = || self.0.iter().filter(|&&x| x == most).count();
        let alone = most == R::infinity() && infinite() == 1 && !self.0.iter().any(|x| x.is_nan());
        (most, if alone { R::zero() } else { rest })
    }
}

/// The function `exp(x) / sum exp(x)`.
#[derive(Clone, Copy)]
pub struct Softmax;

impl AlongAxis for Softmax {
    const SAVED: Saved = Saved::Output;
    const REDUCES: bool = false;
    #[inline(always)]
    fn value<R: Real>(self, x: &[R], y: &mut [R]) {
        weights(Some(x), y, largest(x));
    }
    /// Divides by the sum of the rounded probabilities, which is not exactly 1; this removes its error from small
    /// differences.
    #[inline(always)]
    fn backward<R: Real>(self, y: &[R], dy: &[R], dx: &mut [R]) {
        let mean = sum_of([y, dy], |[y, dy]| y * dy) / sum_of([y], |[y]| y);
        replace(dx, [y, dy], |_, [y, dy]| y * (dy - mean));
    }
}

/// The function `x - ln(sum exp(x))`.
#[derive(Clone, Copy)]
pub struct LogSoftmax;

impl AlongAxis for LogSoftmax {
    const SAVED: Saved = Saved::Output;
    const REDUCES: bool = false;
    #[inline(always)]
    fn value<R: Real>(self, x: &[R], y: &mut [R]) {
        let (largest, rest) = log_sum_exp(x);
        replace(y, [x], |_, [x]| (x - largest) - rest);
    }
    /// Divides by the sum of the rounded probabilities as [`Softmax`] does.
    #[inline(always)]
    fn backward<R: Real>(self, y: &[R], dy: &[R], dx: &mut [R]) {
        fill(Some(y), dx, math::exp);
        let scale = sum_of([dy], |[dy]| dy) / sum_of([dx], |[dx]| dx);
        replace(dx, [dy], |dx, [dy]| dy - dx * scale);
    }
}
