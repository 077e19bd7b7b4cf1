//! Stochastic gradient descent.

use super::{Optimizer, Rule, Trained, check, check_common};
use crate::{
    Grads,
    cell::Params,
    error::{Error, Result},
    kernels::{
        float::{Float, Real},
        simd::vectorized,
    },
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
pub struct Sgd {
    trained: Trained,
    formula: Formula,
}

#[derive(Clone, Debug)]
struct Formula {
    lr: f64,
    momentum: f64,
    dampening: f64,
    nesterov: bool,
    weight_decay: f64,
}

impl Sgd {
    /// Plain gradient descent. Hyperparameters are checked when a step is taken.
    pub fn new(params: Params, lr: f64) -> Self {
        let formula = Formula { lr, momentum: 0.0, dampening: 0.0, nesterov: false, weight_decay: 0.0 };
        Sgd { trained: Trained::new(params), formula }
    }

    /// Sets the momentum, at least 0.
    #[must_use]
    pub fn momentum(mut self, momentum: f64) -> Self {
        self.formula.momentum = momentum;
        self
    }

    /// Sets the dampening of the momentum, at most 1.
    #[must_use]
    pub fn dampening(mut self, dampening: f64) -> Self {
        self.formula.dampening = dampening;
        self
    }

    /// Uses Nesterov momentum, which needs a momentum above 0 and no dampening.
    #[must_use]
    pub fn nesterov(mut self) -> Self {
        self.formula.nesterov = true;
        self
    }

    /// Sets the weight decay (an L2 penalty), at least 0.
    #[must_use]
    pub fn weight_decay(mut self, weight_decay: f64) -> Self {
        self.formula.weight_decay = weight_decay;
        self
    }
}

impl Optimizer for Sgd {
    fn params(&self) -> &Params {
        &self.trained.params
    }

    fn update(&mut self, grads: &Grads) -> Result<()> {
        self.formula.check()?;
        self.trained.update(&self.formula, grads)
    }

    fn lr(&self) -> f64 {
        self.formula.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.formula.lr = lr;
    }
}

impl Formula {
    fn check(&self) -> Result<()> {
        check_common(self.lr, self.weight_decay)?;
        check("momentum", self.momentum, self.momentum >= 0.0, "a finite number of at least 0")?;
        check("dampening", self.dampening, self.dampening <= 1.0, "a finite number of at most 1")?;
        if self.nesterov && (self.momentum == 0.0 || self.dampening != 0.0) {
            return Err(Error::value("nesterov needs a momentum above 0 and no dampening"));
        }
        Ok(())
    }
}

impl Rule for Formula {
    fn moments(&self) -> usize {
        usize::from(self.momentum != 0.0)
    }

    fn apply<T: Float>(&self, steps: u64, value: &mut [T], grad: &[T::Wide], moments: &mut [&mut [T::Wide]]) {
        let of = T::Wide::of;
        let (lr, weight_decay, momentum) = (of(self.lr), of(self.weight_decay), of(self.momentum));
        let [velocity] = moments else {
            vectorized(|| {
                for (p, &g) in value.iter_mut().zip(grad) {
                    let wide = p.widen();
                    *p = T::narrow(wide - lr * (g + weight_decay * wide));
                }
            });
            return;
        };
        let (keep, take) = if steps == 1 { (of(0.0), of(1.0)) } else { (momentum, of(1.0 - self.dampening)) };
        let ahead = self.nesterov;
        vectorized(|| {
            for ((p, &g), b) in value.iter_mut().zip(grad).zip(velocity.iter_mut()) {
                let wide = p.widen();
                let g = g + weight_decay * wide;
                *b = keep * *b + take * g;
                *p = T::narrow(wide - lr * if ahead { g + momentum * *b } else { *b });
            }
        });
    }
}
