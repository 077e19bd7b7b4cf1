//! Functions of whole slices: the elements along one or several axes, contiguous.

use std::ops::Range;

use crate::{
    elementwise::{BLOCK, Saved},
    float::{Float, Real},
    memory::{Pooled, uninit_vec},
    simd::Body,
    threads,
    threads::Shared,
};

/// Approximate cost of one element, in multiply-adds.
const WORK: usize = 16;

/// A differentiable function of one slice, to one number or to a slice of the same length.
pub trait AlongAxis: Copy + Send + Sync + 'static {
    /// Data of the forward pass that [`backward`](AlongAxis::backward) needs.
    const SAVED: Saved;
    /// `true` when a slice is reduced to one number.
    const REDUCES: bool;
    /// Fills `y` with f(x).
    fn value<R: Real>(self, x: &[R], y: &mut [R]);
    /// Fills `dx` with the gradient of x, given that of y; `saved` is x or y according to [`SAVED`](AlongAxis::SAVED).
    fn backward<R: Real>(self, saved: &[R], dy: &[R], dx: &mut [R]);
}

/// An [`AlongAxis`] function as a value: one piece of code for all dtypes that are computed in `R`.
pub trait SliceFunction<R>: Send + Sync {
    /// Returns [`AlongAxis::SAVED`].
    fn saved(&self) -> Saved;
    /// Returns [`AlongAxis::REDUCES`].
    fn reduces(&self) -> bool;
    /// Computes [`AlongAxis::value`] for consecutive slices of `n`.
    fn values(&self, n: usize, x: &[R], y: &mut [R]);
    /// Computes [`AlongAxis::backward`] for consecutive slices of `n`.
    fn gradients(&self, n: usize, saved: &[R], dy: &[R], dx: &mut [R]);
}

impl<R: Real, A: AlongAxis> SliceFunction<R> for A {
    fn saved(&self) -> Saved {
        A::SAVED
    }
    fn reduces(&self) -> bool {
        A::REDUCES
    }
    fn values(&self, n: usize, x: &[R], y: &mut [R]) {
        R::vectorized(Values { f: *self, n, m: result_len::<R>(self, n), x, y });
    }
    fn gradients(&self, n: usize, saved: &[R], dy: &[R], dx: &mut [R]) {
        let m = result_len::<R>(self, n);
        R::vectorized(Gradients { f: *self, n, m, k: saved_len::<R>(self, n), saved, dy, dx });
    }
}

/// Returns the length of the result for a slice of `n`.
fn result_len<R>(f: &dyn SliceFunction<R>, n: usize) -> usize {
    if f.reduces() { 1 } else { n }
}

/// Returns the number of elements saved for a slice of `n`.
fn saved_len<R>(f: &dyn SliceFunction<R>, n: usize) -> usize {
    match f.saved() {
        Saved::Nothing => 0,
        Saved::Input => n,
        Saved::Output => result_len(f, n),
    }
}

/// Computes f of `count` slices of `n` elements, each result rounded once.
pub fn over_slices<T: Float>(f: &dyn SliceFunction<T::Wide>, x: &[T], count: usize, n: usize) -> Pooled<T> {
    in_groups(count, n, result_len(f, n), |slices, [wide, _, y], out| {
        let x = T::widened(&x[slices.start * n..slices.end * n], wide);
        let y = &mut y[..out.len()];
        f.values(n, x, y);
        T::narrow_into(y, out);
    })
}

/// Computes the gradients of `count` slices of `n` elements, each rounded once. `saved` is x, y or empty according to
/// [`AlongAxis::SAVED`].
pub fn over_slices_backward<T: Float>(
    f: &dyn SliceFunction<T::Wide>,
    saved: &[T],
    dy: &[T],
    count: usize,
    n: usize,
) -> Pooled<T> {
    let (m, k) = (result_len(f, n), saved_len(f, n));
    in_groups(count, n, n, |slices, [wide_saved, wide_dy, dx], out| {
        let saved = T::widened(&saved[slices.start * k..slices.end * k], wide_saved);
        let dy = T::widened(&dy[slices.start * m..slices.end * m], wide_dy);
        let dx = &mut dx[..out.len()];
        f.gradients(n, saved, dy, dx);
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

impl<R: Real, A: AlongAxis> Body for Values<'_, R, A> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        for (i, y) in self.y.chunks_exact_mut(self.m).enumerate() {
            self.f.value(&self.x[i * self.n..(i + 1) * self.n], y);
        }
    }
}

struct Gradients<'a, R, A> {
    f: A,
    n: usize,
    m: usize,
    k: usize,
    saved: &'a [R],
    dy: &'a [R],
    dx: &'a mut [R],
}

impl<R: Real, A: AlongAxis> Body for Gradients<'_, R, A> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let Gradients { f, n, m, k, saved, dy, dx } = self;
        for (i, dx) in dx.chunks_exact_mut(n).enumerate() {
            f.backward(&saved[i * k..(i + 1) * k], &dy[i * m..(i + 1) * m], dx);
        }
    }
}

/// Computes `m` elements for each of `count` slices of `n`, several slices at a time, so that their widened copies stay
/// in the nearest cache. `fill` receives three spaces with as many elements as these slices.
fn in_groups<T: Float>(
    count: usize,
    n: usize,
    m: usize,
    fill: impl Fn(Range<usize>, [&mut [T::Wide]; 3], &mut [T]) + Sync,
) -> Pooled<T> {
    let mut out = uninit_vec(count * m);
    let group = (BLOCK / n.max(1)).max(1);
    if out.is_empty() {
        return out;
    }
    let to = Shared::new(&mut out);
    threads::split(count, group, count * n * WORK, |slices| {
        let mut spaces: [Pooled<T::Wide>; 3] = std::array::from_fn(|_| Pooled::uninit(group.min(count) * n.max(m)));
        for start in slices.clone().step_by(group) {
            let slices = start..slices.end.min(start + group);
            // SAFETY: the results of these slices are written by this thread alone.
            let out = unsafe { to.part(start * m, slices.len() * m) };
            fill(slices, spaces.each_mut().map(|space| &mut space[..]), out);
        }
    });
    out
}
