//! Stochastic gradient descent.

use precast_kernels::update::{MOMENTS, Multiplied, Values, each};

use super::{
    rule::{Kept, Number, Rule, Step, Whole},
    trained::{Trained, optimizer},
};
use crate::{
    cell::Params,
    error::{Error, Result},
    options::options,
};

/// Stochastic gradient descent with momentum, in the form of `torch.optim.SGD`:
///
/// ```text
/// g = grad + weight_decay * p
/// b = g at a parameter's first update, else momentum * b + (1 - dampening) * g
/// p = p - lr * (nesterov ? g + momentum * b : b)
/// ```
///
/// Source: the algorithm box of <https://docs.pytorch.org/docs/stable/generated/torch.optim.SGD.html>; the momentum is
/// Sutskever et al. 2013 without the learning rate inside it.
#[derive(Clone, Debug)]
pub struct Sgd(Trained<SgdOptions>);

/// Options of [`Sgd`].
#[options(setters_on(Sgd), written)]
#[derive(Clone, Debug, PartialEq)]
pub struct SgdOptions {
    /// Momentum factor.
    #[option(default = 0.9, at_least = 0, at_most = 1, note = "0 in [`Sgd::new`]")]
    pub momentum: f64,
    /// Dampening of the momentum.
    #[option(default = 0.0, at_most = 1)]
    pub dampening: f64,
    /// `true` when Nesterov momentum is used, which requires a momentum above 0 and no dampening.
    #[option(default = false)]
    pub nesterov: bool,
    /// Weight decay, added to the gradient.
    #[option(default = 0.0, at_least = 0)]
    pub weight_decay: f64,
}

impl Sgd {
    /// Creates plain gradient descent, without momentum. Options are checked when a step is taken.
    pub fn new(params: Params, lr: f64) -> Self {
        Sgd::with_options(params, lr, SgdOptions { momentum: 0.0, ..SgdOptions::default() })
    }
}

optimizer!(made Sgd, SgdOptions);

pub(super) struct Known<R> {
    lr: R,
    weight_decay: R,
    momentum: R,
    /// Share of the average that is kept, and share of the gradient that is added.
    keep: R,
    take: R,
    nesterov: bool,
}

impl Rule for SgdOptions {
    const NAME: &'static str = "sgd";
    type Known<R: Number> = Known<R>;

    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    fn check_together(&self) -> Result<()> {
        if self.nesterov && (self.momentum == 0.0 || self.dampening != 0.0) {
            return Err(Error::value("nesterov needs a momentum above 0 and no dampening"));
        }
        Ok(())
    }

    fn kept(&self, shape: &[usize]) -> Vec<Kept> {
        if self.momentum == 0.0 { vec![] } else { vec![Kept::new("momentum", shape)] }
    }

    fn prepare<R: Number>(&self, step: &Step, _: Whole<'_, R>) -> Known<R> {
        let (keep, take) = if step.count == 1 { (0.0, 1.0) } else { (self.momentum, 1.0 - self.dampening) };
        let [lr, weight_decay, momentum, keep, take] =
            [step.lr, step.weight_decay, self.momentum, keep, take].map(R::of);
        Known { lr, weight_decay, momentum, keep, take, nesterov: self.nesterov }
    }

    fn apply<R: Number>(
        known: &Known<R>,
        _: usize,
        value: &mut Values<'_, R>,
        grad: Multiplied<'_, R>,
        moments: [&mut [R]; MOMENTS],
    ) {
        let Known { lr, weight_decay, momentum, keep, take, nesterov } = *known;
        let [average, ..] = moments;
        if average.is_empty() {
            return each(value, grad, [], move |p, g, []| (p - lr * (g + weight_decay * p), []));
        }
        each(value, grad, [average], move |p, g, [b]| {
            let g = g + weight_decay * p;
            let b = keep * b + take * g;
            (p - lr * if nesterov { g + momentum * b } else { b }, [b])
        });
    }
}
