//! Softmax and its logarithm, stable for any finite input.

use super::{elementwise::Kept, lanes::Along, math, reduce, simd::Body};
use crate::dtype::Real;

/// Fills `y` with `exp(x) / sum exp(x)`; x is what y was where there is no `x`. `largest` is the largest of them.
#[inline(always)]
pub(super) fn weights<R: Real>(x: Option<&[R]>, y: &mut [R], largest: R) {
    reduce::fill(x, y, |x| math::raised_exp(x - largest));
    let scale = reduce::sum_of([y], |[y]| y).recip();
    reduce::fill(None, y, |y| y * scale);
}

/// The two parts of `ln(sum exp(x))`: the largest x, and what is to be added to it. They are kept apart, because their
/// sum would lose the second when the first is large.
#[inline(always)]
fn log_sum_exp<R: Real>(x: &[R]) -> (R, R) {
    let largest = reduce::largest(x);
    (largest, (reduce::sum_of([x], |[x]| math::raised_exp(x - largest)) * R::of(math::RAISED_ONE.recip())).ln())
}

/// [`log_sum_exp`] as a body of [`vectorized`](super::simd::vectorized).
pub(crate) struct LogSumExp<'a, R>(pub &'a [R]);

impl<R: Real> Body for LogSumExp<'_, R> {
    type Output = (R, R);
    #[inline(always)]
    fn run(self) -> (R, R) {
        log_sum_exp(self.0)
    }
}

/// `exp(x) / sum exp(x)`.
#[derive(Clone, Copy)]
pub(crate) struct Softmax;

impl Along for Softmax {
    const KEPT: Kept = Kept::Output;
    const REDUCES: bool = false;
    #[inline(always)]
    fn value<R: Real>(self, x: &[R], y: &mut [R]) {
        weights(Some(x), y, reduce::largest(x));
    }
    /// The sum over rounded probabilities is not quite 1; dividing by it takes that error out of small differences.
    #[inline(always)]
    fn back<R: Real>(self, y: &[R], dy: &[R], dx: &mut [R]) {
        let mean = reduce::sum_of([y, dy], |[y, dy]| y * dy) / reduce::sum_of([y], |[y]| y);
        for ((dx, &y), &dy) in dx.iter_mut().zip(y).zip(dy) {
            *dx = y * (dy - mean);
        }
    }
}

/// `x - ln(sum exp(x))`.
#[derive(Clone, Copy)]
pub(crate) struct LogSoftmax;

impl Along for LogSoftmax {
    const KEPT: Kept = Kept::Output;
    const REDUCES: bool = false;
    #[inline(always)]
    fn value<R: Real>(self, x: &[R], y: &mut [R]) {
        let (largest, rest) = log_sum_exp(x);
        for (y, &x) in y.iter_mut().zip(x) {
            *y = (x - largest) - rest;
        }
    }
    /// Divides by the sum of the rounded probabilities as [`Softmax`] does.
    #[inline(always)]
    fn back<R: Real>(self, y: &[R], dy: &[R], dx: &mut [R]) {
        reduce::fill(Some(y), dx, math::exp);
        let scale = reduce::sum_of([dy], |[dy]| dy) / reduce::sum_of([dx], |[dx]| dx);
        for (dx, &dy) in dx.iter_mut().zip(dy) {
            *dx = dy - *dx * scale;
        }
    }
}
