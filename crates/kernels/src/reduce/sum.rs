//! Sums in a fixed pairwise order, and other loops over slices that are fast at every length.

use precast_base::Element;

use crate::{
    arrays::mapped,
    elementwise::BLOCK,
    float::{Float, Real},
    memory::{Pooled, zeros},
};

/// Maximum number of terms that are added in one run. Longer sums are halved, so that the error grows with the
/// logarithm of the length (N. Higham, "The accuracy of floating point summation", 1993).
const RUN: usize = 256;

/// Maximum number of rows that are added one after another.
const ROWS: usize = 64;

/// Returns the row at which a sum of more than [`ROWS`] rows is halved.
fn half(n: usize) -> usize {
    (n / 2).next_multiple_of(ROWS)
}

/// Number of independent partial results of a fold: enough vector registers to hide the latency of an addition.
const SIDE: usize = 64;

/// Number of elements computed together at the end of a slice, so that no loop over single elements is needed.
const PART: usize = 16;

/// Computes the sum, in an order that depends only on the length.
pub fn sum<R: Real>(x: &[R]) -> R {
    R::vectorized(|| sum_of([x], |[x]| x))
}

/// Sums `f` over slices of one length. Terms are summed in runs of [`RUN`], and the sums of runs are added pairwise.
/// The last run takes up to [`PART`] additional terms, so that no run is that short. Must be called from a
/// [`vectorized`](crate::simd::vectorized) body.
#[inline(always)]
pub fn sum_of<R: Real, const N: usize>(x: [&[R]; N], f: impl Fn([R; N]) -> R + Copy) -> R {
    let len = x[0].len();
    if len <= RUN + PART {
        return sum_of_run(x, f);
    }
    // `waiting[level]` is the sum of 2^level runs, until that of the next 2^level runs is added.
    let mut waiting = [R::zero(); usize::BITS as usize];
    let runs = (len - PART).div_ceil(RUN);
    for run in 0..runs {
        let mut sum = sum_of_run(mapped(x, |x| &x[run * RUN..if run + 1 < runs { (run + 1) * RUN } else { len }]), f);
        let level = run.trailing_ones() as usize;
        for left in &waiting[..level] {
            sum = *left + sum;
        }
        waiting[level] = sum;
    }
    let (mut sum, mut left) = (R::zero(), runs);
    while left > 0 {
        sum = waiting[left.trailing_zeros() as usize] + sum;
        left &= left - 1;
    }
    sum
}

#[inline(always)]
fn sum_of_run<R: Real, const N: usize>(x: [&[R]; N], f: impl Fn([R; N]) -> R + Copy) -> R {
    fold(x, R::zero(), f, |a, b| a + b)
}

/// Returns the largest element that is not NaN, or minus infinity if there is none. Must be called from a
/// [`vectorized`](crate::simd::vectorized) body.
#[inline(always)]
pub fn largest<R: Real>(x: &[R]) -> R {
    fold([x], R::neg_infinity(), |[x]| x, |best, x| if x > best { x } else { best })
}

/// Folds `f` over slices of one length into [`SIDE`] partial results, and joins these by halves. The loops run over
/// whole arrays, and the remainder has its own array, so that the partial results stay in vector registers.
#[inline(always)]
fn fold<R: Real, const N: usize>(
    x: [&[R]; N],
    start: R,
    f: impl Fn([R; N]) -> R + Copy,
    join: impl Fn(R, R) -> R + Copy,
) -> R {
    let len = x[0].len();
    if len <= PART {
        let mut results = last_folded(x, start, f, join);
        halve::<R, PART, 8>(&mut results, join);
        halve::<R, PART, 4>(&mut results, join);
        halve::<R, PART, 2>(&mut results, join);
        halve::<R, PART, 1>(&mut results, join);
        return results[0];
    }
    let mut results = [start; SIDE];
    let whole = len / SIDE * SIDE;
    for at in (0..whole).step_by(SIDE) {
        let x = mapped(x, |x| &x[at..at + SIDE]);
        let mut part = [start; SIDE];
        for i in 0..SIDE {
            part[i] = f(mapped(x, |x| x[i]));
        }
        for i in 0..SIDE {
            results[i] = join(results[i], part[i]);
        }
    }
    if whole < len {
        let mut rest = [start; SIDE];
        let parts = len / PART * PART;
        for at in (whole..parts).step_by(PART) {
            let x = mapped(x, |x| &x[at..at + PART]);
            for i in 0..PART {
                rest[at - whole + i] = f(mapped(x, |x| x[i]));
            }
        }
        if parts < len {
            rest[parts - whole..][..PART].copy_from_slice(&last_folded(x, start, f, join));
        }
        for i in 0..SIDE {
            results[i] = join(results[i], rest[i]);
        }
    }
    halve::<R, SIDE, 32>(&mut results, join);
    halve::<R, SIDE, 16>(&mut results, join);
    halve::<R, SIDE, 8>(&mut results, join);
    halve::<R, SIDE, 4>(&mut results, join);
    halve::<R, SIDE, 2>(&mut results, join);
    halve::<R, SIDE, 1>(&mut results, join);
    results[0]
}

