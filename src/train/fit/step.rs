//! One step of a run: forward and backward passes over the parts of its batch, and the update.

use std::time::Instant;

use super::Fit;
use crate::{
    Child, Outcome, Tensor,
    cell::AsCell,
    error::Result,
    optim::Optimizer,
    scale::{Cause, LossScale},
    train::{FitOptions, Loss, Step, data::Batch},
};

impl Fit {
    /// Returns the learning rate of the update with this index, from 0, under the schedule.
    pub(super) fn lr_of(&self, update: usize, examples: usize) -> f64 {
        let FitOptions { lr, schedule, warm_up, .. } = &self.options;
        let factor = schedule.factor_after(*warm_up, update, self.options.steps(examples));
        lr * (factor * self.plateau.factor(*schedule))
    }
}

/// Runs one step on the parts of a batch, and returns its result with the most bytes kept by a tape. Gradients are those
/// of the mean loss of the whole batch, whatever the number of its parts.
pub(super) fn train_step<C: ?Sized + AsCell>(
    net: &Child<C>,
    parts: &[Batch],
    loss: &Loss,
    epoch: usize,
    scale: &mut LossScale,
    (optimizer, clip): (&mut dyn Optimizer, Option<f64>),
) -> Result<(Step, usize)> {
    let start = Instant::now();
    let before = scale.value();
    let step = |value, outcome| Step {
        epoch,
        loss: value,
        scale: before,
        outcome,
        seconds: start.elapsed().as_secs_f64(),
        swallowed: None,
    };
    let weights: Vec<f64> = parts.iter().map(|part| loss.weight_of(&part.y)).collect();
    let all: f64 = weights.iter().sum();
    let counting: Vec<(&Batch, f64)> = parts.iter().zip(weights).filter(|(_, weight)| *weight > 0.0).collect();
    let Some((last, earlier)) = counting.split_last() else {
        return Ok((step(f64::NAN, Outcome::Skipped { cause: Cause::NoTarget }), 0));
    };
    let (mut value, mut kept, mut sum) = (0.0, 0, None);
    let mut of_part = |&(part, weight): &(&Batch, f64)| -> Result<Tensor> {
        let mut of_part = loss.of(&net.call(&part.x)?, &part.y)?;
        if !earlier.is_empty() {
            of_part = of_part.mul(&Tensor::scalar(weight / all, of_part.dtype()))?;
        }
        (value, kept) = (value + of_part.item()?, of_part.tape_bytes().max(kept));
        Ok(of_part)
    };
    for part in earlier {
        let grads = scale.scale(of_part(part)?)?.into_grads()?;
        match &mut sum {
            None => sum = Some(grads),
            Some(sum) => sum.accumulate(grads)?,
        }
    }
    let mut grads = scale.scale(of_part(last)?)?.into_grads_before_update()?;
    if let Some(sum) = sum {
        grads.accumulate(sum)?;
    }
    let outcome = scale.take(optimizer, grads, clip)?;
    Ok((step(value, outcome), kept))
}
