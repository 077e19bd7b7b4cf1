//! Sums in a fixed pairwise order, and the other reductions of a lane.

use super::{
    buffers::{Lent, lend, zeros},
    elementwise::{BLOCK, Kept},
    lanes::Along,
    simd::vectorized,
};
use crate::dtype::{Element, Float, Real};

/// Up to so many terms are added in one run; longer sums are halved, so that the error grows with the logarithm of the
/// length (N. Higham, "The accuracy of floating point summation", 1993).
const RUN: usize = 256;

/// Where a sum of more than [`RUN`] terms is halved.
fn half(n: usize) -> usize {
    (n / 2).next_multiple_of(RUN)
}

/// Running results side by side, so that none needs to wait for another.
const SIDE: usize = 64;

/// Elements that are computed together at the end of a lane: none by itself.
const PART: usize = 16;

/// The sum, in an order that depends on nothing but the length.
pub(crate) fn sum<R: Real>(x: &[R]) -> R {
    vectorized(|| sum_of([x], |[x]| x))
}

/// The sum of `f` over slices of one length: runs of [`RUN`] terms (the last takes up to [`PART`] more, so that few terms
/// are no run of their own), whose sums are added pairwise. To be called where loops are [`vectorized`].
#[inline(always)]
pub(crate) fn sum_of<R: Real, const N: usize>(x: [&[R]; N], f: impl Fn([R; N]) -> R + Copy) -> R {
    let len = x[0].len();
    if len <= RUN + PART {
        return sum_of_run(x, f);
    }
    // The sum of 2^level runs waits there for its neighbour.
    let mut waiting = [R::zero(); usize::BITS as usize];
    let runs = (len - PART).div_ceil(RUN);
    for run in 0..runs {
        let mut sum = sum_of_run(x.map(|x| &x[run * RUN..if run + 1 < runs { (run + 1) * RUN } else { len }]), f);
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
fn sum_of_run<R: Real, const N: usize>(x: [&[R]; N], f: impl Fn([R; N]) -> R) -> R {
    fold(x, R::zero(), f, |a, b| a + b)
}

/// The largest element that is no NaN, minus infinity if there is none. To be called where loops are [`vectorized`].
#[inline(always)]
pub(crate) fn largest<R: Real>(x: &[R]) -> R {
    fold([x], R::neg_infinity(), |[x]| x, |best, x| if x > best { x } else { best })
}

/// `f` over slices of one length, folded into [`SIDE`] results side by side, and those by halves. The loops are plain ones
/// over whole arrays, and the rest has an array of its own: so the results stay in vector registers.
#[inline(always)]
fn fold<R: Real, const N: usize>(x: [&[R]; N], start: R, f: impl Fn([R; N]) -> R, join: impl Fn(R, R) -> R) -> R {
    let len = x[0].len();
    if len <= PART {
        let mut results = last_folded(x, start, &f, &join);
        halve::<R, PART, 8>(&mut results, &join);
        halve::<R, PART, 4>(&mut results, &join);
        halve::<R, PART, 2>(&mut results, &join);
        halve::<R, PART, 1>(&mut results, &join);
        return results[0];
    }
    let mut results = [start; SIDE];
    let whole = len / SIDE * SIDE;
    for at in (0..whole).step_by(SIDE) {
        let x = x.map(|x| &x[at..at + SIDE]);
        let mut part = [start; SIDE];
        for i in 0..SIDE {
            part[i] = f(x.map(|x| x[i]));
        }
        for i in 0..SIDE {
            results[i] = join(results[i], part[i]);
        }
    }
    if whole < len {
        let mut rest = [start; SIDE];
        let parts = len / PART * PART;
        for at in (whole..parts).step_by(PART) {
            let x = x.map(|x| &x[at..at + PART]);
            for i in 0..PART {
                rest[at - whole + i] = f(x.map(|x| x[i]));
            }
        }
        if parts < len {
            rest[parts - whole..][..PART].copy_from_slice(&last_folded(x, start, &f, &join));
        }
        for i in 0..SIDE {
            results[i] = join(results[i], rest[i]);
        }
    }
    halve::<R, SIDE, 32>(&mut results, &join);
    halve::<R, SIDE, 16>(&mut results, &join);
    halve::<R, SIDE, 8>(&mut results, &join);
    halve::<R, SIDE, 4>(&mut results, &join);
    halve::<R, SIDE, 2>(&mut results, &join);
    halve::<R, SIDE, 1>(&mut results, &join);
    results[0]
}

/// `f` of what is left after all whole [`PART`]s, at the end of the [`last_part`]s if these are full.
#[inline(always)]
fn last_folded<R: Real, const N: usize>(
    x: [&[R]; N],
    start: R,
    f: impl Fn([R; N]) -> R,
    join: impl Fn(R, R) -> R,
) -> [R; PART] {
    let len = x[0].len();
    let new = if len <= PART { 0..len } else { PART - len % PART..PART };
    let (x, mut results) = (x.map(last_part), [start; PART]);
    for i in 0..PART {
        let value = join(start, f(x.map(|x| x[i])));
        results[i] = if new.contains(&i) { value } else { start };
    }
    results
}

/// Joins the second `HALF` results to the first. A loop over all halves would not be compiled for vectors.
#[inline(always)]
fn halve<R: Real, const ALL: usize, const HALF: usize>(results: &mut [R; ALL], join: impl Fn(R, R) -> R) {
    for i in 0..HALF {
        results[i] = join(results[i], results[i + HALF]);
    }
}

/// The last [`PART`] elements; as many as there are and zeros where there are fewer.
#[inline(always)]
fn last_part<R: Real>(x: &[R]) -> [R; PART] {
    x.last_chunk().copied().unwrap_or_else(|| {
        let mut part = [R::zero(); PART];
        part[..x.len()].copy_from_slice(x);
        part
    })
}

/// Fills `y` with `f` of `x`, or of what it was where there is no `x`. To be called where loops are [`vectorized`].
#[inline(always)]
pub(crate) fn fill<R: Real>(x: Option<&[R]>, y: &mut [R], f: impl Fn(R) -> R) {
    let (len, whole) = (y.len(), y.len() / PART * PART);
    // Part of it is filled twice, from what was there before.
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

/// Sums over the middle axis of `outer x n x inner`, not yet rounded.
pub(crate) fn sum_middle<T: Float>(x: &[T], outer: usize, n: usize, inner: usize) -> Vec<T::Wide> {
    let row = if inner == 1 { n } else { inner };
    // Where nothing is to be widened, there is no need of space.
    let mut space = lend(if T::DTYPE == T::Wide::DTYPE { 0 } else { together(row) * row });
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

/// Rows that are widened at a time.
fn together(row: usize) -> usize {
    (BLOCK / row.max(1)).max(1)
}

/// Adds the sum of `n` rows to `out`; `space` has room for those that are widened at a time.
fn add_rows<T: Float>(x: &[T], n: usize, out: &mut [T::Wide], space: &mut [T::Wide]) {
    let inner = out.len();
    if n <= RUN {
        for rows in x.chunks(together(inner) * inner.max(1)) {
            let rows = T::widened(rows, space);
            vectorized(|| {
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
    let mut sum = Lent::from(zeros(inner));
    add_rows(left, half(n), out, space);
    add_rows(right, n - half(n), &mut sum, space);
    for (out, sum) in out.iter_mut().zip(&*sum) {
        *out += *sum;
    }
}

fn mean<R: Real>(x: &[R]) -> R {
    sum(x) / R::of(x.len() as f64)
}

/// The largest (or smallest) element, NaN if there is one. The gradient is shared equally among those that are equal.
#[derive(Clone, Copy)]
pub(crate) struct Extreme {
    pub largest: bool,
}

impl Extreme {
    fn of<R: Real>(self, x: &[R]) -> R {
        let better = |a: R, b: R| if self.largest { a > b } else { a < b };
        x.iter().copied().reduce(|m, x| if better(x, m) || x.is_nan() { x } else { m }).unwrap_or(R::nan())
    }
}

/// Gives `dy` in equal parts to the elements that are chosen.
fn share<R: Real>(x: &[R], chosen: impl Fn(R) -> bool, dy: impl Fn(R) -> R, dx: &mut [R]) {
    let count = R::of(x.iter().filter(|&&x| chosen(x)).count() as f64);
    for (dx, &x) in dx.iter_mut().zip(x) {
        *dx = if chosen(x) { dy(x) / count } else { R::zero() };
    }
}

impl Along for Extreme {
    const KEPT: Kept = Kept::Input;
    const REDUCES: bool = true;
    fn value<R: Real>(self, x: &[R], y: &mut [R]) {
        y[0] = self.of(x);
    }
    fn back<R: Real>(self, x: &[R], dy: &[R], dx: &mut [R]) {
        let y = self.of(x);
        share(x, |x| x == y || (x.is_nan() && y.is_nan()), |_| dy[0], dx);
    }
}

/// The product.
#[derive(Clone, Copy)]
pub(crate) struct Product;

impl Along for Product {
    const KEPT: Kept = Kept::Input;
    const REDUCES: bool = true;
    fn value<R: Real>(self, x: &[R], y: &mut [R]) {
        y[0] = x.iter().fold(R::one(), |p, &x| p * x);
    }
    /// The product of the others, from both ends: right with zeros, where y / x is not.
    fn back<R: Real>(self, x: &[R], dy: &[R], dx: &mut [R]) {
        let mut before = dy[0];
        for (dx, &x) in dx.iter_mut().zip(x) {
            *dx = before;
            before = before * x;
        }
        let mut after = R::one();
        for (dx, &x) in dx.iter_mut().zip(x).rev() {
            *dx = *dx * after;
            after = after * x;
        }
    }
}

/// The sum of squared deviations from the mean over `n - correction`, by two passes.
#[derive(Clone, Copy)]
pub(crate) struct Variance {
    pub correction: usize,
}

impl Variance {
    fn freedom<R: Real>(self, n: usize) -> R {
        R::of(n.saturating_sub(self.correction) as f64)
    }
}

impl Along for Variance {
    const KEPT: Kept = Kept::Input;
    const REDUCES: bool = true;
    fn value<R: Real>(self, x: &[R], y: &mut [R]) {
        let m = mean(x);
        y[0] = vectorized(|| sum_of([x], |[x]| (x - m) * (x - m))) / self.freedom(x.len());
    }
    fn back<R: Real>(self, x: &[R], dy: &[R], dx: &mut [R]) {
        let m = mean(x);
        let scale = R::of(2.0) * dy[0] / self.freedom(x.len());
        for (dx, &x) in dx.iter_mut().zip(x) {
            *dx = scale * (x - m);
        }
    }
}

/// The square root of the variance. The gradient is 0 where the variance is, and so infinite nowhere: a feature that is
/// constant over a batch should not spoil a step.
#[derive(Clone, Copy)]
pub(crate) struct Deviation(pub Variance);

impl Along for Deviation {
    const KEPT: Kept = Kept::Input;
    const REDUCES: bool = true;
    fn value<R: Real>(self, x: &[R], y: &mut [R]) {
        self.0.value(x, y);
        y[0] = y[0].sqrt();
    }
    fn back<R: Real>(self, x: &[R], dy: &[R], dx: &mut [R]) {
        let mut y = [R::zero()];
        self.value(x, &mut y);
        if y[0] == R::zero() {
            dx.fill(R::zero());
        } else {
            self.0.back(x, &[dy[0] / (R::of(2.0) * y[0])], dx);
        }
    }
}

/// `(sum |x|^p)^(1/p)`; the largest |x| when p is infinite. The gradient is 0 where the norm is.
#[derive(Clone, Copy)]
pub(crate) struct PNorm {
    pub p: f64,
}

impl PNorm {
    fn of<R: Real>(self, x: &[R]) -> R {
        let largest = Extreme { largest: true }.of(&x.iter().map(|x| x.abs()).collect::<Vec<R>>());
        let sum_of = |f: &dyn Fn(R) -> R| sum(&x.iter().map(|&x| f(x)).collect::<Vec<R>>());
        if x.is_empty() {
            R::zero()
        } else if self.p.is_infinite() || largest == R::zero() || !largest.is_finite() {
            largest
        } else if self.p == 1.0 {
            sum_of(&|x| x.abs())
        } else if self.p == 2.0 {
            sum_of(&|x| x * x).sqrt()
        } else {
            // Relative to the largest, so that no power overflows.
            let p = R::of(self.p);
            largest * sum_of(&|x| (x.abs() / largest).powf(p)).powf(p.recip())
        }
    }
}

impl Along for PNorm {
    const KEPT: Kept = Kept::Input;
    const REDUCES: bool = true;
    fn value<R: Real>(self, x: &[R], y: &mut [R]) {
        y[0] = self.of(x);
    }
    fn back<R: Real>(self, x: &[R], dy: &[R], dx: &mut [R]) {
        let y = self.of(x);
        let sign = |x: R| if x == R::zero() { x } else { x.signum() };
        if y == R::zero() {
            dx.fill(R::zero());
        } else if self.p.is_infinite() {
            share(x, |x| x.abs() == y || (x.is_nan() && y.is_nan()), |x| dy[0] * sign(x), dx);
        } else {
            let power = R::of(self.p - 1.0);
            for (dx, &x) in dx.iter_mut().zip(x) {
                let ratio = (x.abs() / y).powf(power);
                // 0 to a negative power is infinite; the subgradient taken there is 0.
                *dx = if x == R::zero() { x } else { dy[0] * sign(x) * ratio };
            }
        }
    }
}

/// The sums of the first 1, 2, ... elements.
#[derive(Clone, Copy)]
pub(crate) struct RunningSum;

impl Along for RunningSum {
    const KEPT: Kept = Kept::Nothing;
    const REDUCES: bool = false;
    fn value<R: Real>(self, x: &[R], y: &mut [R]) {
        let mut sum = R::zero();
        for (y, &x) in y.iter_mut().zip(x) {
            sum += x;
            *y = sum;
        }
    }
    fn back<R: Real>(self, _kept: &[R], dy: &[R], dx: &mut [R]) {
        let mut sum = R::zero();
        for (dx, &dy) in dx.iter_mut().zip(dy).rev() {
            sum += dy;
            *dx = sum;
        }
    }
}

/// The products of the first 1, 2, ... elements.
#[derive(Clone, Copy)]
pub(crate) struct RunningProduct;

impl Along for RunningProduct {
    const KEPT: Kept = Kept::Input;
    const REDUCES: bool = false;
    fn value<R: Real>(self, x: &[R], y: &mut [R]) {
        let mut product = R::one();
        for (y, &x) in y.iter_mut().zip(x) {
            product = product * x;
            *y = product;
        }
    }
    /// What is before an element times what the products from it on bring, without it: right with zeros, where dividing
    /// by it is not.
    fn back<R: Real>(self, x: &[R], dy: &[R], dx: &mut [R]) {
        let mut after = R::zero();
        for i in (0..x.len()).rev() {
            after = dy[i] + x.get(i + 1).map_or(R::zero(), |&x| x * after);
            dx[i] = after;
        }
        let mut before = R::one();
        for (dx, &x) in dx.iter_mut().zip(x) {
            *dx = *dx * before;
            before = before * x;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All lengths around the sizes of parts, sides and runs: whole numbers, whose sums are exact in any order.
    fn lanes() -> impl Iterator<Item = Vec<f32>> {
        let lens = (0..100).chain([255, 256, 257, 271, 272, 273, 511, 512, 528, 529, 1000, 1025]);
        lens.map(|n| (0..n).map(|i| (i * 37 % 101) as f32 - 150.0).collect())
    }

    #[test]
    fn every_element_takes_part_once() {
        for x in lanes() {
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
        for x in lanes() {
            let x: Vec<f32> = x.iter().map(|x| x.sin()).collect();
            let plain = sum_of([&x, &x], |[a, b]| a * b + b);
            assert_eq!(vectorized(|| sum_of([&x, &x], |[a, b]| a * b + b)).to_bits(), plain.to_bits(), "{}", x.len());
        }
    }

    #[test]
    fn long_sums_stay_near_the_exact_one() {
        for n in [0, 1, 7, 128, 129, 1000, 1 << 20] {
            let x: Vec<f32> = (0..n).map(|i| 0.1 + (i % 7) as f32).collect();
            let exact: f64 = x.iter().map(|&x| x as f64).sum();
            // Each term takes part in at most RUN additions of a run and one for each of at most 12 halvings.
            let bound = (RUN + 12) as f64 * 2f64.powi(-24) * exact;
            assert!((sum(&x) as f64 - exact).abs() <= bound, "{n}");
            let columns: Vec<f32> = x.iter().flat_map(|&x| [x, -x, 2.0 * x]).collect();
            let sums = sum_middle(&columns, 1, n, 3);
            assert!((sums[0] as f64 - exact).abs() <= bound, "{n}");
            assert_eq!(sums, [sums[0], -sums[0], 2.0 * sums[0]]);
        }
    }
}
