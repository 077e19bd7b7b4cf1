//! Adam and AdamW.

use precast_kernels::update::{MOMENTS, Multiplied, Values, each};

use super::{
    rule::{Kept, Number, Of, Rule, Step, Whole},
    trained::{Trained, optimizer},
};
use crate::options::options;

/// Adam, in the form of `torch.optim.Adam`. At update t of a parameter:
///
/// ```text
/// g = grad + weight_decay * p
/// m = m + (1 - beta1) * (g - m)
/// v = beta2 * v + (1 - beta2) * g * g
/// w = amsgrad ? max(w, v) : v
/// p = p - lr / (1 - beta1^t) * m / (sqrt(w) / sqrt(1 - beta2^t) + eps)
/// ```
///
/// Sources: Kingma and Ba 2015 (Adam), Reddi, Kale and Kumar 2018 (AMSGrad), in the order of operations of
/// <https://docs.pytorch.org/docs/stable/generated/torch.optim.Adam.html>.
#[derive(Clone, Debug)]
pub struct Adam(Trained<AdamOptions>);

/// AdamW, in the form of `torch.optim.AdamW`: [`Adam`] with weight decay applied to the weights instead of through the
/// gradient. At each update, `g = grad`, and first `p = p - lr * weight_decay * p`.
///
/// Source: Loshchilov and Hutter 2019.
#[derive(Clone, Debug)]
pub struct AdamW(Trained<AdamWOptions>);

/// Options of [`Adam`] ([`AdamOptions`]) and of [`AdamW`] ([`AdamWOptions`]).
#[options(setters_on(Adam, AdamW), written, called = "AdamW")]
#[derive(Clone, Debug, PartialEq)]
pub struct AdamLikeOptions<const DECOUPLED: bool> {
    /// Decay rates of the two running averages.
    #[option(default = (0.9, 0.999), at_least = 0, below = 1)]
    pub betas: (f64, f64),
    /// Number that keeps the division bounded.
    #[option(default = 1e-8, at_least = 0)]
    pub eps: f64,
    /// Weight decay: of Adam added to the gradient, of AdamW applied to the weights.
    #[option(default = if DECOUPLED { 0.01 } else { 0.0 }, shown = "0 for Adam, 0.01 for AdamW", at_least = 0)]
    pub weight_decay: f64,
    /// `true` when the divisor is the largest second average so far instead of the current one.
    #[option(default = false)]
    pub amsgrad: bool,
    /// `true` when running averages are kept in 8 bits: blocks of 256 numbers, each a code times the largest magnitude
    /// in its block, as in bitsandbytes (Dettmers et al. 2022, "8-bit optimizers via block-wise quantization"), with
    /// codes that reach further down and are rounded to in turn. Parameters with fewer than 4096 elements and f64
    /// parameters keep full averages.
    #[option(default = false)]
    pub state_8bit: bool,
}

/// Options of [`Adam`].
pub type AdamOptions = AdamLikeOptions<false>;
/// Options of [`AdamW`].
pub type AdamWOptions = AdamLikeOptions<true>;

impl AdamW {
    /// Returns the parameters and the rule, to be [combined](super::beside()) with another optimizer.
    pub(super) fn into_trained(self) -> Trained<impl Rule> {
        self.0
    }
}

optimizer!(new Adam, AdamOptions);
optimizer!(new AdamW, AdamWOptions);

pub(super) struct Known<R> {
    /// Factors of the first average and of the root of the second: the learning rate and the bias corrections. torch
    /// divides the root, which is slower and differs by at most one rounding.
    step: R,
    root: R,
    rest1: R,
    beta2: R,
    rest2: R,
    eps: R,
    /// Share of the weight added to the gradient, and share of the weight kept.
    penalty: R,
    shrink: R,
}

impl<const DECOUPLED: bool> Rule for AdamLikeOptions<DECOUPLED> {
    const NAME: &'static str = "adam";
    type Known<R: Number> = Known<R>;

    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    fn eight_bit(&self) -> bool {
        self.state_8bit
    }

    fn kept(&self, shape: &[usize]) -> Vec<Kept> {
        let mut kept = vec![
            Kept::new("mean", shape).in_eight_bit(Of::Gradients),
            Kept::new("square", shape).in_eight_bit(Of::Squares),
        ];
        if self.amsgrad {
            kept.push(Kept::new("largest_square", shape).in_eight_bit(Of::Squares));
        }
        kept
    }

    fn prepare<R: Number>(&self, step: &Step, _: Whole<'_, R>) -> Known<R> {
        let correction = |beta: f64| 1.0 - beta.powf(step.count as f64);
        let (penalty, shrink) = match DECOUPLED {
            false => (step.weight_decay, 1.0),
            true => (0.0, 1.0 - step.lr * step.weight_decay),
        };
        Known {
            step: R::of(step.lr / correction(self.betas.0)),
            root: R::of(correction(self.betas.1).sqrt().recip()),
            rest1: R::of(1.0 - self.betas.0),
            beta2: R::of(self.betas.1),
            rest2: R::of(1.0 - self.betas.1),
            eps: R::of(self.eps),
            penalty: R::of(penalty),
            shrink: R::of(shrink),
        }
    }

    fn apply<R: Number>(
        known: &Known<R>,
        _: usize,
        value: &mut Values<'_, R>,
        grad: Multiplied<'_, R>,
        moments: [&mut [R]; MOMENTS],
    ) {
        let Known { step, root, rest1, beta2, rest2, eps, penalty, shrink } = *known;
        // The root of the average, or of the largest so far, is the divisor.
        let moved = move |p: R, g: R, m: R, v: R| {
            let g = g + penalty * p;
            (m + rest1 * (g - m), beta2 * v + rest2 * (g * g))
        };
        let stepped = move |p: R, m: R, w: R| p * shrink - step * (m / (w.sqrt() * root + eps));
        let [mean, square, largest] = moments;
        if largest.is_empty() {
            return each(value, grad, [mean, square], move |p, g, [m, v]| {
                let (m, v) = moved(p, g, m, v);
                (stepped(p, m, v), [m, v])
            });
        }
        each(value, grad, [mean, square, largest], move |p, g, [m, v, w]| {
            let (m, v) = moved(p, g, m, v);
            let w = if v > w { v } else { w };
            (stepped(p, m, w), [m, v, w])
        });
    }
}
