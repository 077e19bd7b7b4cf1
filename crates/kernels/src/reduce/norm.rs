//! Normalization: rows of elements are shifted to mean 0 and scaled to variance 1, then scaled and shifted by
//! parameters.
//!
//! Each row is widened once and stays in cache until its results are rounded. The statistics take two passes, one for
//! the mean and one for the squared deviations from it, so that nothing cancels.

use std::{
    borrow::Cow,
    ops::Range,
    sync::atomic::{AtomicBool, Ordering},
};

use num_traits::{Float as _, One, Zero};

use super::{
    squares::{keeps_digits, magnitude, moments, power_below},
    sum::{replace, sum_middle, sum_of},
};
use crate::{
    elementwise::{Masked, Pointwise},
    float::{Float, Real},
    memory::{Pooled, uninit_vec, zeros},
    simd::Body,
    threads,
    threads::Shared,
};

/// Layout of a normalization: the elements that are normalized together, and the parameter of each element.
///
/// Row r consists of the segments `s * rows + r` of `segment` elements each, for s below `segments`: a layer norm's row
/// is one segment; a batch norm's row is a channel, with one segment in every image. Element j of a segment belongs to
/// parameter `r % groups * per_row + j / inner`.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// Number of rows.
    pub rows: usize,
    /// Segments of a row.
    pub segments: usize,
    /// Elements of a segment.
    pub segment: usize,
    /// Rows after which the parameters repeat.
    pub groups: usize,
    /// Parameters of a row.
    pub per_row: usize,
    /// Consecutive elements of one parameter.
    pub inner: usize,
}

impl Rows {
    /// Returns the number of elements of one row.
    pub fn len(&self) -> usize {
        self.segments * self.segment
    }

    /// Returns the number of parameters.
    pub fn params(&self) -> usize {
        self.groups * self.per_row
    }

    /// Returns whether every element of a segment has its own parameter.
    fn elementwise(&self) -> bool {
        self.inner == 1 && self.segments == 1
    }

    /// Returns the parameters of a row.
    fn own(&self, row: usize) -> Range<usize> {
        let first = row % self.groups.max(1) * self.per_row;
        first..first + self.per_row
    }

    /// Returns the start of a segment of a row.
    #[inline(always)]
    pub(super) fn start(&self, s: usize, row: usize) -> usize {
        (s * self.rows + row) * self.segment
    }

    /// Copies the elements of a row, widened, segment by segment.
    fn gather<T: Float>(&self, x: &[T], row: usize, to: &mut [T::Wide]) {
        for s in 0..self.segments {
            let start = self.start(s, row);
            T::widen_into(&x[start..start + self.segment], &mut to[s * self.segment..][..self.segment]);
        }
    }

    /// Copies the elements of a gradient as [`gather`](Rows::gather) does, with 0 where ReLU gave 0.
    fn gather_masked<T: Float>(&self, grad: &[T], kept: &[T], row: usize, to: &mut [T::Wide], space: &mut [T::Wide]) {
        for s in 0..self.segments {
            let start = self.start(s, row);
            let (part, to) = (start..start + self.segment, &mut to[s * self.segment..][..self.segment]);
            T::widen_into(&grad[part.clone()], to);
            T::Wide::vectorized(Mask { grad: to, kept: T::widened(&kept[part], space) });
        }
    }

    /// Rounds the elements of a gathered row and stores them in their segments.
    fn scatter<T: Float>(&self, x: &[T::Wide], row: usize, to: Shared<T>) {
        for s in 0..self.segments {
            let (start, len) = (self.start(s, row), self.segment);
            // SAFETY: rows have disjoint segments, and each row belongs to one thread.
            T::narrow_into(&x[s * len..][..len], unsafe { to.part(start, len) });
        }
    }

