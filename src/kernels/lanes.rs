//! Functions of whole lanes: the elements along one or several axes, laid side by side.

use std::ops::Range;

use super::{
    buffers::{lend, take},
    elementwise::{BLOCK, Kept},
    simd::{Body, vectorized},
    threads,
};
use crate::dtype::{Float, Real};

/// About how many multiplications and additions an element costs.
const WORK: usize = 16;

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
    in_groups(count, n, m, |lanes, out| {
        let x = T::widen_slice(&x[lanes.start * n..lanes.end * n]);
        let mut y = lend(out.len());
        vectorized(Values { f, n, m, x: &x, y: &mut y });
        T::narrow_into(&y, out);
    })
}

/// The gradients of `count` lanes of `n` elements, one rounding. `kept` is x, y or empty as `A::KEPT` says.
pub(crate) fn along_backward<T: Float, A: Along>(f: A, kept: &[T], dy: &[T], count: usize, n: usize) -> Vec<T> {
    let m = if A::REDUCES { 1 } else { n };
    let k = match A::KEPT {
        Kept::Nothing => 0,
        Kept::Input => n,
        Kept::Output => m,
    };
    in_groups(count, n, n, |lanes, out| {
        let kept = T::widen_slice(&kept[lanes.start * k..lanes.end * k]);
        let dy = T::widen_slice(&dy[lanes.start * m..lanes.end * m]);
        let mut dx = lend(out.len());
        vectorized(Backs { f, n, m, k, kept: &kept, dy: &dy, dx: &mut dx });
        T::narrow_into(&dx, out);
    })
}

struct Values<'a, R, A> {
    f: A,
    n: usize,
    m: usize,
    x: &'a [R],
    y: &'a mut [R],
}

impl<R: Real, A: Along> Body for Values<'_, R, A> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        for (i, y) in self.y.chunks_exact_mut(self.m).enumerate() {
            self.f.value(&self.x[i * self.n..(i + 1) * self.n], y);
        }
    }
}

struct Backs<'a, R, A> {
    f: A,
    n: usize,
    m: usize,
    k: usize,
    kept: &'a [R],
    dy: &'a [R],
    dx: &'a mut [R],
}

impl<R: Real, A: Along> Body for Backs<'_, R, A> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let Backs { f, n, m, k, kept, dy, dx } = self;
        for (i, dx) in dx.chunks_exact_mut(n).enumerate() {
            f.back(&kept[i * k..(i + 1) * k], &dy[i * m..(i + 1) * m], dx);
        }
    }
}

/// Fills `m` elements for each of `count` lanes of `n`: several lanes at a time, so that what is widened of them stays in
/// the nearest cache.
fn in_groups<T: Float>(count: usize, n: usize, m: usize, fill: impl Fn(Range<usize>, &mut [T]) + Sync) -> Vec<T> {
    let mut out = take(count * m);
    if !out.is_empty() {
        let group = (BLOCK / n.max(1)).max(1);
        threads::chunks(&mut out, group * m, count * n * WORK, |i, out| {
            fill(i * group..i * group + out.len() / m, out)
        });
    }
    out
}
