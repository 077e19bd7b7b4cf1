//! Changing the length of an axis: each element of the result is a weighted sum of few elements of the axis.

use crate::dtype::Real;

/// For each element of the result, the elements of the axis it is made of, with their weights.
pub(crate) type Taps = Vec<Vec<(usize, f64)>>;

/// An axis of length `len` between `outer` and `inner` others.
#[derive(Clone, Copy)]
pub(crate) struct Along {
    pub outer: usize,
    pub len: usize,
    pub inner: usize,
}

/// The sums, in place of the axis.
pub(crate) fn resample<R: Real>(x: &[R], along: Along, taps: &Taps) -> Vec<R> {
    let mut out = vec![R::zero(); along.outer * taps.len() * along.inner];
    each_row(along, taps, |from, to, weight: R| add(&mut out[to..][..along.inner], &x[from..][..along.inner], weight));
    out
}

/// The gradient of `x`, given that of the sums.
pub(crate) fn resample_backward<R: Real>(dy: &[R], along: Along, taps: &Taps) -> Vec<R> {
    let mut dx = vec![R::zero(); along.outer * along.len * along.inner];
    each_row(along, taps, |from, to, weight: R| add(&mut dx[from..][..along.inner], &dy[to..][..along.inner], weight));
    dx
}

/// Calls `f` with the offset of a row of x, that of the row of the result it goes into, and its weight there.
fn each_row<R: Real>(Along { outer, len, inner }: Along, taps: &Taps, mut f: impl FnMut(usize, usize, R)) {
    for o in 0..outer {
        for (i, taps_of_one) in taps.iter().enumerate() {
            for &(at, weight) in taps_of_one {
                f((o * len + at) * inner, (o * taps.len() + i) * inner, R::of(weight));
            }
        }
    }
}

fn add<R: Real>(to: &mut [R], from: &[R], weight: R) {
    for (to, &from) in to.iter_mut().zip(from) {
        *to += from * weight;
    }
}
