//! Functions of whole lanes: the elements along one or several axes, laid side by side.

use std::ops::Range;

use super::{
    buffers::{Lent, lend, take},
    elementwise::{BLOCK, Kept},
    simd::{Body, vectorized},
    threads::{self, Shared},
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
    in_groups(count, n, m, |lanes, [wide, _, y], out| {
        let x = T::widened(&x[lanes.start * n..lanes.end * n], wide);
        let y = &mut y[..out.len()];
        vectorized(Values { f, n, m, x, y });
        T::narrow_into(y, out);
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
    in_groups(count, n, n, |lanes, [wide_kept, wide_dy, dx], out| {
        let kept = T::widened(&kept[lanes.start * k..lanes.end * k], wide_kept);
        let dy = T::widened(&dy[lanes.start * m..lanes.end * m], wide_dy);
        let dx = &mut dx[..out.len()];
        vectorized(Backs { f, n, m, k, kept, dy, dx });
        T::narrow_into(dx, out);
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
/// the nearest cache. `fill` is given three spaces of as many elements as these lanes have.
fn in_groups<T: Float>(
    count: usize,
    n: usize,
    m: usize,
    fill: impl Fn(Range<usize>, [&mut [T::Wide]; 3], &mut [T]) + Sync,
) -> Vec<T> {
    let mut out = take(count * m);
    let group = (BLOCK / n.max(1)).max(1);
    if out.is_empty() {
        return out;
    }
    let to = Shared::new(&mut out);
    threads::split(count, group, count * n * WORK, |lanes| {
        let mut spaces: [Lent<T::Wide>; 3] = std::array::from_fn(|_| lend(group.min(count) * n.max(m)));
        for start in lanes.clone().step_by(group) {
            let lanes = start..lanes.end.min(start + group);
            // SAFETY: these lanes are this thread's.
            let out = unsafe { to.part(start * m, lanes.len() * m) };
            fill(lanes, spaces.each_mut().map(|space| &mut space[..]), out);
        }
    });
    out
}
