//! Adagrad.

use precast_kernels::update::{MOMENTS, Multiplied, Values, each};

use super::{
    rule::{Kept, Number, Rule, Step, Whole},
    trained::{Trained, optimizer},
};
use crate::options::options;

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
pub struct Adagrad(Trained<AdagradOptions>);

/// Options of [`Adagrad`].
#[options(setters_on(Adagrad), written)]
#[derive(Clone, Debug, PartialEq)]
pub struct AdagradOptions {
    /// Decay of the learning rate.
    #[option(default = 0.0, at_least = 0)]
    pub lr_decay: f64,
    /// Initial value of the sums of squares.
    #[option(default = 0.0, at_least = 0)]
    pub initial_sum: f64,
    /// Number that keeps the division bounded.
    #[option(default = 1e-10, at_least = 0)]
    pub eps: f64,
    /// Weight decay, added to the gradient.
    #[option(default = 0.0, at_least = 0)]
    pub weight_decay: f64,
}

optimizer!(new Adagrad, AdagradOptions);

pub(super) struct Known<R> {
    lr: R,
    weight_decay: R,
    eps: R,
}

impl Rule for AdagradOptions {
    const NAME: &'static str = "adagrad";
    type Known<R: Number> = Known<R>;

    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    fn kept(&self, shape: &[usize]) -> Vec<Kept> {
        vec![Kept { start: self.initial_sum, ..Kept::new("sum", shape) }]
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
