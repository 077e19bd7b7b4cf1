//! Adam and AdamW.

use num_traits::Float as _;

use super::{Optimizer, Rule, Trained, check, check_common};
use crate::{
    Grads,
    cell::Params,
    error::Result,
    kernels::{
        float::{Float, Real},
        simd::vectorized,
    },
};

/// Adam, in the form of `torch.optim.Adam` and `torch.optim.AdamW`. At update t of a parameter:
///
/// ```text
/// Adam:  g = grad + weight_decay * p        AdamW: g = grad, p = p - lr * weight_decay * p
/// m = m + (1 - beta1) * (g - m)
/// v = beta2 * v + (1 - beta2) * g * g
/// p = p - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
/// ```
///
/// Sources: Kingma and Ba 2015 (Adam), Loshchilov and Hutter 2019 (AdamW), in the order of operations of
/// <https://docs.pytorch.org/docs/stable/generated/torch.optim.Adam.html>.
#[derive(Clone, Debug)]
pub struct Adam {
    trained: Trained,
    formula: Formula,
}

#[derive(Clone, Debug)]
struct Formula {
    lr: f64,
    betas: (f64, f64),
    eps: f64,
    weight_decay: f64,
    decoupled: bool,
}

impl Adam {
    /// Adam with betas (0.9, 0.999), eps 1e-8 and no weight decay. Hyperparameters are checked when a step is taken.
    pub fn new(params: Params, lr: f64) -> Self {
        let formula = Formula { lr, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 0.0, decoupled: false };
        Adam { trained: Trained::new(params), formula }
    }

    /// AdamW: [`Adam`] whose weight decay, 0.01 unless set, acts on the weights and not through the gradient.
    pub fn decoupled(params: Params, lr: f64) -> Self {
        let mut adam = Adam::new(params, lr).weight_decay(0.01);
        adam.formula.decoupled = true;
        adam
    }

    /// Sets the decay rates of the two running averages, each at least 0 and below 1.
    #[must_use]
    pub fn betas(mut self, first: f64, second: f64) -> Self {
        self.formula.betas = (first, second);
        self
    }

    /// Sets the number that keeps the division from exploding, at least 0.
    #[must_use]
    pub fn eps(mut self, eps: f64) -> Self {
        self.formula.eps = eps;
        self
    }

    /// Sets the weight decay, at least 0.
    #[must_use]
    pub fn weight_decay(mut self, weight_decay: f64) -> Self {
        self.formula.weight_decay = weight_decay;
        self
    }
}

impl Optimizer for Adam {
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
        for (name, beta) in [("first beta", self.betas.0), ("second beta", self.betas.1)] {
            check(name, beta, (0.0..1.0).contains(&beta), "0 up to but not including 1")?;
        }
        check("eps", self.eps, self.eps >= 0.0, "a finite number of at least 0")
    }
}

impl Rule for Formula {
    fn moments(&self) -> usize {
        2
    }

    fn apply<T: Float>(&self, steps: u64, value: &mut [T], grad: &[T::Wide], moments: &mut [&mut [T::Wide]]) {
        let [mean, square] = moments else { unreachable!("two moments were asked for") };
        let of = T::Wide::of;
        // The coefficients are computed in f64 and rounded once, as torch's are.
        let correction = |beta: f64| 1.0 - beta.powf(steps as f64);
        let step = of(self.lr / correction(self.betas.0));
        let root = of(correction(self.betas.1).sqrt());
        let (rest1, beta2, rest2) = (of(1.0 - self.betas.0), of(self.betas.1), of(1.0 - self.betas.1));
        let eps = of(self.eps);
        let (penalty, shrink) = match self.decoupled {
            false => (of(self.weight_decay), of(1.0)),
            true => (of(0.0), of(1.0 - self.lr * self.weight_decay)),
        };
        vectorized(|| {
            for (((p, &g), m), v) in value.iter_mut().zip(grad).zip(mean.iter_mut()).zip(square.iter_mut()) {
                let wide = p.widen();
                let g = g + penalty * wide;
                *m = *m + rest1 * (g - *m);
                *v = beta2 * *v + rest2 * (g * g);
                *p = T::narrow(wide * shrink - step * (*m / (v.sqrt() / root + eps)));
            }
        });
    }
}
