//! Resizing of an axis: each element of the result is a weighted sum of a few elements of the axis.

use crate::{
    float::Real,
    memory::{Pooled, zeros},
    reduce::FEW,
};

/// Source elements of the axis with their weights, for each element of the result.
pub type Taps = Vec<Vec<(usize, f64)>>;

/// An axis of length `len` between `outer` and `inner` others.
#[derive(Clone, Copy)]
pub struct ResampledAxis {
    /// Elements before the axis.
    pub outer: usize,
    /// Length of the axis.
    pub len: usize,
    /// Elements after the axis.
    pub inner: usize,
}

/// Computes the sums, in place of the axis.
pub fn resample<R: Real>(x: &[R], axis: ResampledAxis, taps: &Taps) -> Pooled<R> {
    let mut out = zeros(axis.outer * taps.len() * axis.inner);
    each_row(axis, taps, |from, to, weight: R| add(&mut out[to..][..axis.inner], &x[from..][..axis.inner], weight));
    out
}

/// Computes the gradient of `x` from that of the sums. If an element takes part in many of these, it is accumulated in
/// f64.
pub fn resample_backward<R: Real>(dy: &[R], axis: ResampledAxis, taps: &Taps) -> Pooled<R> {
    let mut counts = vec![0; axis.len];
    taps.iter().flatten().for_each(|&(at, _)| counts[at] += 1);
    if counts.iter().all(|&count| count <= FEW) {
        return gathered(dy, axis, taps);
    }
    gathered::<R, f64>(dy, axis, taps).iter().map(|&dx| R::of(dx)).collect()
}

/// Computes the gradient of `x`, accumulated in `A`.
fn gathered<R: Real, A: Real>(dy: &[R], axis: ResampledAxis, taps: &Taps) -> Pooled<A> {
    let mut dx = zeros(axis.outer * axis.len * axis.inner);
    each_row(axis, taps, |from, to, weight: R| add(&mut dx[from..][..axis.inner], &dy[to..][..axis.inner], weight));
    dx
}

/// Calls `f` with the offset of a row of x, that of the row of the result it contributes to, and its weight there.
fn each_row<R: Real>(
    ResampledAxis { outer, len, inner }: ResampledAxis,
    taps: &Taps,
    mut f: impl FnMut(usize, usize, R),
) {
    for o in 0..outer {
        for (i, taps_of_one) in taps.iter().enumerate() {
            for &(at, weight) in taps_of_one {
                f((o * len + at) * inner, (o * taps.len() + i) * inner, R::of(weight));
            }
        }
    }
}

fn add<R: Real, A: Real>(to: &mut [A], from: &[R], weight: R) {
    for (to, &from) in to.iter_mut().zip(from) {
        *to += A::of((from * weight).as_f64());
    }
}