    /// Calls `f(elements, parameter)` for every part of a gathered row whose elements share a parameter.
    #[inline(always)]
    fn parts(&self, row: usize, mut f: impl FnMut(Range<usize>, usize)) {
        let first = self.own(row).start;
        if self.per_row == 1 {
            return f(0..self.len(), first);
        }
        for at in 0..self.len().checked_div(self.inner).unwrap_or(0) {
            f(at * self.inner..(at + 1) * self.inner, first + at % self.per_row);
        }
    }

    /// Returns the number of rows whose parameter gradients are summed together. Threads share whole blocks of this
    /// size.
    fn block(&self) -> usize {
        if self.groups > 1 { self.groups.div_ceil(8) } else { 64 }
    }

    /// Returns the approximate cost of a pass over all rows, in multiply-adds.
    pub(super) fn work(&self) -> usize {
        self.rows * self.len() * 8
    }
}

/// Part of a gradient, with the results of the ReLU that it goes back through.
struct Mask<'a, R> {
    grad: &'a mut [R],
    kept: &'a [R],
}

impl<R: Real> Body for Mask<'_, R> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        replace(self.grad, [self.kept], |grad, [kept]| Masked.at(&[grad, kept]));
    }
}

/// Returns the parameters of a row; a missing one is represented by `none`.
fn params<'a, R: Real>(params: Option<&'a [R]>, rows: &Rows, none: R) -> Cow<'a, [R]> {
    params.map_or_else(|| vec![none; rows.params()].into(), Cow::Borrowed)
}

/// Result of [`normalize`], and the statistics of each row.
pub struct Normalized<T: Float> {
    /// Normalized numbers.
    pub y: Pooled<T>,
    /// Mean of each row.
    pub means: Pooled<T::Wide>,
    /// Mean squared deviations from the mean: the biased variances.
    pub variances: Pooled<T::Wide>,
    /// `sqrt(variance + eps)`.
    pub deviations: Pooled<T::Wide>,
}

/// Computes `(x - mean) * (gamma / deviation) + beta`. This order gives the bits of MindSpore's CPU kernel. If each
/// element has its own gamma, there is one division per row instead: `(x - mean) * (1 / deviation) * gamma + beta`.
///
/// `given` holds means and variances, for [`Statistics::Given`]. The numbers of x may have fewer bits than the result.
pub fn normalize<X: Float<Wide = T::Wide>, T: Float>(
    rows: &Rows,
    statistics: Statistics,
    eps: f64,
    x: &[X],
    given: (Pooled<T::Wide>, Pooled<T::Wide>),
    gamma: Option<&[T::Wide]>,
    beta: Option<&[T::Wide]>,
) -> Normalized<T> {
    let (zero, one) = (T::Wide::zero(), T::Wide::one());
    let (gamma, beta) = (params(gamma, rows, one), params(beta, rows, zero));
    let eps = T::Wide::of(eps);
    let (mut means, mut variances) = match statistics {
        Statistics::Given => given,
        _ => (zeros(rows.rows), zeros(rows.rows)),
    };
    let (mut y, mut deviations) = (uninit_vec(x.len()), uninit_vec(rows.rows));
    let (to, to_means, to_variances) = (Shared::new(&mut y), Shared::new(&mut means), Shared::new(&mut variances));
    let to_deviations = Shared::new(&mut deviations);
    threads::split(rows.rows, 1, rows.work(), |some| {
        let mut x_row = Pooled::uninit(rows.len());
        for row in some {
            rows.gather(x, row, &mut x_row);
            // SAFETY: each row belongs to one thread.
            let (mean, variance) = unsafe { (&mut *to_means.at(row), &mut *to_variances.at(row)) };
            // SAFETY: each row belongs to one thread.
            let deviation = unsafe { &mut *to_deviations.at(row) };
            let (x, gamma, beta) = (&mut x_row[..], &gamma[..], &beta[..]);
            T::Wide::vectorized(RowForward { rows, statistics, eps, row, x, gamma, beta, mean, variance, deviation });
            rows.scatter(&x_row, row, to);
        }
    });
    Normalized { y, means, variances, deviations }
}

