//! Lion.

use precast_kernels::update::{MOMENTS, Multiplied, Values, each};

use super::{
    rule::{Kept, Number, Of, Rule, Step, Whole},
    trained::{Trained, optimizer},
};
use crate::options::options;

/// Lion: each weight moves by the learning rate, in the direction of the sign of an average of gradients.
///
/// ```text
/// c = beta1 * m + (1 - beta1) * grad
/// p = p - lr * weight_decay * p - lr * sign(c)         sign(0) = 0
/// m = beta2 * m + (1 - beta2) * grad
/// ```
///
/// Source: Chen et al. 2023, "Symbolic discovery of optimization algorithms", algorithm 2. The learning rate is usually
/// three to ten times smaller than for Adam, and the weight decay larger by the same factor.
#[derive(Clone, Debug)]
pub struct Lion(Trained<LionOptions>);

/// Options of [`Lion`].
#[options(setters_on(Lion), written)]
#[derive(Clone, Debug, PartialEq)]
pub struct LionOptions {
    /// Share of the average in the direction, and decay rate of the average.
    #[option(default = (0.9, 0.99), at_least = 0, below = 1)]
    pub betas: (f64, f64),
    /// Weight decay, applied to the weights.
    #[option(default = 0.0, at_least = 0)]
    pub weight_decay: f64,
    /// `true` when running averages are kept in 8 bits, as by [`Adam::state_8bit`](super::Adam::state_8bit).
    #[option(default = false)]
    pub state_8bit: bool,
}

optimizer!(new Lion, LionOptions);

pub(super) struct Known<R> {
    lr: R,
    shrink: R,
    beta1: R,
    rest1: R,
    beta2: R,
    rest2: R,
}

impl Rule for LionOptions {
    const NAME: &'static str = "lion";
    type Known<R: Number> = Known<R>;

    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    fn eight_bit(&self) -> bool {
        self.state_8bit
    }

    fn kept(&self, shape: &[usize]) -> Vec<Kept> {
        vec![Kept::new("mean", shape).in_eight_bit(Of::Gradients)]
    }

    fn prepare<R: Number>(&self, step: &Step, _: Whole<'_, R>) -> Known<R> {
        let (beta1, beta2) = self.betas;
        let numbers = [step.lr, 1.0 - step.lr * step.weight_decay, beta1, 1.0 - beta1, beta2, 1.0 - beta2];
        let [lr, shrink, beta1, rest1, beta2, rest2] = numbers.map(R::of);
        Known { lr, shrink, beta1, rest1, beta2, rest2 }
    }

    fn apply<R: Number>(
        known: &Known<R>,
        _: usize,
        value: &mut Values<'_, R>,
        grad: Multiplied<'_, R>,
        moments: [&mut [R]; MOMENTS],
    ) {
        let Known { lr, shrink, beta1, rest1, beta2, rest2 } = *known;
        let [mean, ..] = moments;
        each(value, grad, [mean], move |p, g, [m]| {
            let direction = beta1 * m + rest1 * g;
            let up = if direction > R::zero() { lr } else { R::zero() };
            let down = if direction < R::zero() { lr } else { R::zero() };
            (p * shrink - up + down, [beta2 * m + rest2 * g])
        });
    }
}
