//! Functions of whole lanes: the elements along one or several axes, laid side by side.

use super::elementwise::Kept;
use crate::dtype::{Float, Real};

/// A differentiable function of one lane, to one number or to a lane of the same length.
pub(crate) trait Along: Copy + Send + Sync + 'static {
    /// What [`back`](Along::back) is given of the forward pass.
    const KEPT: Kept;
    /// Whether a lane becomes one number.
    const REDUCES: bool;
    /// Fills `y` with f(x).
    fn value<R: Real>(self, x: &[R], y: &mut [R]);
    /// Fills `dx` with the gradient of x, given that of y; `kept` is the lane x or y as [`KEPT`](Along::KEPT) says.
    fn back<R: Real>(self, kept: &[R], dy: &[R], dx: &mut [R]);
}

/// f of `count` lanes of `n` elements, one rounding.
pub(crate) fn along<T: Float, A: Along>(f: A, x: &[T], count: usize, n: usize) -> Vec<T> {
    let m = if A::REDUCES { 1 } else { n };
    let x = T::widen_slice(x);
    let mut y = vec![T::Wide::default(); count * m];
    for i in 0..count {
        f.value(&x[i * n..(i + 1) * n], &mut y[i * m..(i + 1) * m]);
    }
    T::narrow_vec(y)
}

/// The gradients of `count` lanes of `n` elements, one rounding. `kept` is x, y or empty as `A::KEPT` says.
pub(crate) fn along_backward<T: Float, A: Along>(f: A, kept: &[T], dy: &[T], count: usize, n: usize) -> Vec<T> {
    let m = if A::REDUCES { 1 } else { n };
    let k = match A::KEPT {
        Kept::Nothing => 0,
        Kept::Input => n,
        Kept::Output => m,
    };
    let (kept, dy) = (T::widen_slice(kept), T::widen_slice(dy));
    let mut dx = vec![T::Wide::default(); count * n];
    for i in 0..count {
        f.back(&kept[i * k..(i + 1) * k], &dy[i * m..(i + 1) * m], &mut dx[i * n..(i + 1) * n]);
    }
    T::narrow_vec(dx)
}
