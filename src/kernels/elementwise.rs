//! Functions of one or two elements at a time.

use super::{buffers::take, simd::vectorized, threads};
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

/// Elements that are widened, computed and rounded at a time, so that what lies between stays in the nearest cache.
pub(crate) const BLOCK: usize = 1024;

/// `out[i] = f(x[i])`, one rounding.
pub(crate) fn unary<T: Float, F: Unary>(f: F, x: &[T]) -> Vec<T> {
    in_blocks([x], |[x]| {
        for x in x {
            *x = f.value(*x);
        }
    })
}

/// `out[i] = grad[i] * f'(x[i])`, one rounding. `kept` is x or y as `F::KEPT` says.
pub(crate) fn unary_backward<T: Float, F: Unary>(f: F, kept: &[T], grad: &[T]) -> Vec<T> {
    if F::KEPT == Kept::Nothing {
        let slope = f.slope(T::Wide::of(0.0));
        return in_blocks([grad], |[grad]| {
            for grad in grad {
                *grad = *grad * slope;
            }
        });
    }
    in_blocks([grad, kept], |[grad, kept]| {
        for (grad, kept) in grad.iter_mut().zip(kept) {
            *grad = *grad * f.slope(*kept);
        }
    })
}

/// About how many multiplications an element takes the time of.
const WORK: usize = 8;

/// Calls `f` with blocks of widened slices of one length; what it leaves in the first of them is the result, rounded once.
pub(crate) fn in_blocks<T: Float, const N: usize>(
    slices: [&[T]; N],
    f: impl Fn([&mut [T::Wide]; N]) + Copy + Sync,
) -> Vec<T> {
    let len = slices[0].len();
    let mut out = take(len);
    threads::together(&mut out, &mut [] as &mut [&mut [T]], len * WORK, |range, out, _| {
        let mut wide = [[T::Wide::default(); BLOCK]; N];
        for (i, out) in out.chunks_mut(BLOCK).enumerate() {
            let start = range.start + i * BLOCK;
            let mut parts = wide.each_mut().map(|wide| &mut wide[..out.len()]);
            for (part, slice) in parts.iter_mut().zip(slices) {
                T::widen_into(&slice[start..start + out.len()], part);
            }
            vectorized(|| f(parts));
            T::narrow_into(&wide[0][..out.len()], out);
        }
    });
    out
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
