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

/// An [`Along`] function as a value: one piece of code for all dtypes that are computed in `R`.
pub(crate) trait OnLanes<R>: Send + Sync {
    /// See [`Along::KEPT`].
    fn kept(&self) -> Kept;
    /// See [`Along::REDUCES`].
    fn reduces(&self) -> bool;
    /// [`Along::value`] of lanes of `n`.
    fn values(&self, n: usize, x: &[R], y: &mut [R]);
    /// [`Along::back`] of lanes of `n`.
    fn backs(&self, n: usize, kept: &[R], dy: &[R], dx: &mut [R]);
}

impl<R: Real, A: Along> OnLanes<R> for A {
    fn kept(&self) -> Kept {
        A::KEPT
    }
    fn reduces(&self) -> bool {
        A::REDUCES
    }
    fn values(&self, n: usize, x: &[R], y: &mut [R]) {
        vectorized(Values { f: *self, n, m: left::<R>(self, n), x, y });
    }
    fn backs(&self, n: usize, kept: &[R], dy: &[R], dx: &mut [R]) {
        let m = left::<R>(self, n);
        vectorized(Backs { f: *self, n, m, k: kept_of::<R>(self, n), kept, dy, dx });
    }
}

/// Elements that a lane of `n` becomes.
fn left<R>(f: &dyn OnLanes<R>, n: usize) -> usize {
    if f.reduces() { 1 } else { n }
}

/// Elements kept of a lane of `n`.
fn kept_of<R>(f: &dyn OnLanes<R>, n: usize) -> usize {
    match f.kept() {
        Kept::Nothing => 0,
        Kept::Input => n,
        Kept::Output => left(f, n),
    }
}

/// f of `count` lanes of `n` elements, one rounding.
pub(crate) fn along<T: Float>(f: &dyn OnLanes<T::Wide>, x: &[T], count: usize, n: usize) -> Vec<T> {
    in_groups(count, n, left(f, n), |lanes, [wide, _, y], out| {
        let x = T::widened(&x[lanes.start * n..lanes.end * n], wide);
        let y = &mut y[..out.len()];
        f.values(n, x, y);
        T::narrow_into(y, out);
    })
}

/// The gradients of `count` lanes of `n` elements, one rounding. `kept` is x, y or empty as [`Along::KEPT`] says.
pub(crate) fn along_backward<T: Float>(
    f: &dyn OnLanes<T::Wide>,
    kept: &[T],
    dy: &[T],
    count: usize,
    n: usize,
) -> Vec<T> {
    let (m, k) = (left(f, n), kept_of(f, n));
    in_groups(count, n, n, |lanes, [wide_kept, wide_dy, dx], out| {
        let kept = T::widened(&kept[lanes.start * k..lanes.end * k], wide_kept);
        let dy = T::widened(&dy[lanes.start * m..lanes.end * m], wide_dy);
        let dx = &mut dx[..out.len()];
        f.backs(n, kept, dy, dx);
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
