//! One step of a run: forward and backward passes over the parts of its batch, and the update.

use std::{mem, time::Instant};

use super::Fit;
use crate::{
    Child, Outcome, Tensor,
    cell::AsCell,
    error::Result,
    optim::Optimizer,
    plan::check_run,
    scale::{Cause, LossScale},
    train::{
        FitOptions, Loss, Step,
        augment::Mixed,
        data::{Batch, Split},
    },
};

impl Fit {
    /// Returns the learning rate of the update with this index, from 0, under the schedule.
    pub(super) fn lr_of(&self, update: usize, examples: usize) -> f64 {
        let FitOptions { lr, schedule, warm_up, .. } = &self.options;
        let factor = schedule.factor_after(*warm_up, update, self.options.steps(examples));
        lr * (factor * self.plateau.factor(*schedule))
    }

    /// Returns the parts of the next batch, [augmented](FitOptions::augment).
    pub(super) fn augmented(&self, parts: Vec<Batch>, data: &Split) -> Result<Vec<Mixed>> {
        let FitOptions { augment, accumulate, seed, .. } = &self.options;
        let (_, examples) = self.batch_at(self.place.step, data);
        augment.applied(parts, *seed, self.place.epoch, (self.place.step.saturating_mul(*accumulate), examples))
    }

    /// Runs a step on a batch, with the current learning rate.
    pub(super) fn step<C: ?Sized + AsCell>(
        &mut self,
        net: &Child<C>,
        parts: &[Mixed],
        examples: usize,
    ) -> Result<Step> {
        self.optimizer.set_lr(self.lr_of(self.place.stepped, examples));
        let Fit { options, scale, optimizer, place, checked, monitor, history, .. } = self;
        let clip = &options.clip;
        let is_of_numbers = parts.iter().any(|part| part.batch.y.dtype().is_float());
        let usual = || if is_of_numbers { Loss::Mse {} } else { Loss::cross_entropy() };
        let loss = options.loss.clone().unwrap_or_else(usual);
        if !parts.iter().any(|part| loss.counts(&part.batch.y)) {
            let outcome = Outcome::Skipped { cause: Cause::NoTarget };
            let (epoch, scale) = (place.epoch, scale.value());
            return Ok(Step { epoch, loss: f64::NAN, scale, outcome, seconds: 0.0, swallowed: None });
        }
        let mut one = |net: &Child<C>| {
            let mut train =
                |net: &Child<C>| train_step(net, parts, &loss, place.epoch, scale, (optimizer.as_mut(), *clip));
            if !options.monitor {
                return train(net);
            }
            let (step, bytes) = monitor.watch(net, train)?;
            Ok((step.with_fault(monitor.fault().as_ref()), bytes))
        };
        let (step, tape_bytes) = if mem::replace(checked, true) {
            one(net)?
        } else {
            let (result, trace) = net.trace(one);
            if !history.steps.iter().any(Step::was_run) {
                history.casts = trace.casts();
            }
            let step = result?;
            check_run(net, &trace)?;
            step
        };
        if !history.steps.iter().any(Step::was_run) {
            history.tape_bytes = tape_bytes;
        }
        Ok(step)
    }
}

/// Runs one step on the parts of a batch, and returns its result with the most bytes kept by a tape. Gradients are those
/// of the mean loss of the whole batch, whatever the number of its parts.
pub(super) fn train_step<C: ?Sized + AsCell>(
    net: &Child<C>,
    parts: &[Mixed],
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
    let weights: Vec<f64> = parts.iter().map(|part| loss.weight_of(&part.batch.y)).collect();
    let all: f64 = weights.iter().sum();
    let counting: Vec<(&Mixed, f64)> = parts.iter().zip(weights).filter(|(_, weight)| *weight > 0.0).collect();
    let Some((last, earlier)) = counting.split_last() else {
        return Ok((step(f64::NAN, Outcome::Skipped { cause: Cause::NoTarget }), 0));
    };
    let (mut value, mut kept, mut sum) = (0.0, 0, None);
    let mut of_part = |&(part, weight): &(&Mixed, f64)| -> Result<Tensor> {
        let outputs = part.batch.call(net)?;
        let mut of_part = loss.of(&outputs, &part.batch.y)?;
        if let Some((others, share)) = &part.others {
            let scaled = |x: &Tensor, by: f64| x.mul(&Tensor::scalar(by, x.dtype()));
            of_part = scaled(&of_part, *share)?.add(&scaled(&loss.of(&outputs, others)?, 1.0 - share)?)?;
        }
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
