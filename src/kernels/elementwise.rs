//! Functions of one or two elements at a time.

use crate::dtype::{Float, Real};

/// A differentiable function of one number.
pub(crate) trait Unary: Copy + Send + Sync + 'static {
    /// f(x).
    fn value<R: Real>(self, x: R) -> R;
    /// f'(x), given x and y = f(x).
    fn slope<R: Real>(self, x: R, y: R) -> R;
    /// Whether [`slope`](Unary::slope) reads only y, so that x need not be kept.
    const SLOPE_FROM_OUTPUT: bool = false;
}

/// `out[i] = f(x[i])`, one rounding.
pub(crate) fn unary<T: Float, F: Unary>(f: F, x: &[T]) -> Vec<T> {
    x.iter().map(|&x| T::narrow(f.value(x.widen()))).collect()
}

/// `out[i] = grad[i] * f'(x[i])`, one rounding. `kept` is y when the slope reads only y, else x.
pub(crate) fn unary_backward<T: Float, F: Unary>(f: F, kept: &[T], grad: &[T]) -> Vec<T> {
    kept.iter()
        .zip(grad)
        .map(|(&kept, &grad)| {
            let kept = kept.widen();
            let slope = if F::SLOPE_FROM_OUTPUT { f.slope(kept, kept) } else { f.slope(kept, f.value(kept)) };
            T::narrow(grad.widen() * slope)
        })
        .collect()
}