/// Returns `f` of the elements after the last whole [`PART`]. They are at the end of the result if the slice has a
/// whole [`last_part`], otherwise at its beginning.
#[inline(always)]
fn last_folded<R: Real, const N: usize>(
    x: [&[R]; N],
    start: R,
    f: impl Fn([R; N]) -> R,
    join: impl Fn(R, R) -> R,
) -> [R; PART] {
    let len = x[0].len();
    let new = if len <= PART { 0..len } else { PART - len % PART..PART };
    let (x, mut results) = (mapped(x, last_part), [start; PART]);
    for i in 0..PART {
        let value = join(start, f(mapped(x, |x| x[i])));
        results[i] = if new.contains(&i) { value } else { start };
    }
    results
}

/// Folds the second `HALF` results into the first. One loop over all halves would not be vectorized.
#[inline(always)]
fn halve<R: Real, const ALL: usize, const HALF: usize>(results: &mut [R; ALL], join: impl Fn(R, R) -> R) {
    for i in 0..HALF {
        results[i] = join(results[i], results[i + HALF]);
    }
}

/// Returns the last [`PART`] elements; if there are fewer, all of them followed by zeros.
#[inline(always)]
fn last_part<R: Real>(x: &[R]) -> [R; PART] {
    x.last_chunk().copied().unwrap_or_else(|| {
        let mut part = [R::zero(); PART];
        part[..x.len()].copy_from_slice(x);
        part
    })
}

/// Fills `y` with `f` of `x`, or of `y` itself if `x` is `None`. Must be called from a [`vectorized`](crate::simd::vectorized) body.
#[inline(always)]
pub fn fill<R: Real>(x: Option<&[R]>, y: &mut [R], f: impl Fn(R) -> R) {
    let (len, whole) = (y.len(), y.len() / PART * PART);
    // The last part overlaps the whole ones, so it is read before they are written.
    let mut last = last_part(x.unwrap_or(y));
    match x {
        Some(x) => {
            for (y, &x) in y[..whole].iter_mut().zip(x) {
                *y = f(x);
            }
        }
        None => {
            for y in &mut y[..whole] {
                *y = f(*y);
            }
        }
    }
    if whole < len {
        for x in &mut last {
            *x = f(*x);
        }
        match y.last_chunk_mut() {
            Some(y) => *y = last,
            None => y.copy_from_slice(&last[..len]),
        }
    }
}

/// Replaces each element of `to` by `f` of it and of the elements of slices of the same length at its place. Must be called
/// from a [`vectorized`](crate::simd::vectorized) body.
#[inline(always)]
pub fn replace<R: Real, const N: usize>(to: &mut [R], from: [&[R]; N], f: impl Fn(R, [R; N]) -> R) {
    let from = mapped(from, |from| &from[..to.len()]);
    for i in 0..to.len() {
        to[i] = f(to[i], mapped(from, |from| from[i]));
    }
}

/// Sums over the middle axis of `outer x n x inner`, without rounding.
pub fn sum_middle<T: Float>(x: &[T], outer: usize, n: usize, inner: usize) -> Pooled<T::Wide> {
    let row = if inner == 1 { n } else { inner };
    // f32 and f64 need no space for widening.
    let mut space = Pooled::uninit(if T::DTYPE == T::Wide::DTYPE { 0 } else { together(row) * row });
    let mut out = zeros(outer * inner);
    if inner == 1 && n > 0 {
        for (out, rows) in out.chunks_mut(together(n)).zip(x.chunks(together(n) * n)) {
            let rows = T::widened(rows, &mut space);
            for (out, row) in out.iter_mut().zip(rows.chunks_exact(n)) {
                *out = sum(row);
            }
        }
        return out;
    }
    for i in 0..outer {
        add_rows(&x[i * n * inner..(i + 1) * n * inner], n, &mut out[i * inner..(i + 1) * inner], &mut space);
    }
    out
}

