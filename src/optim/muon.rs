//! Muon.

use super::{
    rule::{Kept, Number, Rule, Step, Whole, check, check_not_negative, check_rate},
    trained::{Trained, optimizer},
};
use crate::{
    cell::Params,
    error::{Error, Result},
    kernels::{
        gemm::{Added, Layout, Products, products},
        memory::{Pooled, uninit_vec},
        reduce::Squares,
        simd::vectorized,
        update::{MOMENTS, Multiplied, Values, squares_by_parts},
    },
};

/// Muon: the momentum of a matrix, orthogonalized approximately. In the form of `torch.optim.Muon`:
///
/// ```text
/// b = b + (1 - momentum) * (grad - b)
/// u = nesterov ? grad + momentum * (b - grad) : b
/// X = u / max(|u|, eps), |u| the root of the sum of squares
/// five times: A = X X', X = 3.4445 X + (-4.775 A + 2.0315 A A) X         X' X for a matrix of more rows than columns
/// p = p - lr * weight_decay * p - lr * size * X
/// ```
///
/// `size` is `sqrt(max(1, rows / columns))`, or `0.2 sqrt(max(rows, columns))` with [`match_adam`](Muon::match_adam).
///
/// It trains matrices only. Train embeddings, biases and norms with another optimizer over the remaining parameters of
/// [`Params::filter`]. torch computes X in bfloat16, this implementation in f32.
///
/// Sources: K. Jordan et al. 2024, <https://kellerjordan.github.io/posts/muon/>; Liu et al. 2025, "Muon is scalable for LLM
/// training" (the size of [`match_adam`](Muon::match_adam)); in the form of
/// <https://docs.pytorch.org/docs/stable/generated/torch.optim.Muon.html>.
#[derive(Clone, Debug)]
pub struct Muon(Trained<Formula>);

#[derive(Clone, Debug)]
struct Formula {
    momentum: f64,
    nesterov: bool,
    rounds: usize,
    eps: f64,
    match_adam: bool,
}

impl Muon {
    /// Creates Muon with Nesterov momentum 0.95, five rounds, eps 1e-7 and weight decay 0.1. Hyperparameters are
    /// checked when a step is taken.
    pub fn new(params: Params, lr: f64) -> Self {
        let formula = Formula { momentum: 0.95, nesterov: true, rounds: 5, eps: 1e-7, match_adam: false };
        Muon(Trained::new(params, lr, formula)).weight_decay(0.1)
    }

    /// Sets the momentum, at least 0 and below 1.
    #[must_use]
    pub fn momentum(mut self, momentum: f64) -> Self {
        self.0.rule.momentum = momentum;
        self
    }

    /// Sets whether to use Nesterov momentum.
    #[must_use]
    pub fn nesterov(mut self, nesterov: bool) -> Self {
        self.0.rule.nesterov = nesterov;
        self
    }

    /// Sets the number of rounds of the iteration, below 100.
    #[must_use]
    pub fn rounds(mut self, rounds: usize) -> Self {
        self.0.rule.rounds = rounds;
        self
    }

    /// Sets the minimum norm used as divisor, at least 0.
    #[must_use]
    pub fn eps(mut self, eps: f64) -> Self {
        self.0.rule.eps = eps;
        self
    }

    /// Scales updates to the size of Adam's, so that a learning rate and weight decay tuned for Adam can be reused.
    #[must_use]
    pub fn match_adam(mut self) -> Self {
        self.0.rule.match_adam = true;
        self
    }
}

impl Muon {
    /// Returns the parameters and the rule, to be [combined](super::beside()) with another optimizer.
    pub(super) fn into_trained(self) -> Trained<impl Rule> {
        self.0
    }
}

optimizer!(Muon);

pub(super) struct Known<R: Number> {
    shrink: R,
    lr: R,
    direction: Pooled<R>,
}

impl Rule for Formula {
    const NAME: &'static str = "muon";
    const LOOKS: bool = true;
    type Known<R: Number> = Known<R>;