/// Returns mean, variance and deviation of each row, as [`normalize`] computes them; `None` if some row must be brought into
/// range.
pub fn statistics<X: Float>(rows: &Rows, eps: f64, x: &[X]) -> Option<[Pooled<X::Wide>; 3]> {
    let eps = X::Wide::of(eps);
    let all = [(); 3].map(|()| zeros(rows.rows));
    let [mut means, mut variances, mut deviations] = all;
    let (to_means, to_variances) = (Shared::new(&mut means), Shared::new(&mut variances));
    let to_deviations = Shared::new(&mut deviations);
    let is_in_range = AtomicBool::new(true);
    threads::split(rows.rows, 1, rows.work(), |some| {
        let mut space = Pooled::uninit(rows.len());
        for row in some {
            rows.gather(x, row, &mut space);
            let (mean, variance) = X::Wide::vectorized(RowStatistics { x: &space });
            if !keeps_digits(variance + eps, 1) {
                return is_in_range.store(false, Ordering::Relaxed);
            }
            // SAFETY: each row belongs to one thread.
            unsafe {
                (*to_means.at(row), *to_variances.at(row)) = (mean, variance);
                *to_deviations.at(row) = (variance + eps).sqrt();
            }
        }
    });
    is_in_range.into_inner().then_some([means, variances, deviations])
}

/// Mean and variance of one gathered row.
struct RowStatistics<'a, R> {
    x: &'a [R],
}

impl<R: Real> Body for RowStatistics<'_, R> {
    type Output = (R, R);
    #[inline(always)]
    fn run(self) -> (R, R) {
        Statistics::Moments.of(self.x)
    }
}

/// One gathered row of [`normalize`].
struct RowForward<'a, R> {
    rows: &'a Rows,
    statistics: Statistics,
    eps: R,
    row: usize,
    x: &'a mut [R],
    gamma: &'a [R],
    beta: &'a [R],
    mean: &'a mut R,
    variance: &'a mut R,
    deviation: &'a mut R,
}

impl<R: Real> Body for RowForward<'_, R> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let RowForward { rows, statistics, eps, row, x, gamma, beta, mean, variance, deviation } = self;
        let (mut mean_x, mut variance_x, mut scale) = (*mean, *variance, R::one());
        if statistics != Statistics::Given {
            (mean_x, variance_x) = statistics.of(x);
            if !keeps_digits(variance_x + eps, 1) {
                scale = bring_into_range(x, eps);
                (mean_x, variance_x) = statistics.of(x);
            }
            (*mean, *variance) = (mean_x * scale, variance_x * scale * scale);
        }
        let deviation_x = (variance_x + eps / scale / scale).sqrt();
        *deviation = deviation_x * scale;
        let (mean, deviation) = (mean_x, deviation_x);
        if rows.elementwise() {
            let (own, rstd) = (rows.own(row), deviation.recip());
            replace(x, [&gamma[own.clone()], &beta[own]], |x, [gamma, beta]| (x - mean) * rstd * gamma + beta);
        } else {
            rows.parts(row, |at, i| {
                let (scale, beta) = (gamma[i] / deviation, beta[i]);
                x[at].iter_mut().for_each(|x| *x = (*x - mean) * scale + beta);
            });
        }
    }
}

/// Divides a row whose squares overflow or underflow by a power of two, which changes no digit of the result. Returns
/// the power.
#[cold]
fn bring_into_range<R: Real>(x: &mut [R], eps: R) -> R {
    let scale = magnitude(x).map_or(R::one(), |power| power.max(power_below(eps.sqrt())));
    divide(x, scale);
    scale
}

