//! Differentiable functions of one and two numbers as functions of slices: their values and gradients.

use super::function::Pointwise;
use crate::float::Real;

/// Data that the forward pass saves for the backward pass.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Saved {
    /// No numbers.
    Nothing,
    /// The input.
    Input,
    /// The result.
    Output,
}

/// A differentiable function of one number.
pub trait Unary: Copy + Send + Sync + 'static {
    /// Argument of [`slope`](Unary::slope).
    const SAVED: Saved;
    /// Counterpart of [`Pointwise::DIRECT`], for value and slope.
    const DIRECT: bool = false;
    /// `true` when a slope of 0 means that the function is constant there, rather than that a small slope was rounded.
    /// Then no gradient passes, not even an infinite one or NaN.
    const FLAT: bool = false;
    /// Returns f(x).
    fn value<R: Real>(self, x: R) -> R;
    /// Returns f'(x), given x or f(x) according to [`SAVED`](Unary::SAVED).
    fn slope<R: Real>(self, saved: R) -> R;
}

/// A differentiable function of two numbers.
pub trait Binary: Copy + Send + Sync + 'static {
    /// `true` when the slopes are constants, so that nothing is saved.
    const CONSTANT_SLOPES: bool = false;
    /// Counterpart of [`Pointwise::DIRECT`], for value and slopes.
    const DIRECT: bool = false;
    /// Counterpart of [`Unary::FLAT`], for each slope.
    const FLAT: bool = false;
    /// Returns f(a, b).
    fn value<R: Real>(self, a: R, b: R) -> R;
    /// Returns the two partial derivatives.
    fn slopes<R: Real>(self, a: R, b: R) -> (R, R);
    /// Returns f of two integers, with wrapping arithmetic; `None` if it is not defined for integers.
    fn integer(self, _a: i64, _b: i64) -> Option<i64> {
        None
    }
}

/// The function f(x).
#[derive(Clone, Copy)]
pub struct Value<F>(pub F);

impl<F: Unary> Pointwise for Value<F> {
    const INPUTS: usize = 1;
    const DIRECT: bool = F::DIRECT;
    #[inline(always)]
    fn at<R: Real>(self, x: &[R]) -> R {
        self.0.value(x[0])
    }
}

/// The gradient times f', as a function of the gradient and the saved number.
#[derive(Clone, Copy)]
pub struct Slope<F>(pub F);

impl<F: Unary> Pointwise for Slope<F> {
    const INPUTS: usize = 2;
    const DIRECT: bool = F::DIRECT;
    #[inline(always)]
    fn at<R: Real>(self, x: &[R]) -> R {
        chained(x[0], self.0.slope(x[1]), F::FLAT)
    }
}

/// Multiplies the gradient by a slope.
#[inline(always)]
fn chained<R: Real>(grad: R, slope: R, flat: bool) -> R {
    if flat && slope == R::zero() { R::zero() } else { grad * slope }
}

/// The function f(a, b).
#[derive(Clone, Copy)]
pub struct PairValue<F>(pub F);

impl<F: Binary> Pointwise for PairValue<F> {
    const INPUTS: usize = 2;
    const DIRECT: bool = F::DIRECT;
    #[inline(always)]
    fn at<R: Real>(self, x: &[R]) -> R {
        self.0.value(x[0], x[1])
    }
}

/// The gradient times one of the partial derivatives, as a function of the gradient, a and b.
#[derive(Clone, Copy)]
pub struct PairSlope<F, const SECOND: bool>(pub F);

impl<F: Binary, const SECOND: bool> Pointwise for PairSlope<F, SECOND> {
    const INPUTS: usize = 3;
    const DIRECT: bool = F::DIRECT;
    #[inline(always)]
    fn at<R: Real>(self, x: &[R]) -> R {
        let (first, second) = self.0.slopes(x[1], x[2]);
        chained(x[0], if SECOND { second } else { first }, F::FLAT)
    }
}

/// Product with a constant.
#[derive(Clone, Copy)]
pub struct Times(pub f64);

impl Pointwise for Times {
    const INPUTS: usize = 1;
    const DIRECT: bool = true;
    #[inline(always)]
    fn at<R: Real>(self, x: &[R]) -> R {
        x[0] * R::of(self.0)
    }
}

/// Constant 0, whatever the gradient is.
#[derive(Clone, Copy)]
pub struct Zero;

impl Pointwise for Zero {
    const INPUTS: usize = 1;
    const DIRECT: bool = true;
    #[inline(always)]
    fn at<R: Real>(self, _x: &[R]) -> R {
        R::zero()
    }
}

/// Gradient of ReLU, as a function of the gradient of its result and of the result.
#[derive(Clone, Copy)]
pub struct Masked;

impl Pointwise for Masked {
    const INPUTS: usize = 2;
    const DIRECT: bool = true;
    #[inline(always)]
    fn at<R: Real>(self, x: &[R]) -> R {
        match x[1] {
            y if y <= R::zero() => R::zero(),
            y if y.is_nan() => x[0] * y,
            _ => x[0],
        }
    }
}

/// Sum.
#[derive(Clone, Copy)]
pub struct Sum;

impl Pointwise for Sum {
    const INPUTS: usize = 2;
    const DIRECT: bool = true;
    #[inline(always)]
    fn at<R: Real>(self, x: &[R]) -> R {
        x[0] + x[1]
    }
}
