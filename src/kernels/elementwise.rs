//! Functions of one or two elements at a time.

use crate::dtype::{Float, Real};

/// What a backward pass reads of the forward pass. The rest need not be kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    Nothing,
    Input,
    Output,
}

/// A differentiable function of one number.
pub(crate) trait Unary: Copy + Send + Sync + 'static {
    /// What [`slope`](Unary::slope) is given.
    const KEPT: Kept;
    /// f(x).
    fn value<R: Real>(self, x: R) -> R;
    /// f'(x), given x or f(x) as [`KEPT`](Unary::KEPT) says.
    fn slope<R: Real>(self, kept: R) -> R;
}

/// `out[i] = f(x[i])`, one rounding.
pub(crate) fn unary<T: Float, F: Unary>(f: F, x: &[T]) -> Vec<T> {
    let y: Vec<T::Wide> = T::widen_slice(x).iter().map(|&x| f.value(x)).collect();
    T::narrow_vec(y)
}

/// `out[i] = grad[i] * f'(x[i])`, one rounding. `kept` is x or y as `F::KEPT` says.
pub(crate) fn unary_backward<T: Float, F: Unary>(f: F, kept: &[T], grad: &[T]) -> Vec<T> {
    let grad = T::widen_slice(grad);
    let back: Vec<T::Wide> = if F::KEPT == Kept::Nothing {
        let slope = f.slope(T::Wide::of(0.0));
        grad.iter().map(|&grad| grad * slope).collect()
    } else {
        grad.iter().zip(T::widen_slice(kept).iter()).map(|(&grad, &kept)| grad * f.slope(kept)).collect()
    };
    T::narrow_vec(back)
}

/// A differentiable function of two numbers.
pub(crate) trait Binary: Copy + Send + Sync + 'static {
    /// Whether the slopes are constants, so that nothing need be kept.
    const CONSTANT_SLOPES: bool = false;
    /// f(a, b).
    fn value<R: Real>(self, a: R, b: R) -> R;
    /// The two partial derivatives.
    fn slopes<R: Real>(self, a: R, b: R) -> (R, R);
    /// f of two integers, exact but for wrapping; `None` where integers have no such function.
    fn integer(self, _a: i64, _b: i64) -> Option<i64> {
        None
    }
}
