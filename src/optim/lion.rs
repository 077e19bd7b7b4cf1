//! Lion.

use super::{
    rule::{Kept, Number, Rule, Sign, Step, Whole, check_rate},
    trained::{Trained, optimizer},
};
use crate::{
    cell::Params,
    error::Result,
    kernels::update::{MOMENTS, Multiplied, Values, each},
};

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
pub struct Lion(Trained<Formula>);

#[derive(Clone, Debug)]
struct Formula {
    betas: (f64, f64),
}

impl Lion {
    /// Creates Lion with betas (0.9, 0.99) and no weight decay. Hyperparameters are checked when a step is taken.
    pub fn new(params: Params, lr: f64) -> Self {
        Lion(Trained::new(params, lr, Formula { betas: (0.9, 0.99) }))
    }

    /// Sets the share of the average in the direction, and its decay rate, each at least 0 and below 1.
    #[must_use]
    pub fn betas(mut self, first: f64, second: f64) -> Self {
        self.0.rule.betas = (first, second);
        self
    }

    /// Keeps the running average in 8 bits, as [`Adam::state_8bit`](super::Adam::state_8bit) does.
    #[must_use]
    pub fn state_8bit(mut self) -> Self {
        self.0.eight_bit = true;
        self
    }
}

optimizer!(Lion);

struct Known<R> {
    lr: R,
    shrink: R,
    beta1: R,
    rest1: R,
    beta2: R,
    rest2: R,
}

impl Rule for Formula {
    const NAME: &'static str = "lion";
    type Known<R: Number> = Known<R>;

    fn check(&self) -> Result<()> {
        check_rate("first beta", self.betas.0)?;
        check_rate("second beta", self.betas.1)
    }

    fn kept(&self, shape: &[usize]) -> Vec<Kept> {
        vec![Kept::new("mean", shape).in_eight_bit(Sign::Signed)]
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