/// Divides each element by a power of two, unless that is 1.
#[inline(always)]
fn divide<R: Real>(x: &mut [R], scale: R) {
    if scale != R::one() {
        x.iter_mut().for_each(|x| *x = *x / scale);
    }
}

/// Returns the power of two by which a row and its deviation are divided in the backward pass: 1 unless the deviation
/// is so small or so large that its reciprocal loses digits.
fn scale_of<R: Real>(deviation: R) -> R {
    let least = R::min_positive_value().sqrt();
    let usual = deviation >= least && deviation <= least.recip();
    if usual || deviation == R::zero() || !deviation.is_finite() { R::one() } else { power_below(deviation) }
}

/// Gradients of [`normalize`].
pub struct Gradients<T: Float> {
    /// Gradient of the input.
    pub x: Pooled<T>,
    /// Gradient of the factors.
    pub gamma: Pooled<T::Wide>,
    /// Gradient of the addends.
    pub beta: Pooled<T::Wide>,
}

/// Source of the statistics, which determines how they depend on x.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistics {
    /// Mean and variance of the rows themselves.
    Moments,
    /// Mean square of the rows themselves, without a mean.
    MeanSquare,
    /// Numbers that do not depend on x.
    Given,
}

impl Statistics {
    /// Returns the mean of a row and its mean squared deviation from it; a missing mean is 0.
    #[inline(always)]
    fn of<R: Real>(self, x: &[R]) -> (R, R) {
        let len = R::of(x.len() as f64);
        let (mean, squares) = match self {
            Statistics::Moments => moments(x),
            _ => (R::zero(), sum_of([x], |[x]| x * x)),
        };
        (mean, squares / len)
    }
}

/// Computes the gradients of [`normalize`]. With `rstd = 1 / deviation`, `n = (x - mean) * rstd` and
/// `g = grad * gamma`, the gradient of x is `rstd * (g - mean(g) - n * mean(g * n))`; the last two terms come from the
/// mean and the deviation, if those depend on x (S. Ioffe, C. Szegedy, "Batch normalization", 2015, section 3). `kept` is
/// the result of a ReLU between the norm and the gradient.
pub fn backward<X: Float<Wide = T::Wide>, T: Float>(
    rows: &Rows,
    statistics: Statistics,
    x: &[X],
    means: &[T::Wide],
    deviations: &[T::Wide],
    gamma: Option<&[T::Wide]>,
    (grad, kept): (&[X], Option<&[X]>),
) -> Gradients<T> {
    let one = T::Wide::one();
    let (count, block) = (rows.params(), rows.block());
    let gamma = params(gamma, rows, one);
    let mut to_x = uninit_vec(x.len());
    // Gradients of gamma and beta for each block of rows.
    let blocks = rows.rows.div_ceil(block);
    let (mut to_gamma, mut to_beta) = (zeros(blocks * count), zeros(blocks * count));
    let (to, gammas, betas) = (Shared::new(&mut to_x), Shared::new(&mut to_gamma), Shared::new(&mut to_beta));
    threads::split(rows.rows, block, 2 * rows.work(), |some| {
        let (mut x_row, mut grad_row) = (Pooled::uninit(rows.len()), Pooled::uninit(rows.len()));
        let mut space = Pooled::uninit(if kept.is_some() { rows.segment } else { 0 });
        for row in some {
            rows.gather(x, row, &mut x_row);
            match kept {
                None => rows.gather(grad, row, &mut grad_row),
                Some(kept) => rows.gather_masked(grad, kept, row, &mut grad_row, &mut space),
            }
            let at = row / block * count;
            // SAFETY: each block belongs to one thread, and so do its gradients.
            let to_gamma = unsafe { gammas.part(at, count) };
            // SAFETY: as for `to_gamma`.
            let to_beta = unsafe { betas.part(at, count) };
            let scale = scale_of(deviations[row]);
            let (mean, rstd) = (means[row] / scale, (deviations[row] / scale).recip());
            let (x, grad, gamma) = (&mut x_row[..], &grad_row[..], &gamma[..]);
            divide(x, scale);
            T::Wide::vectorized(RowBackward { rows, statistics, row, x, mean, rstd, grad, gamma, to_gamma, to_beta });
            divide(&mut x_row, scale);
            rows.scatter(&x_row, row, to);
        }
    });
    let over_blocks = |parts: Pooled<T::Wide>| if blocks == 1 { parts } else { sum_middle(&parts, 1, blocks, count) };
    Gradients { x: to_x, gamma: over_blocks(to_gamma), beta: over_blocks(to_beta) }
}

