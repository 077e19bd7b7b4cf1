//! Softmax and its logarithm, stable for any finite input.

use super::{elementwise::Kept, lanes::Along, reduce};
use crate::dtype::Real;

/// The two parts of `ln(sum exp(x))`: the largest x, and what is to be added to it. They are kept apart, because their
/// sum would lose the second when the first is large.
pub(crate) fn log_sum_exp<R: Real>(x: &[R]) -> (R, R) {
    let largest = x.iter().copied().fold(R::neg_infinity(), R::max);
    let powers: Vec<R> = x.iter().map(|&x| (x - largest).exp()).collect();
    (largest, reduce::sum(&powers).ln())
}

/// `exp(x) / sum exp(x)`.
#[derive(Clone, Copy)]
pub(crate) struct Softmax;

impl Along for Softmax {
    const KEPT: Kept = Kept::Output;
    const REDUCES: bool = false;
    fn value<R: Real>(self, x: &[R], y: &mut [R]) {
        let largest = x.iter().copied().fold(R::neg_infinity(), R::max);
        for (y, &x) in y.iter_mut().zip(x) {
            *y = (x - largest).exp();
        }
        let sum = reduce::sum(y);
        for y in y {
            *y = *y / sum;
        }
    }
    /// The sum over rounded probabilities is not quite 1; dividing by it takes that error out of small differences.
    fn back<R: Real>(self, y: &[R], dy: &[R], dx: &mut [R]) {
        for ((dx, &y), &dy) in dx.iter_mut().zip(y).zip(dy) {
            *dx = y * dy;
        }
        let mean = reduce::sum(dx) / reduce::sum(y);
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
    fn value<R: Real>(self, x: &[R], y: &mut [R]) {
        let (largest, rest) = log_sum_exp(x);
        for (y, &x) in y.iter_mut().zip(x) {
            *y = (x - largest) - rest;
        }
    }
    /// Divides by the sum of the rounded probabilities as [`Softmax`] does.
    fn back<R: Real>(self, y: &[R], dy: &[R], dx: &mut [R]) {
        for (dx, &y) in dx.iter_mut().zip(y) {
            *dx = y.exp();
        }
        let scale = reduce::sum(dy) / reduce::sum(dx);
        for (dx, &dy) in dx.iter_mut().zip(dy) {
            *dx = dy - *dx * scale;
        }
    }
}
