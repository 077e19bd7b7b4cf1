//! Adafactor.

use std::ops::Range;

use precast_kernels::{
    reduce::{Squares, sum_of},
    simd::vectorized,
    threads,
    update::{MOMENTS, Multiplied, Values, square_sums_of_columns, squares_by_parts},
};

use super::{
    rule::{Kept, Number, Rule, Step, Whole},
    trained::{Trained, optimizer},
};
use crate::options::options;

/// Adafactor, in the form of `torch.optim.Adafactor`: Adam without a first average, with the second average of a matrix
/// stored as one number per row and column. A tensor with more axes is a stack of matrices along its last two. At
/// update t of a matrix:
///
/// ```text
/// rho = min(lr, 1 / sqrt(t)),  alpha = max(eps2, rms(p)) * rho,  b = t^beta2_decay
/// p = p - lr * weight_decay * p
/// R = R + b * (mean over columns of grad * grad - R)      one number for each row
/// C = C + b * (mean over rows of grad * grad - C)         one number for each column
/// V = R * C / max(mean(R), eps1)                          of a vector: V = V + b * (grad * grad - V)
/// U = grad / sqrt(max(V, eps1 * eps1))
/// p = p - alpha * U / max(1, rms(U) / d)
/// ```
///
/// Source: Shazeer and Stern 2018, "Adafactor", algorithms 4 and 5, in the form and order of operations of
/// <https://docs.pytorch.org/docs/stable/generated/torch.optim.Adafactor.html>.
#[derive(Clone, Debug)]
pub struct Adafactor(Trained<AdafactorOptions>);

/// Options of [`Adafactor`].
#[options(setters_on(Adafactor), written)]
#[derive(Clone, Debug, PartialEq)]
pub struct AdafactorOptions {
    /// Exponent with which the share of the newest gradient falls.
    #[option(default = -0.8, at_most = 0)]
    pub beta2_decay: f64,
    /// Minimum root of the second average, and minimum size of a parameter.
    #[option(default, shown = "the epsilon of the arithmetic and 0.001", at_least = 0)]
    pub eps: Option<(f64, f64)>,
    /// Root mean square above which an update is scaled down.
    #[option(default = 1.0, at_least = 1)]
    pub threshold: f64,
    /// Weight decay, applied to the weights.
    #[option(default = 0.0, at_least = 0)]
    pub weight_decay: f64,
}

optimizer!(new Adafactor, AdafactorOptions);

pub(super) struct Known<R> {
    shrink: R,
    /// alpha divided by the size of the update.
    rate: R,
    variance: Variance<R>,
    least: R,
}

/// The second average: per element, or as the factors of the rows and columns of a stack of matrices.
enum Variance<R> {
    Each(Vec<R>),
    Factors { rows: Vec<R>, columns: Vec<R>, height: usize, width: usize },
}

impl<R: Number> Variance<R> {
    /// Calls `f` with part of the elements, row by row: their range, a factor, and numbers that give their variances
    /// when multiplied by the factor.
    fn by_rows(&self, start: usize, len: usize, mut f: impl FnMut(Range<usize>, R, &[R])) {
        match self {
            Variance::Each(all) => f(0..len, R::one(), &all[start..][..len]),
            Variance::Factors { rows, columns, height, width } => {
                let mut at = 0;
                while at < len {
                    let (row, column) = ((start + at) / width, (start + at) % width);
                    let some = (width - column).min(len - at);
                    let first = row / height * width;
                    f(at..at + some, rows[row], &columns[first + column..][..some]);
                    at += some;
                }
            }
        }
    }
}

/// Returns one over the root of a variance, with a lower bound on the variance.
#[inline(always)]
fn inverse_root<R: Number>(variance: R, least: R) -> R {
    (if variance > least { variance } else { least }).sqrt().recip()
}

/// Moves averages towards numbers by a share of the difference.
fn blend<R: Number>(averages: &mut [R], share: R, numbers: impl Iterator<Item = R>) {
    averages.iter_mut().zip(numbers).for_each(|(average, x)| *average = *average + share * (x - *average));
}

