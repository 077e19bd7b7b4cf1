//! Muon.

use std::ops::{Deref, DerefMut};

use half::bf16;
use precast_kernels::{
    cast::converted,
    gemm::{Added, Layout, Products, products, unrounded},
    memory::{Pooled, uninit_vec},
    reduce::Squares,
    simd::vectorized,
    update::{MOMENTS, Multiplied, Values, squares_by_parts},
};

use super::{
    AdamW, AdamWOptions, Optimizer, beside,
    makes::Makes,
    rule::{Kept, Number, Rule, Step, Whole},
    trained::{Trained, optimizer},
};
use crate::{
    Param,
    cell::Params,
    error::{Error, Result},
    options::{OptionInfo, Options, options},
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
/// [`Params::filter`]. torch computes X in bfloat16, this implementation in f32, or in f32 with factors of products in bfloat16
/// ([`low_products`](Muon::low_products)).
///
/// Sources: K. Jordan et al. 2024, <https://kellerjordan.github.io/posts/muon/>; Liu et al. 2025, "Muon is scalable for LLM
/// training" (the size of [`match_adam`](Muon::match_adam)); in the form of
/// <https://docs.pytorch.org/docs/stable/generated/torch.optim.Muon.html>.
#[derive(Clone, Debug)]
pub struct Muon(Trained<Formula>);

/// Options of [`Muon`].
#[options(setters_on(Muon), written)]
#[derive(Clone, Debug, PartialEq)]
pub struct MuonOptions {
    /// Momentum factor.
    #[option(default = 0.95, at_least = 0, below = 1)]
    pub momentum: f64,
    /// `true` when Nesterov momentum is used.
    #[option(default = true)]
    pub nesterov: bool,
    /// Number of rounds of the iteration.
    #[option(default = 5, below = 100)]
    pub rounds: usize,
    /// Minimum norm used as divisor.
    #[option(default = 1e-7, at_least = 0)]
    pub eps: f64,
    /// `true` when the iteration rounds the factors of its products to bfloat16, with sums in f32. It is faster where the
    /// processor multiplies bfloat16. Parameters in f64 have f64.
    #[option(default = false)]
    pub low_products: bool,
    /// Weight decay, applied to the weights.
    #[option(default = 0.1, at_least = 0)]
    pub weight_decay: f64,
    /// Options of AdamW for the parameters that Muon does not train, in a run.
    #[option(default = AdamWOptions::default(), shown = "those of AdamW", no_setter)]
    pub others: AdamWOptions,
}

/// The options, and the size of updates.
#[derive(Clone, Debug)]
pub(super) struct Formula {
    options: MuonOptions,
    match_adam: bool,
}

impl From<MuonOptions> for Formula {
    fn from(options: MuonOptions) -> Self {
        Formula { options, match_adam: false }
    }
}

impl Deref for Formula {
    type Target = MuonOptions;
    fn deref(&self) -> &MuonOptions {
        &self.options
    }
}

impl DerefMut for Formula {
    fn deref_mut(&mut self) -> &mut MuonOptions {
        &mut self.options
    }
}

impl Options for Formula {
    const CALLED: &'static str = MuonOptions::CALLED;
    fn options() -> Vec<OptionInfo> {
        MuonOptions::options()
    }
    fn out_of_range(&self) -> Option<(&'static str, Error)> {
        self.options.out_of_range()
    }
}

impl Muon {
    /// Creates the optimizer with the [default options](MuonOptions). Options are checked when a step is taken.
    pub fn new(params: Params, lr: f64) -> Self {
        Muon::with_options(params, lr, MuonOptions::default())
    }

    /// Scales updates to the size of Adam's, so that a learning rate and weight decay tuned for Adam can be reused.
    #[must_use]
    pub fn match_adam(mut self) -> Self {
        self.0.rule.match_adam = true;
        self
    }
}

impl Makes for MuonOptions {
    /// Trains the matrices other than tables by Muon, and the other parameters by AdamW, with one learning rate.
    fn optimizer(&self, params: Params, lr: f64, is_table: &dyn Fn(&Param) -> bool) -> Box<dyn Optimizer> {
        let is_matrix = |param: &Param| param.shape().len() == 2 && !is_table(param);
        let matrices = params.clone().filter(|_, param| is_matrix(param));
        let others = params.filter(|_, param| !is_matrix(param));
        let muon = Muon::with_options(matrices, lr, self.clone()).match_adam();
        beside(muon.into_trained(), AdamW::with_options(others, lr, self.others.clone()).into_trained())
    }
}

impl Muon {
    /// Returns the parameters and the rule, to be [combined](super::beside()) with another optimizer.
    pub(super) fn into_trained(self) -> Trained<impl Rule> {
        self.0
    }
}

optimizer!(Muon, MuonOptions);

pub(super) struct Known<R: Number> {
    shrink: R,
    lr: R,
    direction: Pooled<R>,
}

impl Rule for Formula {
    const NAME: &'static str = "muon";
    const LOOKS: bool = true;
    type Known<R: Number> = Known<R>;

    fn weight_decay(&self) -> f64 {
        self.weight_decay
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
            direction: self.orthogonalized(x, rows, columns),
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

impl Formula {
    /// Orthogonalizes a matrix.
    fn orthogonalized<R: Number>(&self, x: Pooled<R>, rows: usize, columns: usize) -> Pooled<R> {
        if !self.low_products || size_of::<R>() != size_of::<f32>() {
            let terms = [vec![(0, 0)]];
            let product = |layout, mkn, a: &[R], b: &[R], out: &mut [R]| {
                products(&Products { layout, mkn, a, b, terms: &terms, added: Added::Nothing }, out);
            };
            return iterated(x, [rows, columns, self.rounds], |_| {}, product);
        }
        let x = Pooled::collect(x.len(), x.iter().map(|x| x.as_f64() as f32));
        let round = |x: &mut [f32]| x.copy_from_slice(&converted::<bf16, f32>(&converted::<f32, bf16>(x)));
        let product = |layout, mkn, a: &[f32], b: &[f32], out: &mut [f32]| {
            let [a, b] = [a, b].map(converted::<f32, bf16>);
            unrounded(layout, mkn, (&a, &b), Added::Nothing, out);
        };
        let x = iterated(x, [rows, columns, self.rounds], round, product);
        Pooled::collect(x.len(), x.iter().map(|x| R::of((*x).into())))
    }
}

/// Runs rounds of the Newton-Schulz iteration with the coefficients of Jordan et al. `product` multiplies two matrices, and `round`
/// rounds what is both a factor and a term: the polynomial that a round computes is then one of the same number, and corrects it.
fn iterated<R: Number>(
    mut x: Pooled<R>,
    [rows, columns, rounds]: [usize; 3],
    round: impl Fn(&mut [R]),
    product: impl Fn(Layout, (usize, usize, usize), &[R], &[R], &mut [R]),
) -> Pooled<R> {
    let [a, b, c] = [3.4445, -4.775, 2.0315].map(R::of);
    let (wide, short) = (rows <= columns, rows.min(columns));
    let (mut gram, mut square) = (Pooled::uninit(short * short), Pooled::uninit(short * short));
    let mut next = uninit_vec(x.len());
    for _ in 0..rounds {
        round(&mut x);
        match wide {
            true => product(Layout::NT, (rows, columns, rows), &x, &x, &mut gram),
            false => product(Layout::TN, (columns, rows, columns), &x, &x, &mut gram),
        }
        round(&mut gram);
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