/// Returns the number of rows that are widened at a time.
fn together(row: usize) -> usize {
    (BLOCK / row.max(1)).max(1)
}

/// Adds the sum of `n` rows to `out`. `space` has room for the rows that are widened at a time.
fn add_rows<T: Float>(x: &[T], n: usize, out: &mut [T::Wide], space: &mut [T::Wide]) {
    let inner = out.len();
    if n <= ROWS {
        for rows in x.chunks(together(inner) * inner.max(1)) {
            let rows = T::widened(rows, space);
            T::Wide::vectorized(|| {
                for row in rows.chunks_exact(inner) {
                    for (out, &x) in out.iter_mut().zip(row) {
                        *out += x;
                    }
                }
            });
        }
        return;
    }
    let (left, right) = x.split_at(half(n) * inner);
    let mut sum = Pooled::zeros(inner);
    add_rows(left, half(n), out, space);
    add_rows(right, n - half(n), &mut sum, space);
    for (out, sum) in out.iter_mut().zip(&*sum) {
        *out += *sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::vectorized;

    /// Returns slices of all lengths around the sizes of parts, sides and runs. They hold integers, whose sums are
    /// exact in any order.
    fn slices() -> impl Iterator<Item = Vec<f32>> {
        let lens = (0..100).chain([255, 256, 257, 271, 272, 273, 511, 512, 528, 529, 1000, 1025]);
        lens.map(|n| (0..n).map(|i| (i * 37 % 101) as f32 - 150.0).collect())
    }

    #[test]
    fn every_element_takes_part_once() {
        for x in slices() {
            let n = x.len();
            assert_eq!(sum(&x), x.iter().sum::<f32>(), "{n}");
            assert_eq!(vectorized(|| sum_of([&x], |[x]| x + 1.0)), x.iter().map(|x| x + 1.0).sum::<f32>(), "{n}");
            let want = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            assert_eq!(vectorized(|| largest(&x)), want, "{n}");
            let twice: Vec<f32> = x.iter().map(|x| 2.0 * x + 1.0).collect();
            let (mut to, mut same) = (vec![0.0; n], x.clone());
            vectorized(|| fill(Some(&x), &mut to, |x| 2.0 * x + 1.0));
            vectorized(|| fill(None, &mut same, |x| 2.0 * x + 1.0));
            assert!(to == twice && same == twice, "{n}");
        }
    }

    #[test]
    fn bits_are_the_same_without_vectors() {
        for x in slices() {
            let x: Vec<f32> = x.iter().map(|x| x.sin()).collect();
            let plain = sum_of([&x, &x], |[a, b]| a * b + b);
            assert_eq!(vectorized(|| sum_of([&x, &x], |[a, b]| a * b + b)).to_bits(), plain.to_bits(), "{}", x.len());
        }
    }

    #[test]
    fn long_sums_stay_near_the_exact_one() {
        let longest = if cfg!(miri) { 5000 } else { 1 << 20 };
        for n in [0, 1, 7, 128, 129, 1000, longest] {
            let x: Vec<f32> = (0..n).map(|i| 0.1 + (i % 7) as f32).collect();
            let exact: f64 = x.iter().map(|&x| x as f64).sum();
            // Each term takes part in at most RUN additions of a run and one for each of at most 12 halvings.
            let bound = (RUN + 12) as f64 * 2f64.powi(-24) * exact;
            assert!((sum(&x) as f64 - exact).abs() <= bound, "{n}");
            let columns: Vec<f32> = x.iter().flat_map(|&x| [x, -x, 2.0 * x]).collect();
            let sums = sum_middle(&columns, 1, n, 3);
            assert!((sums[0] as f64 - exact).abs() <= bound, "{n}");
            assert_eq!(sums[..], [sums[0], -sums[0], 2.0 * sums[0]]);
        }
    }
}
