//! One step of a run: forward and backward passes over the parts of its batch, and the update.

use std::{mem, time::Instant};

use precast::{
    Child, Outcome, Tensor,
    cell::AsCell,
    error::Result,
    optim::Optimizer,
    plan::check_run,
    scale::{Cause, LossScale, ScaledGrads},
};
use precast_mpi::{Alone, Ranks, Wire};

use super::Fit;
use crate::{
    data::{Batch, Split},
    training::{
        DataParallel, FitOptions, Loss, Step,
        augment::Mixed,
        data_parallel::LastPass,
        shards::{OfShard, cut},
    },
};

impl Fit {
    /// Returns the learning rate of the update with this index, from 0, under the schedule.
    pub(super) fn lr_of(&self, update: usize, examples: usize) -> f64 {
        let FitOptions { lr, schedule, warm_up, .. } = &self.options;
        let factor = schedule.factor_after(*warm_up, update, self.options.steps(examples));
        lr * (factor * self.plateau.factor(*schedule))
    }

    /// Returns the shards of the next batch, each in parts, [augmented](FitOptions::augment).
    pub(super) fn augmented(&self, parts: Vec<Batch>, data: &Split) -> Result<Vec<Vec<Mixed>>> {
        let FitOptions { augment, accumulate, seed, shards, .. } = &self.options;
        let (_, examples) = self.batch_at(self.place.step, data);
        let parts =
            augment.applied(parts, *seed, self.place.epoch, (self.place.step.saturating_mul(*accumulate), examples))?;
        cut(parts, *shards)
    }

    /// Runs a step on a batch, with the current learning rate.
    pub(super) fn step<C: ?Sized + AsCell>(
        &mut self,
        net: &Child<C>,
        shards: &[Vec<Mixed>],
        data: &Split,
        mut parallel: Option<&mut DataParallel<'_>>,
    ) -> Result<Step> {
        self.optimizer.set_lr(self.lr_of(self.place.stepped, data.train.len()));
        let Fit { options, scale, optimizer, place, checked, monitor, history, .. } = self;
        let clip = &options.clip;
        let loss = options.loss_on(data.train.targets());
        if !shards.iter().flatten().any(|part| loss.counts(&part.batch.y)) {
            let outcome = Outcome::Skipped { cause: Cause::NoTarget };
            let (epoch, scale) = (place.epoch, scale.value());
            return Ok(Step { epoch, loss: f64::NAN, weight: 0.0, scale, outcome, seconds: 0.0, swallowed: None });
        }
        let mut one = |net: &Child<C>| {
            let at = (place.epoch, place.steps);
            let mut train = |net: &Child<C>| {
                train_step(net, (shards, parallel.as_deref_mut()), &loss, at, scale, (optimizer.as_mut(), *clip))
            };
            if !options.monitor {
                return train(net);
            }
            let (step, bytes) = monitor.watch(net, train)?;
            let origin = match &parallel {
                Some(parallel) => parallel.first_origin(monitor)?,
                None => monitor.fault().map(|fault| fault.origin()),
            };
            Ok((step.with_origin(origin), bytes))
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

/// Runs one step on the shards of a batch, each in parts, and returns its result with the most bytes kept by a tape.
/// Gradients are those of the mean loss of the whole batch, whatever the number of its shards and parts.
pub(super) fn train_step<C: ?Sized + AsCell>(
    net: &Child<C>,
    (shards, parallel): (&[Vec<Mixed>], Option<&mut DataParallel<'_>>),
    loss: &Loss,
    (epoch, number): (usize, usize),
    scale: &mut LossScale,
    (optimizer, clip): (&mut dyn Optimizer, Option<f64>),
) -> Result<(Step, usize)> {
    let start = Instant::now();
    let before = scale.value();
    let all: f64 = shards.iter().flatten().map(|part| loss.weight_of(&part.batch.y)).sum();
    let step = |value, outcome| Step {
        epoch,
        loss: value,
        weight: all,
        scale: before,
        outcome,
        seconds: start.elapsed().as_secs_f64(),
        swallowed: None,
    };
    let mut passes = Passes { net, loss, all, kept: 0 };
    let (value, outcome) = match shards {
        [parts] => match passes.gradients(parts, scale, &mut |last, _| last.into_grads_before_update())? {
            Some(OfShard { grads, loss, .. }) => {
                (loss, scale.step_grads(optimizer, grads, clip, |optimizer, grads| optimizer.update(grads))?)
            }
            None => (f64::NAN, Outcome::Skipped { cause: Cause::NoTarget }),
        },
        shards => {
            let current = scale.clone();
            let of_shard =
                |shard: usize, last_pass: &mut LastPass<'_>| passes.gradients(&shards[shard], &current, last_pass);
            let take = |parallel: &mut DataParallel<'_>| {
                parallel.set_steps(number as u64);
                parallel.take(net, (optimizer, clip), scale, of_shard)
            };
            match parallel {
                Some(parallel) => take(parallel)?,
                None => take(&mut DataParallel::new(&Ranks::new(Box::new(Alone)), shards.len(), Wire::Float32)?)?,
            }
        }
    };
    Ok((step(value, outcome), passes.kept))
}

/// Forward and backward passes of a step.
struct Passes<'a, C: ?Sized> {
    net: &'a Child<C>,
    loss: &'a Loss,
    /// The weight of all targets of the step.
    all: f64,
    /// Most bytes kept by a tape so far.
    kept: usize,
}

impl<C: ?Sized + AsCell> Passes<'_, C> {
    /// Returns the sum of the gradients of some parts; `None` if no target counts.
    fn gradients(
        &mut self,
        parts: &[Mixed],
        scale: &LossScale,
        last_pass: &mut LastPass<'_>,
    ) -> Result<Option<OfShard>> {
        let weights = parts.iter().map(|part| (part, self.loss.weight_of(&part.batch.y)));
        let counting: Vec<(&Mixed, f64)> = weights.filter(|(_, weight)| *weight > 0.0).collect();
        let Some((last, earlier)) = counting.split_last() else { return Ok(None) };
        let (mut loss, mut sum) = (0.0, None::<ScaledGrads>);
        for part in earlier {
            let grads = scale.scale(self.loss_of(part, &mut loss)?)?.into_grads()?;
            match &mut sum {
                None => sum = Some(grads),
                Some(sum) => sum.accumulate(grads)?,
            }
        }
        let last = scale.scale(self.loss_of(last, &mut loss)?)?;
        let mut grads = last_pass(last, sum.as_ref())?;
        if let Some(sum) = sum {
            grads.accumulate(sum)?;
        }
        let weight: f64 = counting.iter().map(|(_, weight)| weight).sum();
        Ok(Some(OfShard { grads, share: weight / self.all, loss }))
    }

    /// Runs the forward pass of a part, and returns its share of the loss of the step, which it adds to `total`.
    fn loss_of(&mut self, &(part, weight): &(&Mixed, f64), total: &mut f64) -> Result<Tensor> {
        let outputs = part.batch.call(self.net)?;
        let mut loss = self.loss.of(&outputs, &part.batch.y)?;
        let scaled = |x: &Tensor, by: f64| x.mul(&Tensor::scalar(by, x.dtype()));
        if let Some((others, share)) = &part.others {
            loss = scaled(&loss, *share)?.add(&scaled(&self.loss.of(&outputs, others)?, 1.0 - share)?)?;
        }
        if weight != self.all {
            loss = scaled(&loss, weight / self.all)?;
        }
        *total += loss.item()?;
        self.kept = self.kept.max(loss.tape_bytes());
        Ok(loss)
    }
}