    fn check(&self) -> Result<()> {
        check_rate("momentum", self.momentum)?;
        check("number of rounds", self.rounds as f64, self.rounds < 100, "below 100")?;
        check_not_negative("eps", self.eps)
    }

    fn check_shape(&self, shape: &[usize]) -> Result<()> {
        match shape {
            [_, _] => Ok(()),
            _ => {
                Err(Error::shape("Muon trains matrices only; train the others by another optimizer (`Params::filter`)"))
            }
        }
    }

    fn kept(&self, shape: &[usize]) -> Vec<Kept> {
        vec![Kept::new("momentum", shape)]
    }

    fn prepare<R: Number>(&self, step: &Step, whole: Whole<'_, R>) -> Known<R> {
        let Whole { shape, grad, mut kept, .. } = whole;
        let (rows, columns) = (shape[0], shape[1]);
        let [rest, momentum] = [1.0 - self.momentum, self.momentum].map(R::of);
        let mut x = uninit_vec(grad.len());
        let [squares] = squares_by_parts(grad.len(), [&mut *kept[0], &mut x], |range, [average, x]| {
            let (grad, nesterov) = (&grad[range], self.nesterov);
            vectorized(|| {
                for ((&g, b), x) in grad.iter().zip(average.iter_mut()).zip(x.iter_mut()) {
                    *b = *b + rest * (g - *b);
                    *x = if nesterov { g + momentum * (*b - g) } else { *b };
                }
            });
            [Squares::of(x)]
        });
        let scale = R::of(1.0 / squares.root().max(self.eps));
        vectorized(|| x.iter_mut().for_each(|x| *x = *x * scale));
        let ratio = match self.match_adam {
            true => 0.2 * (rows.max(columns) as f64).sqrt(),
            false => (rows as f64 / columns.max(1) as f64).max(1.0).sqrt(),
        };
        Known {
            shrink: R::of(1.0 - step.lr * step.weight_decay),
            lr: R::of(step.lr * ratio),
            direction: orthogonalized(x, rows, columns, self.rounds),
        }
    }

    fn apply<R: Number>(
        known: &Known<R>,
        start: usize,
        value: &mut Values<'_, R>,
        _: Multiplied<'_, R>,
        _: [&mut [R]; MOMENTS],
    ) {
        let Known { shrink, lr, direction } = known;
        let (shrink, lr, direction) = (*shrink, *lr, &direction[start..][..value.len()]);
        value.replace(0..value.len(), [direction], move |p, [x]| p * shrink - lr * x);
    }
}

/// Runs rounds of the Newton-Schulz iteration with the coefficients of Jordan et al.
fn orthogonalized<R: Number>(mut x: Pooled<R>, rows: usize, columns: usize, rounds: usize) -> Pooled<R> {
    let [a, b, c] = [3.4445, -4.775, 2.0315].map(R::of);
    let (wide, short) = (rows <= columns, rows.min(columns));
    let terms = [vec![(0, 0)]];
    let product = |layout, mkn, a: &[R], b: &[R], out: &mut [R]| {
        products(&Products { layout, mkn, a, b, terms: &terms, added: Added::Nothing }, out);
    };
    let (mut gram, mut square) = (Pooled::uninit(short * short), Pooled::uninit(short * short));
    let mut next = uninit_vec(x.len());
    for _ in 0..rounds {
        match wide {
            true => product(Layout::NT, (rows, columns, rows), &x, &x, &mut gram),
            false => product(Layout::TN, (columns, rows, columns), &x, &x, &mut gram),
        }
        product(Layout::NN, (short, short, short), &gram, &gram, &mut square);
        vectorized(|| {
            for (square, &gram) in square.iter_mut().zip(gram.iter()) {
                *square = b * gram + c * *square;
            }
        });
        match wide {
            true => product(Layout::NN, (rows, rows, columns), &square, &x, &mut next),
            false => product(Layout::NN, (rows, columns, columns), &x, &square, &mut next),
        }
        vectorized(|| {
            for (x, &next) in x.iter_mut().zip(&*next) {
                *x = a * *x + next;
            }
        });
    }
    x
}