impl Rule for AdafactorOptions {
    const NAME: &'static str = "adafactor";
    const LOOKS: bool = true;
    type Known<R: Number> = Known<R>;

    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    fn kept(&self, shape: &[usize]) -> Vec<Kept> {
        let [stack @ .., height, width] = shape else { return vec![Kept::new("square", shape)] };
        let of = |matrix: [usize; 2]| [stack, &matrix].concat();
        vec![Kept::new("rows", &of([*height, 1])), Kept::new("columns", &of([1, *width]))]
    }

    fn prepare<R: Number>(&self, step: &Step, whole: Whole<'_, R>) -> Known<R> {
        let Whole { shape, value, grad, mut kept } = whole;
        let (len, count) = (value.len(), step.count as f64);
        let (eps, size) = self.eps.unwrap_or((R::epsilon().as_f64(), 1e-3));
        let share = R::of(count.powf(self.beta2_decay));

        let variance = match (&mut kept[..], shape) {
            ([rows, columns], [.., height, width]) => {
                let (height, width) = (*height, *width);
                let mut means = vec![0.0; rows.len()];
                threads::chunks(&mut means, 64, len, |part, means| {
                    for (row, mean) in grad[part * 64 * width..].chunks(width.max(1)).zip(means) {
                        *mean = Squares::of(row).mean(width);
                    }
                });
                blend(rows, share, means.iter().map(|&mean| R::of(mean)));
                if len > 0 {
                    for (columns, grad) in columns.chunks_exact_mut(width).zip(grad.chunks_exact(height * width)) {
                        let sums = square_sums_of_columns(grad, width);
                        blend(columns, share, sums.iter().map(|sum| R::of(sum / height as f64)));
                    }
                }
                let scaled = rows.chunks(height.max(1)).flat_map(|rows| {
                    let mean = rows.iter().map(|x| x.as_f64()).sum::<f64>() / rows.len() as f64;
                    let divisor = R::of(mean.max(eps));
                    rows.iter().map(move |&row| row / divisor)
                });
                Variance::Factors { rows: scaled.collect(), columns: columns.to_vec(), height, width }
            }
            (kept, _) => {
                let average = &mut *kept[0];
                blend(average, share, grad.iter().map(|&g| g * g));
                Variance::Each(average.to_vec())
            }
        };

        let least = R::of(eps * eps);
        let [weights, updates] = squares_by_parts(len, [], |range, []: [&mut [R]; 0]| {
            let (value, grad) = (&value[range.clone()], &grad[range.clone()]);
            let mut updates = Squares::NONE;
            variance.by_rows(range.start, range.len(), |some, factor, numbers| {
                let grad = &grad[some];
                let update = |[g, x]: [R; 2]| g * inverse_root(factor * x, least);
                let sum = vectorized(|| sum_of([grad, numbers], |of| update(of) * update(of)));
                updates +=
                    Squares::or(sum, grad.len(), || grad.iter().zip(numbers).map(|(&g, &x)| update([g, x])).collect());
            });
            [Squares::of(value), updates]
        });
        let alpha = size.max(weights.root_mean(len.max(1))) * step.lr.min(1.0 / count.sqrt());
        let scale = (updates.root_mean(len.max(1)) / self.threshold).max(1.0);
        Known { shrink: R::of(1.0 - step.lr * step.weight_decay), rate: R::of(alpha / scale), variance, least }
    }

    fn apply<R: Number>(
        known: &Known<R>,
        start: usize,
        value: &mut Values<'_, R>,
        grad: Multiplied<'_, R>,
        _: [&mut [R]; MOMENTS],
    ) {
        let Known { shrink, rate, variance, least } = known;
        let (shrink, rate, least) = (*shrink, *rate, *least);
        variance.by_rows(start, value.len(), |some, factor, numbers| {
            value.replace(some.clone(), [&grad.grad[some], numbers], move |p, [g, x]| {
                p * shrink - rate * (inverse_root(factor * x, least) * g)
            });
        });
    }
}
