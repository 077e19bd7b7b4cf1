//! Normalisation: rows of elements are shifted to mean 0 and scaled to variance 1, then scaled and shifted by parameters.
//!
//! All slices are wide; the callers widen before and round once after. Statistics take two passes, the mean and then the
//! squared deviations from it, so that they do not cancel.

use super::simd::vectorized;
use crate::dtype::Real;

/// Which elements are normalised together, and which parameter belongs to each of them.
///
/// Row r is the segments `s * rows + r` of `segment` elements each, for s below `segments`: a layer norm's row is one
/// segment; a batch norm's row is a channel, with one segment in every image. Element j of a segment belongs to parameter
/// `r % groups * per_row + j / inner`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    pub rows: usize,
    pub segments: usize,
    pub segment: usize,
    pub groups: usize,
    pub per_row: usize,
    pub inner: usize,
}

impl Rows {
    /// Elements of one row.
    pub fn len(&self) -> usize {
        self.segments * self.segment
    }

    /// How many parameters there are.
    pub fn params(&self) -> usize {
        self.groups * self.per_row
    }

    /// Where the segments of a row begin.
    fn starts(&self, row: usize) -> impl Iterator<Item = usize> {
        let Rows { rows, segments, segment, .. } = *self;
        (0..segments).map(move |s| (s * rows + row) * segment)
    }

    /// Calls `f(elements, parameter)` for every stretch of a row's elements that share a parameter.
    fn stretches(&self, row: usize, mut f: impl FnMut(std::ops::Range<usize>, usize)) {
        let first = row % self.groups.max(1) * self.per_row;
        for start in self.starts(row) {
            for i in 0..self.segment.checked_div(self.inner).unwrap_or(0) {
                let start = start + i * self.inner;
                f(start..start + self.inner, first + i);
            }
        }
    }
}

/// The sum of `f(x)`. Sixteen partial sums side by side: the order is fixed, the error grows slowly, the loop vectorises.
fn sum_of<R: Real>(x: &[R], f: impl Fn(R) -> R) -> R {
    let mut lanes = [R::zero(); 16];
    vectorized(|| {
        let chunks = x.chunks_exact(16);
        let rest = chunks.remainder();
        for chunk in chunks {
            lanes.iter_mut().zip(chunk).for_each(|(lane, &x)| *lane += f(x));
        }
        lanes.iter_mut().zip(rest).for_each(|(lane, &x)| *lane += f(x));
    });
    lanes.into_iter().sum()
}

/// The sums of `y` and of `y * f(x)`, as [`sum_of`] adds.
fn sums_of<R: Real>(x: &[R], y: &[R], f: impl Fn(R) -> R) -> (R, R) {
    if x.len() < 16 {
        // The same order without the lanes: a layer norm's parameters have one element each.
        return x.iter().zip(y).fold((R::zero(), R::zero()), |(s, w), (&x, &y)| (s + y, w + y * f(x)));
    }
    let (mut plain, mut weighted) = ([R::zero(); 16], [R::zero(); 16]);
    vectorized(|| {
        for (x, y) in x.chunks(16).zip(y.chunks(16)) {
            for (((plain, weighted), &x), &y) in plain.iter_mut().zip(&mut weighted).zip(x).zip(y) {
                *plain += y;
                *weighted += y * f(x);
            }
        }
    });
    (plain.into_iter().sum(), weighted.into_iter().sum())
}

/// Mean and mean squared deviation from it (the biased variance) of each row; `centered` is false where 0 takes the
/// mean's place.
pub(crate) fn moments<R: Real>(rows: &Rows, x: &[R], centered: bool) -> (Vec<R>, Vec<R>) {
    let len = R::of(rows.len() as f64);
    let each = |row: usize| rows.starts(row).map(|start| &x[start..start + rows.segment]);
    let means: Vec<R> = match centered {
        true => (0..rows.rows).map(|row| each(row).map(|x| sum_of(x, |x| x)).sum::<R>() / len).collect(),
        false => vec![R::zero(); rows.rows],
    };
    let square = |mean: R| move |x: R| (x - mean) * (x - mean);
    let variance = |row: usize| each(row).map(|x| sum_of(x, square(means[row]))).sum::<R>() / len;
    let variances = (0..rows.rows).map(variance).collect();
    (means, variances)
}