/// One gathered row of [`backward`]. Its gradient replaces x; those of the parameters are added.
struct RowBackward<'a, R> {
    rows: &'a Rows,
    statistics: Statistics,
    row: usize,
    x: &'a mut [R],
    mean: R,
    rstd: R,
    grad: &'a [R],
    gamma: &'a [R],
    to_gamma: &'a mut [R],
    to_beta: &'a mut [R],
}

impl<R: Real> Body for RowBackward<'_, R> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let RowBackward { rows, statistics, row, x, mean, rstd, grad, gamma, to_gamma, to_beta } = self;
        let (zero, len) = (R::zero(), R::of(x.len() as f64));
        x.iter_mut().for_each(|x| *x = (*x - mean) * rstd);
        let (sum_g, sum_gn);
        let own = rows.own(row);
        if rows.elementwise() {
            let gamma = &gamma[own.clone()];
            sum_g = sum_of([grad, gamma], |[grad, gamma]| grad * gamma);
            sum_gn = sum_of([grad, gamma, &*x], |[grad, gamma, n]| grad * gamma * n);
            replace(&mut to_beta[own.clone()], [grad], |to, [grad]| to + grad);
            replace(&mut to_gamma[own.clone()], [grad, &*x], |to, [grad, n]| to + grad * n);
        } else {
            let (mut each_g, mut each_gn) = (0.0, 0.0);
            rows.parts(row, |at, i| {
                let sum = sum_of([&grad[at.clone()]], |[grad]| grad);
                let sum_n = sum_of([&grad[at.clone()], &x[at]], |[grad, n]| grad * n);
                to_gamma[i] += sum_n;
                to_beta[i] += sum;
                each_g += (sum * gamma[i]).as_f64();
                each_gn += (sum_n * gamma[i]).as_f64();
            });
            (sum_g, sum_gn) = (R::of(each_g), R::of(each_gn));
        }
        let (mean_g, mean_gn) = match statistics {
            Statistics::Moments => (sum_g / len, sum_gn / len),
            Statistics::MeanSquare => (zero, sum_gn / len),
            Statistics::Given => (zero, zero),
        };
        let to_x = |n: R, g: R| rstd * (g - mean_g - n * mean_gn);
        if rows.elementwise() {
            replace(x, [grad, &gamma[own]], |x, [grad, gamma]| to_x(x, grad * gamma));
        } else {
            rows.parts(row, |at, i| {
                let gamma = gamma[i];
                replace(&mut x[at.clone()], [&grad[at]], |x, [grad]| to_x(x, grad * gamma));
            });
        }
    }
}

/// Computes the gradients of a given mean and variance from those of gamma and beta; each row has one parameter.
pub fn given_gradients<R: Real>(
    deviations: &[R],
    gamma: Option<&[R]>,
    to_gamma: &[R],
    to_beta: &[R],
) -> (Vec<R>, Vec<R>) {
    let scale = |row: usize| gamma.map_or(R::one(), |gamma| gamma[row]) / deviations[row];
    let mean = (0..deviations.len()).map(|row| -scale(row) * to_beta[row]).collect();
    let half = R::of(-0.5);
    let variance = (0..deviations.len()).map(|row| half * scale(row) / deviations[row] * to_gamma[row]).collect();
    (mean, variance)
}
