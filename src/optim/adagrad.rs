//! Adagrad.

use super::{
    rule::{Kept, Number, Rule, Step, Whole, check_not_negative},
    trained::{Trained, optimizer},
};
use crate::{
    cell::Params,
    error::Result,
    kernels::update::{MOMENTS, Multiplied, Values, each},
};

/// Adagrad, in the form of `torch.optim.Adagrad`. At update t of a parameter:
///
/// ```text
/// g = grad + weight_decay * p
/// s = s + g * g
/// p = p - lr / (1 + (t - 1) * lr_decay) * g / (sqrt(s) + eps)
/// ```
///
/// Source: Duchi, Hazan and Singer 2011, in the order of operations of
/// <https://docs.pytorch.org/docs/stable/generated/torch.optim.Adagrad.html>.
#[derive(Clone, Debug)]
pub struct Adagrad(Trained<Formula>);

#[derive(Clone, Debug)]
struct Formula {
    lr_decay: f64,
    start: f64,
    eps: f64,
}

impl Adagrad {
    /// Creates Adagrad with eps 1e-10, sums starting at 0, no learning-rate decay and no weight decay. Hyperparameters
    /// are checked when a step is taken.
    pub fn new(params: Params, lr: f64) -> Self {
        Adagrad(Trained::new(params, lr, Formula { lr_decay: 0.0, start: 0.0, eps: 1e-10 }))
    }

    /// Sets the decay of the learning rate, at least 0.
    #[must_use]
    pub fn lr_decay(mut self, lr_decay: f64) -> Self {
        self.0.rule.lr_decay = lr_decay;
        self
    }

    /// Sets the initial value of the sums of squares, at least 0.
    #[must_use]
    pub fn initial_sum(mut self, sum: f64) -> Self {
        self.0.rule.start = sum;
        self
    }

    /// Sets the number that keeps the division bounded, at least 0.
    #[must_use]
    pub fn eps(mut self, eps: f64) -> Self {
        self.0.rule.eps = eps;
        self
    }
}

optimizer!(Adagrad);

struct Known<R> {
    lr: R,
    weight_decay: R,
    eps: R,
}

impl Rule for Formula {
    const NAME: &'static str = "adagrad";
    type Known<R: Number> = Known<R>;

    fn check(&self) -> Result<()> {
        check_not_negative("decay of the learning rate", self.lr_decay)?;
        check_not_negative("initial sum", self.start)?;
        check_not_negative("eps", self.eps)
    }

    fn kept(&self, shape: &[usize]) -> Vec<Kept> {
        vec![Kept { start: self.start, ..Kept::new("sum", shape) }]
    }

    fn prepare<R: Number>(&self, step: &Step, _: Whole<'_, R>) -> Known<R> {
        let lr = step.lr / (1.0 + (step.count - 1) as f64 * self.lr_decay);
        Known { lr: R::of(lr), weight_decay: R::of(step.weight_decay), eps: R::of(self.eps) }
    }

    fn apply<R: Number>(
        known: &Known<R>,
        _: usize,
        value: &mut Values<'_, R>,
        grad: Multiplied<'_, R>,
        moments: [&mut [R]; MOMENTS],
    ) {
        let Known { lr, weight_decay, eps } = *known;
        let [sum, ..] = moments;
        each(value, grad, [sum], move |p, g, [s]| {
            let g = g + weight_decay * p;
            let s = s + g * g;
            (p - lr * (g / (s.sqrt() + eps)), [s])
        });
    }
}
