//! Losses on pairs of numbers, each one op with one rounding.

use precast_kernels::{
    elementwise::{Binary, math, math::sigmoid},
    float::{Float, Real},
};

use crate::{
    Op, Tensor,
    error::{Error, Result},
    ops::{
        Call, Reduction, by_float, call, elements,
        elementwise::{
            pairwise::pairwise,
            unary::{part, sign, softplus},
        },
        loss::heads::check_head,
    },
};

macro_rules! losses {
    ($($(#[$doc:meta])* $method:ident $op:ident |$a:ident, $b:ident| $value:expr, $slopes:expr;)*) => { $(
        #[derive(Clone, Copy)]
        struct $op;
        impl Binary for $op {
            #[inline(always)]
            fn value<R: Real>(self, $a: R, $b: R) -> R { $value }
            #[inline(always)]
            fn slopes<R: Real>(self, $a: R, $b: R) -> (R, R) { $slopes }
        }
        impl Tensor {
            $(#[$doc])*
            ///
            /// # Errors
            /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes differ (they do not broadcast here),
            /// [`ErrorKind::DType`](crate::ErrorKind::DType) when neither tensor is floating.
            pub fn $method(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
                loss(call!(Op::$op, &[self, target]; reduction), $op, reduction)
            }
        }
    )* };
}

losses! {
    /// Computes `(x - target)²`.
    mse_loss MseLoss |x, t| difference(x, t) * difference(x, t), (R::of(2.0) * difference(x, t), R::of(2.0) * difference(t, x));
    /// Computes `|x - target|`. The slope at 0 is 0. Here and in similar losses, equal infinities have difference 0.
    l1_loss L1Loss |x, t| difference(x, t).abs(), (sign(difference(x, t)), sign(difference(t, x)));
    /// Computes the cross entropy of `sigmoid(x)` and the probability `target`, without overflow:
    /// `ln(1 + exp(x)) - target * x`.
    bce_with_logits BceWithLogits |x, t| if x.is_infinite() { part(if x > R::zero() { R::one() - t } else { t }, x.abs()) }
        else { softplus(x) - t * x }, (sigmoid(x) - t, -x);
    /// Computes the Kullback-Leibler divergence of the distribution whose *logarithms* are `x` from the probabilities
    /// `target`: `target * (ln(target) - x)`. For a target of 0 the loss is 0, and so is the slope of the target.
    ///
    /// The mean is over all elements.
    kl_div KlDiv |x, t| if t == R::zero() { t } else { t * (t.ln() - x) },
        (-t, if t == R::zero() { t } else { t.ln() + R::one() - x });
    /// Computes the cross entropy of the probabilities `x` and `target`: `-target * ln(x) - (1 - target) * ln(1 - x)`.
    /// Logarithms are clamped to at least -100, and the slope is bounded accordingly, as in torch. As there, a probability
    /// or a target outside of 0 to 1 is an error, which a probability that is NaN is not.
    ///
    /// A probability near 1 loses its digits in 16 bit: prefer [`bce_with_logits`](Tensor::bce_with_logits).
    binary_cross_entropy BinaryCrossEntropy |x, t| -t * least_log(x) - (R::one() - t) * least_log(R::one() - x),
        ((x - t) / ((R::one() - x) * x).max(R::of(1e-12)), least_log(R::one() - x) - least_log(x));
    /// Computes `ln(1 + exp(-target * x))` for targets of -1 and 1, without overflow.
    soft_margin_loss SoftMarginLoss |x, t| softplus(part(-t, x)), {
        let slope = sigmoid(part(-t, x));
        (-t * slope, part(slope, -x))
    };
}

/// Computes `x - t`, with 0 for equal numbers including infinities.
#[inline(always)]
fn difference<R: Real>(x: R, t: R) -> R {
    if x == t { R::zero() } else { x - t }
}

/// Computes `ln(x)`, at least -100.
#[inline(always)]
fn least_log<R: Real>(x: R) -> R {
    let log = x.ln();
    if log < R::of(-100.0) { R::of(-100.0) } else { log }
}

#[derive(Clone, Copy)]
struct SmoothL1 {
    beta: f64,
}

impl Binary for SmoothL1 {
    #[inline(always)]
    fn value<R: Real>(self, x: R, t: R) -> R {
        let (d, beta) = (difference(x, t).abs(), R::of(self.beta));
        // In this order no square overflows.
        if d < beta { R::of(0.5) * d * (d / beta) } else { d - R::of(0.5) * beta }
    }
    #[inline(always)]
    fn slopes<R: Real>(self, x: R, t: R) -> (R, R) {
        let (d, beta) = (difference(x, t), R::of(self.beta));
        let slope = if d.abs() < beta { d / beta } else { sign(d) };
        (slope, -slope)
    }
}

impl Tensor {
    /// Computes `d² / (2 beta)` where `d = |x - target|` is below `beta`, `d - beta / 2` elsewhere (Girshick 2015).
    ///
    /// # Errors
    /// As for [`l1_loss`](Tensor::l1_loss); [`ErrorKind::Value`](crate::ErrorKind::Value) when `beta` is negative or
    /// NaN.
    pub fn smooth_l1_loss(&self, target: &Tensor, beta: f64, reduction: Reduction) -> Result<Tensor> {
        if beta.is_nan() || beta < 0.0 {
            return Err(Error::value(format!("beta = {beta}; allowed: 0 and above")).in_op(Op::SmoothL1Loss.name()));
        }
        loss(call!(Op::SmoothL1Loss, &[self, target]; beta, reduction), SmoothL1 { beta }, reduction)
    }
}

#[derive(Clone, Copy)]
struct Huber {
    delta: f64,
}

impl Binary for Huber {
    #[inline(always)]
    fn value<R: Real>(self, x: R, t: R) -> R {
        let (d, delta, half) = (difference(x, t).abs(), R::of(self.delta), R::of(0.5));
        if d <= delta { half * d * d } else { delta * (d - half * delta) }
    }
    #[inline(always)]
    fn slopes<R: Real>(self, x: R, t: R) -> (R, R) {
        let (d, delta) = (difference(x, t), R::of(self.delta));
        let slope = if d.abs() <= delta { d } else { delta * sign(d) };
        (slope, -slope)
    }
}

#[derive(Clone, Copy)]
struct PoissonNll {
    log_input: bool,
}

/// Added to a rate to keep the logarithm of 0 finite.
const LEAST_RATE: f64 = 1e-8;

impl Binary for PoissonNll {
    #[inline(always)]
    fn value<R: Real>(self, x: R, t: R) -> R {
        // At infinity the first term outgrows the second.
        if x == R::infinity() && t.is_finite() {
            x
        } else if self.log_input {
            let rate = math::exp(x);
            if rate == R::infinity() && t.is_finite() { rate } else { rate - part(t, x) }
        } else {
            x - t * (x + R::of(LEAST_RATE)).ln()
        }
    }
    #[inline(always)]
    fn slopes<R: Real>(self, x: R, t: R) -> (R, R) {
        match self.log_input {
            true => (math::exp(x) - t, -x),
            false => (R::one() - t / (x + R::of(LEAST_RATE)), -(x + R::of(LEAST_RATE)).ln()),
        }
    }
}

#[derive(Clone, Copy)]
struct Hinge {
    margin: f64,
}

impl Binary for Hinge {
    const FLAT: bool = true;
    #[inline(always)]
    fn value<R: Real>(self, x: R, t: R) -> R {
        let below = R::of(self.margin) - x;
        if t > R::zero() {
            x
        } else if below > R::zero() || below.is_nan() {
            below
        } else {
            R::zero()
        }
    }
    #[inline(always)]
    fn slopes<R: Real>(self, x: R, t: R) -> (R, R) {
        let slope = if t > R::zero() {
            R::one()
        } else if x < R::of(self.margin) {
            -R::one()
        } else {
            R::zero()
        };
        (slope, R::zero())
    }
}

impl Tensor {
    /// Computes `d² / 2` where `d = |x - target|` is at most `delta`, `delta * (d - delta / 2)` elsewhere (Huber 1964).
    ///
    /// # Errors
    /// As for [`l1_loss`](Tensor::l1_loss); [`ErrorKind::Value`](crate::ErrorKind::Value) when `delta` is not above 0.
    pub fn huber_loss(&self, target: &Tensor, delta: f64, reduction: Reduction) -> Result<Tensor> {
        if delta.is_nan() || delta <= 0.0 {
            return Err(Error::value(format!("delta = {delta}; allowed: above 0")).in_op(Op::HuberLoss.name()));
        }
        loss(call!(Op::HuberLoss, &[self, target]; delta, reduction), Huber { delta }, reduction)
    }

    /// Computes the negative log-likelihood of counts `target` under Poisson distributions, without the term that
    /// depends on the target alone: `exp(x) - target * x` if x is the logarithm of the rate (`log_input`), else
    /// `x - target * ln(x + 1e-8)`.
    ///
    /// # Errors
    /// As for [`l1_loss`](Tensor::l1_loss).
    pub fn poisson_nll_loss(&self, target: &Tensor, log_input: bool, reduction: Reduction) -> Result<Tensor> {
        loss(call!(Op::PoissonNllLoss, &[self, target]; log_input, reduction), PoissonNll { log_input }, reduction)
    }

    /// Computes the hinge embedding loss for distances x and targets of 1 (similar) and -1: `x` for similar pairs,
    /// `max(0, margin - x)` for the others. Targets may be integers; they have no gradient.
    ///
    /// # Errors
    /// As for [`l1_loss`](Tensor::l1_loss).
    pub fn hinge_embedding_loss(&self, target: &Tensor, margin: f64, reduction: Reduction) -> Result<Tensor> {
        loss(call!(Op::HingeEmbeddingLoss, &[self, target]; margin, reduction), Hinge { margin }, reduction)
    }
}

/// Runs a loss on equal shapes: broadcasting `[n]` with `[n, 1]` would silently give `[n, n]`.
fn loss<F: Binary>(call: Call<'_>, f: F, reduction: Reduction) -> Result<Tensor> {
    let [x, target] = call.inputs else { unreachable!("two inputs") };
    if x.shape() != target.shape() {
        let message = format!("an input of shape {:?} and a target of shape {:?}", x.shape(), target.shape());
        return Err(Error::shape(message + "; " + &cure(x.shape(), target.shape())).in_op(call.op.name()));
    }
    if call.op == Op::BinaryCrossEntropy {
        let from_0_to_1 = |x: f64| (0.0..=1.0).contains(&x);
        // Probabilities that an overflow made NaN are a loss that is NaN, for which a loss scale skips the step.
        domain(x, "probability", "0 to 1", |x| from_0_to_1(x) || x.is_nan())
            .and_then(|()| domain(target, "target", "0 to 1", from_0_to_1))
            .map_err(|error| error.in_op(call.op.name()))?;
    }
    check_head(call.op, x);
    pairwise(call, f, reduction)
}

/// Rejects numbers that a loss is not defined for, by their place in row-major order.
pub(super) fn domain(x: &Tensor, what: &str, allowed: &str, is_allowed: impl Fn(f64) -> bool) -> Result<()> {
    let first = match x.dtype().is_float() {
        true => by_float!(x, T => Ok(elements::<T>(x).iter().position(|x| !is_allowed(x.widen().as_f64()))))?,
        false => x.to_f64().iter().position(|x| !is_allowed(*x)),
    };
    let Some(place) = first else { return Ok(()) };
    Err(Error::value(format!("{what} {place} is {}; allowed: {allowed}", x.to_f64()[place])))
}

/// Returns the allowed shapes, with a way from those that were met.
fn cure(x: &[usize], target: &[usize]) -> String {
    let is_column_of = |long: &[usize], short: &[usize]| long.split_last() == Some((&1, short));
    let way = match () {
        () if is_column_of(x, target) => ", as after `squeeze(-1)` of the input".to_string(),
        () if is_column_of(target, x) => ", as after `squeeze(-1)` of the target".to_string(),
        () if x.iter().product::<usize>() == target.iter().product::<usize>() => {
            format!(", as after `reshape(&{x:?})` of the target")
        }
        () => String::new(),
    };
    format!("allowed: equal shapes{way}")
}
