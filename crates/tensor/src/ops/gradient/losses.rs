//! Losses, written with other ops.

use super::chain::{Chain, Formula, of};
use crate::{
    DType, Op, Tensor,
    catalogue::Attributes,
    error::Result,
    ops::{CrossEntropy, Reduction},
};

/// Returns the formula of a loss on pairs of numbers.
pub(super) fn of_pairs(op: Op) -> Option<Formula> {
    /// Defines the loss of an input and a target, with the named attributes.
    macro_rules! pairs {
        (|$x:ident, $t:ident $(, $name:ident: $type:ty)*| $loss:expr) => {
            |attributes, inputs| {
                let ($x, $t) = (of(&inputs[0]), of(&inputs[1]));
                $(let $name: $type = attributes.get(stringify!($name))?;)*
                reduced($loss.done()?, attributes.get("reduction")?)
            }
        };
    }
    Some(match op {
        Op::MseLoss => pairs!(|x, t| (x - t).square()),
        Op::L1Loss => pairs!(|x, t| (x - t).abs()),
        Op::BceWithLogits => pairs!(|x, t| x.clone().softplus() - t * x),
        Op::KlDiv => pairs!(|x, t| {
            let some = 1.0 - t.is(0.0);
            (t.clone() * (t.or(&some, 1.0).log() - x)).or(&some, 0.0)
        }),
        Op::BinaryCrossEntropy => {
            pairs!(|x, t| -(t.clone() * least_log(x.clone())) - (1.0 - t) * least_log(1.0 - x))
        }
        Op::SoftMarginLoss => pairs!(|x, t| (-t * x).softplus()),
        Op::SmoothL1Loss => pairs!(|x, t, beta: f64| {
            let d = (x - t).abs();
            // For equal tensors the slope is 0, even if beta is 0.
            let near = d.below(beta);
            let square = d.clone().square() * if beta > 0.0 { 0.5 / beta } else { 0.0 };
            square.or(&near, d - 0.5 * beta)
        }),
        Op::HuberLoss => pairs!(|x, t, delta: f64| {
            let d = (x - t).abs();
            let near = 1.0 - d.above(delta);
            (0.5 * d.clone().square()).or(&near, delta * (d - 0.5 * delta))
        }),
        Op::PoissonNllLoss => pairs!(|x, t, log_input: bool| match log_input {
            true => x.clone().exp() - t * x,
            false => x.clone() - t * (x + 1e-8).log(),
        }),
        Op::HingeEmbeddingLoss => pairs!(|x, t, margin: f64| x.clone().or(&t.above(0.0), (margin - x).relu())),
        _ => return None,
    })
}

fn reduced(losses: Tensor, reduction: Reduction) -> Result<Tensor> {
    match reduction {
        Reduction::Mean => losses.mean_all(),
        Reduction::Sum => losses.sum_all(),
        Reduction::None => Ok(losses),
    }
}

/// Computes `ln(x)`, at least -100.
fn least_log(x: Chain) -> Chain {
    x.then(|x| x.clamp((-100f64).exp(), f64::INFINITY)).log()
}

pub(super) fn cross_entropy(attributes: &Attributes, inputs: &[Tensor]) -> Result<Tensor> {
    let options = CrossEntropy::of_attributes(attributes)?;
    let (x, target) = (&inputs[0], &inputs[1]);
    let axis = usize::from(x.rank() > 1);
    let (classes, inner) = (x.shape()[axis], x.shape()[axis + 1..].iter().product::<usize>());
    let weights = match &options.weight {
        Some(weight) => weight.to_f64(),
        None => vec![1.0; classes],
    };
    let (smoothing, samples) = (options.label_smoothing, x.len() / classes.max(1));
    let (targets, divisor) = if target.dtype() == DType::I64 {
        let mut targets = vec![0.0; x.len()];
        let mut divisor = 0.0;
        for (sample, class) in target.to_vec::<i64>()?.into_iter().enumerate() {
            if class == options.ignored() {
                continue;
            }
            let first = sample / inner * classes * inner + sample % inner;
            for (c, weight) in weights.iter().enumerate() {
                let one = if c as i64 == class { 1.0 - smoothing } else { 0.0 };
                targets[first + c * inner] = (one + smoothing / classes as f64) * weight;
            }
            divisor += weights[class as usize];
        }
        (Tensor::from_f64(&targets, x.shape(), x.dtype())?, divisor)
    } else {
        let mut shape = vec![1; x.rank()];
        shape[axis] = classes;
        let weights = Tensor::from_f64(&weights, &shape, x.dtype())?;
        let smoothed = of(target) * (1.0 - smoothing) + smoothing / classes as f64;
        ((smoothed * of(&weights)).done()?, samples as f64)
    };
    // A class with target 0 costs nothing, even if its logit is minus infinity.
    let some = 1.0 - of(&targets).is(0.0);
    let losses = -(of(&targets) * of(x).then(|x| x.log_softmax(axis as isize))).or(&some, 0.0);
    let losses = losses.then(|losses| losses.sum(&[axis as isize], false)).done()?;
    match options.reduction {
        Reduction::Mean => losses.sum_all()? / divisor,
        reduction => reduced(losses, reduction),
    }
}