/// `sqrt(variance + eps)`.
pub(crate) fn deviations<R: Real>(variances: &[R], eps: f64) -> Vec<R> {
    variances.iter().map(|&v| (v + R::of(eps)).sqrt()).collect()
}

/// A parameter, or what stands for it when there is none.
fn param<R: Real>(params: Option<&[R]>, i: usize, none: R) -> R {
    params.map_or(none, |params| params[i])
}

/// `(x - mean) * (gamma / deviation) + beta`: in this order MindSpore's CPU kernel gives the same bits.
pub(crate) fn normalize<R: Real>(
    rows: &Rows,
    x: &[R],
    means: &[R],
    deviations: &[R],
    gamma: Option<&[R]>,
    beta: Option<&[R]>,
) -> Vec<R> {
    let mut out = x.to_vec();
    for (row, (&mean, &deviation)) in means.iter().zip(deviations).enumerate() {
        rows.stretches(row, |at, i| {
            let (scale, beta) = (param(gamma, i, R::one()) / deviation, param(beta, i, R::zero()));
            out[at].iter_mut().for_each(|x| *x = (*x - mean) * scale + beta);
        });
    }
    out
}

/// What flows back through [`normalize`].
pub(crate) struct Gradients<R> {
    pub x: Vec<R>,
    pub gamma: Vec<R>,
    pub beta: Vec<R>,
}

/// How the statistics depend on x, and so how the gradient of x is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Statistics {
    /// Mean and variance of the rows themselves.
    Moments,
    /// The mean square of the rows themselves; there is no mean.
    MeanSquare,
    /// They are given.
    Given,
}

/// The gradients of [`normalize`]. With `rstd = 1 / deviation`, `n = (x - mean) * rstd` and `g = grad * gamma`, the gradient of x is
/// `rstd * (g - mean(g) - n * mean(g * n))`; the last two terms come from the mean and the deviation, where those depend
/// on x (S. Ioffe, C. Szegedy, "Batch normalization", 2015, section 3).
pub(crate) fn backward<R: Real>(
    rows: &Rows,
    statistics: Statistics,
    x: &[R],
    means: &[R],
    deviations: &[R],
    gamma: Option<&[R]>,
    grad: &[R],
) -> Gradients<R> {
    let len = R::of(rows.len() as f64);
    let mut to = Gradients {
        x: vec![R::zero(); x.len()],
        gamma: vec![R::zero(); rows.params()],
        beta: vec![R::zero(); rows.params()],
    };
    for (row, (&mean, &deviation)) in means.iter().zip(deviations).enumerate() {
        let rstd = deviation.recip();
        let (mut sum_g, mut sum_gn) = (R::zero(), R::zero());
        rows.stretches(row, |at, i| {
            let (sum, sum_n) = sums_of(&x[at.clone()], &grad[at], |x| (x - mean) * rstd);
            to.gamma[i] += sum_n;
            to.beta[i] += sum;
            let gamma = param(gamma, i, R::one());
            sum_g += sum * gamma;
            sum_gn += sum_n * gamma;
        });
        let (mean_g, mean_gn) = match statistics {
            Statistics::Moments => (sum_g / len, sum_gn / len),
            Statistics::MeanSquare => (R::zero(), sum_gn / len),
            Statistics::Given => (R::zero(), R::zero()),
        };
        rows.stretches(row, |at, i| {
            let gamma = param(gamma, i, R::one());
            for ((to, &x), &grad) in to.x[at.clone()].iter_mut().zip(&x[at.clone()]).zip(&grad[at]) {
                *to = rstd * (grad * gamma - mean_g - (x - mean) * rstd * mean_gn);
            }
        });
    }
    to
}

/// The gradients of a given mean and variance, from those of gamma and beta: each row has one parameter.
pub(crate) fn given_gradients<R: Real>(
    deviations: &[R],
    gamma: Option<&[R]>,
    to_gamma: &[R],
    to_beta: &[R],
) -> (Vec<R>, Vec<R>) {
    let scale = |row: usize| param(gamma, row, R::one()) / deviations[row];
    let mean = (0..deviations.len()).map(|row| -scale(row) * to_beta[row]).collect();
    let half = R::of(-0.5);
    let variance = (0..deviations.len()).map(|row| half * scale(row) / deviations[row] * to_gamma[row]).collect();
    (mean, variance)
}
