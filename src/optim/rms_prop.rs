//! RMSProp.

use precast_kernels::update::{MOMENTS, Multiplied, Values, each};

use super::{
    rule::{Kept, Number, Rule, Step, Whole},
    trained::{Trained, optimizer},
};
use crate::options::options;

/// RMSProp, in the form of `torch.optim.RMSprop`:
///
/// ```text
/// g = grad + weight_decay * p
/// v = centered ? alpha * (v + (1 - alpha) * (g - a)^2) : alpha * v + (1 - alpha) * g^2
/// a = a + (1 - alpha) * (g - a)                          only if centered
/// d = sqrt(v) + eps
/// b = momentum * b + g / d                               only with momentum
/// p = p - lr * (momentum > 0 ? b : g / d)
/// ```
///
/// The centered `v` is the average of squares less the square of the average, which torch subtracts, and which is not a
/// number there once gradients are steady to seven digits.
///
/// Sources: Tieleman and Hinton 2012 (lecture 6.5 of a course), Graves 2013 (centered), in the order of operations of
/// <https://docs.pytorch.org/docs/stable/generated/torch.optim.RMSprop.html>.
#[derive(Clone, Debug)]
pub struct RmsProp(Trained<RmsPropOptions>);

/// Options of [`RmsProp`].
#[options(setters_on(RmsProp), written)]
#[derive(Clone, Debug, PartialEq)]
pub struct RmsPropOptions {
    /// Decay rate of the running averages.
    #[option(default = 0.99, at_least = 0, below = 1)]
    pub alpha: f64,
    /// Number that keeps the division bounded.
    #[option(default = 1e-8, at_least = 0)]
    pub eps: f64,
    /// Momentum factor.
    #[option(default = 0.0, at_least = 0, at_most = 1)]
    pub momentum: f64,
    /// `true` when the gradient is divided by its standard deviation instead of its root mean square.
    #[option(default = false)]
    pub centered: bool,
    /// Weight decay, added to the gradient.
    #[option(default = 0.0, at_least = 0)]
    pub weight_decay: f64,
}

optimizer!(new RmsProp, RmsPropOptions);

pub(super) struct Known<R> {
    lr: R,
    weight_decay: R,
    alpha: R,
    rest: R,
    eps: R,
    momentum: R,
    centered: bool,
}

impl Rule for RmsPropOptions {
    const NAME: &'static str = "rmsprop";
    type Known<R: Number> = Known<R>;

    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    fn kept(&self, shape: &[usize]) -> Vec<Kept> {
        let mut kept = vec![Kept::new(if self.centered { "variance" } else { "square" }, shape)];
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
            let from = g - a;
            let v = alpha * (v + rest * (from * from));
            (g / (v.sqrt() + eps), v, a + rest * from)
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
