//! RMSProp.

use super::{
    rule::{Kept, Number, Rule, Step, Whole, check_not_negative, check_rate},
    trained::{Trained, optimizer},
};
use crate::{
    cell::Params,
    error::Result,
    kernels::update::{MOMENTS, Multiplied, Values, each},
};

/// RMSProp, in the form of `torch.optim.RMSprop`:
///
/// ```text
/// g = grad + weight_decay * p
/// v = alpha * v + (1 - alpha) * g * g
/// a = a + (1 - alpha) * (g - a)                          only if centered
/// d = sqrt(centered ? v - a * a : v) + eps
/// b = momentum * b + g / d                               only with momentum
/// p = p - lr * (momentum > 0 ? b : g / d)
/// ```
///
/// Sources: Tieleman and Hinton 2012 (lecture 6.5 of a course), Graves 2013 (centered), in the order of operations of
/// <https://docs.pytorch.org/docs/stable/generated/torch.optim.RMSprop.html>.
#[derive(Clone, Debug)]
pub struct RmsProp(Trained<Formula>);

#[derive(Clone, Debug)]
struct Formula {
    alpha: f64,
    eps: f64,
    momentum: f64,
    centered: bool,
}

impl RmsProp {
    /// Creates RMSProp with alpha 0.99, eps 1e-8, no momentum and no weight decay. Hyperparameters are checked when a
    /// step is taken.
    pub fn new(params: Params, lr: f64) -> Self {
        RmsProp(Trained::new(params, lr, Formula { alpha: 0.99, eps: 1e-8, momentum: 0.0, centered: false }))
    }

    /// Sets the decay rate of the running averages, at least 0 and below 1.
    #[must_use]
    pub fn alpha(mut self, alpha: f64) -> Self {
        self.0.rule.alpha = alpha;
        self
    }

    /// Sets the number that keeps the division bounded, at least 0.
    #[must_use]
    pub fn eps(mut self, eps: f64) -> Self {
        self.0.rule.eps = eps;
        self
    }

    /// Sets the momentum, at least 0.
    #[must_use]
    pub fn momentum(mut self, momentum: f64) -> Self {
        self.0.rule.momentum = momentum;
        self
    }

    /// Divides by the standard deviation of the gradient instead of its root mean square.
    #[must_use]
    pub fn centered(mut self) -> Self {
        self.0.rule.centered = true;
        self
    }
}

optimizer!(RmsProp);

struct Known<R> {
    lr: R,
    weight_decay: R,
    alpha: R,
    rest: R,
    eps: R,
    momentum: R,
    centered: bool,
}

impl Rule for Formula {
    const NAME: &'static str = "rmsprop";
    type Known<R: Number> = Known<R>;

    fn check(&self) -> Result<()> {
        check_rate("alpha", self.alpha)?;
        check_not_negative("eps", self.eps)?;
        check_not_negative("momentum", self.momentum)
    }

    fn kept(&self, shape: &[usize]) -> Vec<Kept> {
        let mut kept = vec![Kept::new("square", shape)];
        if self.momentum != 0.0 {
            kept.push(Kept::new("momentum", shape));
        }
        if self.centered {
            kept.push(Kept::new("mean", shape));
        }
        kept
    }

    fn prepare<R: Number>(&self, step: &Step, _: Whole<'_, R>) -> Known<R> {
        let numbers = [step.lr, step.weight_decay, self.alpha, 1.0 - self.alpha, self.eps, self.momentum];
        let [lr, weight_decay, alpha, rest, eps, momentum] = numbers.map(R::of);
        Known { lr, weight_decay, alpha, rest, eps, momentum, centered: self.centered }
    }

    fn apply<R: Number>(
        known: &Known<R>,
        _: usize,
        value: &mut Values<'_, R>,
        grad: Multiplied<'_, R>,
        moments: [&mut [R]; MOMENTS],
    ) {
        let Known { lr, weight_decay, alpha, rest, eps, momentum, centered } = *known;
        let [square, second, third] = moments;
        let (average, mean) = match (momentum == R::zero(), centered) {
            (true, true) => (third, second),
            _ => (second, third),
        };
        // Each of the four forms is one short loop.
        let quotient = move |g: R, v: R| {
            let v = alpha * v + rest * (g * g);
            (g / (v.sqrt() + eps), v)
        };
        let centered_quotient = move |g: R, v: R, a: R| {
            let v = alpha * v + rest * (g * g);
            let a = a + rest * (g - a);
            (g / ((v - a * a).sqrt() + eps), v, a)
        };
        match (average.is_empty(), mean.is_empty()) {
            (true, true) => each(value, grad, [square], move |p, g, [v]| {
                let (q, v) = quotient(g + weight_decay * p, v);
                (p - lr * q, [v])
            }),
            (false, true) => each(value, grad, [square, average], move |p, g, [v, b]| {
                let (q, v) = quotient(g + weight_decay * p, v);
                let b = momentum * b + q;
                (p - lr * b, [v, b])
            }),
            (true, false) => each(value, grad, [square, mean], move |p, g, [v, a]| {
                let (q, v, a) = centered_quotient(g + weight_decay * p, v, a);
                (p - lr * q, [v, a])
            }),
            (false, false) => each(value, grad, [square, average, mean], move |p, g, [v, b, a]| {
                let (q, v, a) = centered_quotient(g + weight_decay * p, v, a);
                let b = momentum * b + q;
                (p - lr * b, [v, b, a])
            }),
        }
    }
}
