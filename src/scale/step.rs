//! One training step: scale the loss, run the backward pass, unscale and check the gradients, update.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use precast_tensor::{LeafId, Scaling, Unscaled, internals::GradsInternals as _, pass::Pass};
use serde::{Deserialize, Serialize};

use super::{LossScale, ScaledGrads, scaled::IntoLoss};
use crate::{
    Grads,
    cell::Params,
    error::{Error, Result},
    observe::Origin,
    optim::Optimizer,
    printable::{number, printable},
};

/// The outcome of a training step.
pub type Outcome = precast_policy::scale::Outcome<Cause>;

/// The cause of a skipped step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Cause {
    /// The loss was not finite before it was scaled. The scale is not the cause and stays the same.
    Loss {
        /// First result that was not finite, if a monitor of `precast-diagnose` watched the step.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        origin: Option<Box<Origin>>,
    },
    /// The loss was finite, but a gradient was not, at this scale.
    Overflow {
        /// The loss scale of the step.
        scale: f32,
        /// Path of the first parameter, in the order of the backward pass, with a non-finite gradient; empty for a
        /// gradient that is part of the loss.
        first: String,
        /// First result that was not finite, if a monitor of `precast-diagnose` watched the step.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        origin: Option<Box<Origin>>,
    },
    /// Loss and gradients were finite, but the forward pass would have stored a non-finite number, such as a running
    /// variance. The scale is not the cause and stays the same.
    Stored {
        /// Path of the first parameter or buffer.
        first: String,
    },
    /// No target of the batch counts: all are ignored, or have weight 0. There is no loss, and nothing is at fault.
    NoTarget,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Loss { .. } => f.write_str("the loss itself was not finite")?,
            Cause::Overflow { scale, first, .. } if first.is_empty() => {
                write!(f, "a gradient that is part of the loss was not finite at loss scale {}", number(*scale))?;
            }
            Cause::Overflow { scale, first, .. } => {
                let (scale, first) = (number(*scale), printable(first));
                write!(f, "a gradient was not finite at loss scale {scale}, first seen in `{first}`")?;
            }
            Cause::Stored { first } => {
                write!(f, "the forward pass would have stored a number in `{}` that is not finite", printable(first))?;
            }
            Cause::NoTarget => f.write_str("no target of the batch counts")?,
        }
        self.origin().map_or(Ok(()), |origin| write!(f, "; it began with {origin}"))
    }
}

impl Cause {
    /// Returns the first result of the step that was not finite, if a monitor of `precast-diagnose` watched it.
    pub fn origin(&self) -> Option<&Origin> {
        match self {
            Cause::Loss { origin } | Cause::Overflow { origin, .. } => origin.as_deref(),
            Cause::Stored { .. } | Cause::NoTarget => None,
        }
    }

    /// Adds the first result of the step that was not finite.
    pub fn began_with(mut self, found: Option<Origin>) -> Self {
        if let Cause::Loss { origin } | Cause::Overflow { origin, .. } = &mut self {
            *origin = found.map(Box::new);
        }
        self
    }
}

/// Findings of optimizers since the last [`update`](LossScale::update).
#[derive(Default)]
pub(super) struct Votes {
    /// The first parameter of each optimizer.
    pub(super) optimizers: Vec<LeafId>,
    worst: Option<Cause>,
    /// The forward passes of skipped steps.
    skipped: Vec<Arc<Pass>>,
    /// Set when a gradient of a scaled loss that is part of another loss overflowed.
    pub(super) on_tape: Arc<AtomicBool>,
}

impl Votes {
    pub(super) fn overflowed_on_tape(&self) -> bool {
        self.on_tape.load(Ordering::Relaxed)
    }
}

impl Clone for Votes {
    /// Losses scaled before the clone vote for the original.
    fn clone(&self) -> Self {
        let on_tape = Arc::new(AtomicBool::new(self.overflowed_on_tape()));
        Votes { optimizers: self.optimizers.clone(), worst: self.worst.clone(), skipped: self.skipped.clone(), on_tape }
    }
}

impl fmt::Debug for Votes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Votes({} optimizers, worst {:?})", self.optimizers.len(), self.worst)
    }
}

impl PartialEq for Votes {
    fn eq(&self, other: &Self) -> bool {
        self.optimizers == other.optimizers
            && self.worst == other.worst
            && self.overflowed_on_tape() == other.overflowed_on_tape()
    }
}

impl LossScale {
    /// Takes one training step from a loss: scales the loss, runs the backward pass, unscales the gradients, and lets
    /// the optimizer update its parameters if every gradient is finite. Then [updates](LossScale::update) the scale.
    ///
    /// It is equivalent to these four lines, which a custom loop writes out to look at gradients, or to use several losses
    /// or optimizers:
    ///
    /// ```
    /// # use precast::{prelude::*, DType, Param};
    /// # let weight = Param::new(Tensor::ones(&[2], DType::F32));
    /// # let mut optimizer = Sgd::new([weight.clone()].into_iter().collect(), 0.1);
    /// # let (mut scale, loss) = (LossScale::dynamic(), weight.tensor().sum_all()?);
    /// let mut scaled = scale.scale(&loss)?.backward()?;
    /// let grads = scaled.unscale(optimizer.params())?;
    /// let outcome = scale.apply(&mut optimizer, &grads)?;
    /// scale.update()?;
    /// # assert_eq!(outcome, precast::Outcome::Stepped);
    /// # Ok::<(), precast::Error>(())
    /// ```
    ///
    /// As in MindSpore, PyTorch, Paddle and TensorFlow, a non-finite gradient skips the update. Unlike there, a loss
    /// that was not finite before scaling leaves the scale unchanged: a smaller scale would not help.
    ///
    /// A loss passed by value (`loss` instead of `&loss`) gives up its tape: activations are freed during the backward
    /// pass, and the step needs less memory.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the loss is not a floating scalar;
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when it depends on none of the optimizer's parameters; and those
    /// of the optimizer. On an error nothing is updated.
    pub fn step(&mut self, optimizer: &mut dyn Optimizer, loss: impl IntoLoss) -> Result<Outcome> {
        let scaled = self.scale(loss)?.into_grads_before_update()?;
        self.step_grads(optimizer, scaled, None, |optimizer, grads| optimizer.update(grads))
    }

    /// Takes one training step as [`step`](LossScale::step) does, with the [norm](crate::Grads::clip_norm) of the
    /// unscaled gradients of the optimizer's parameters clipped to `max_norm`.
    ///
    /// ```
    /// # use precast::{prelude::*, DType, Param};
    /// let weight = Param::new(Tensor::from([3f32, 4.0]));
    /// let mut optimizer = Sgd::new([weight.clone()].into_iter().collect(), 1.0);
    /// let loss = (weight.tensor().square()?.sum_all()? / 2.0)?; // its gradient is the weight, of norm 5
    /// # let outcome =
    /// LossScale::dynamic().step_clipped(&mut optimizer, loss, 1.0)?;
    /// # assert_eq!(outcome, precast::Outcome::Stepped);
    /// assert!(weight.value().all_close(&Tensor::from([2.4f32, 3.2]), 1e-6, 0.0)?);
    /// # Ok::<(), precast::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`step`](LossScale::step); also [`ErrorKind::Value`](crate::ErrorKind::Value) when `max_norm` is not a
    /// positive finite number. On an error nothing is updated.
    pub fn step_clipped(
        &mut self,
        optimizer: &mut dyn Optimizer,
        loss: impl IntoLoss,
        max_norm: f64,
    ) -> Result<Outcome> {
        let scaled = self.scale(loss)?.into_grads_before_update()?;
        self.step_grads(optimizer, scaled, Some(max_norm), |optimizer, grads| optimizer.update(grads))
    }

    /// Takes a step from gradients as [`step`](LossScale::step) does, with their norm clipped to `max_norm` and this update:
    /// all of one step, for a loop that computes gradients by itself or divides updates among ranks.
    ///
    /// ```
    /// use precast::prelude::*;
    /// let net = Child::new(Dense::new(4, 2, &mut Rng::seed(1)));
    /// let mut optimizer = Adam::new(net.params(), 0.01);
    /// let mut scale = LossScale::dynamic();
    /// let loss = net.call(&Tensor::ones(&[3, 4], DType::F32))?.sum_all()?;
    /// let grads = scale.scale(loss)?.into_grads()?;
    /// let outcome = scale.step_grads(&mut optimizer, grads, Some(1.0), |optimizer, grads| optimizer.update(grads))?;
    /// assert_eq!(outcome, Outcome::Stepped);
    /// # Ok::<(), precast::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`step_clipped`](LossScale::step_clipped), and those of the update.
    pub fn step_grads(
        &mut self,
        optimizer: &mut dyn Optimizer,
        mut scaled: ScaledGrads,
        max_norm: Option<f64>,
        update: impl FnOnce(&mut dyn Optimizer, &Grads) -> Result<()>,
    ) -> Result<Outcome> {
        let unscaled = scaled.unscale(optimizer.params()).and_then(|mut grads| {
            max_norm.map_or(Ok(()), |max| grads.clip_norm(max).map(drop))?;
            Ok(grads)
        });
        scaled.warn_of_late(optimizer.params());
        let outcome = match unscaled.and_then(|grads| self.apply_with(optimizer, &grads, update)) {
            Ok(outcome) => outcome,
            Err(error) => {
                scaled.discard();
                return Err(error);
            }
        };
        self.update()?;
        Ok(outcome)
    }

    /// Lets an optimizer update its parameters if every gradient is finite. The gradients must have been
    /// [unscaled](super::ScaledGrads::unscale) for the parameters of this optimizer.
    ///
    /// A gradient [replaced](Grads::set) since then is checked again.
    ///
    /// With several optimizers, each applies its own gradients, and one of them may be skipped while the others step.
    /// One [`update`](LossScale::update) counts their votes together.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for gradients that were never scaled by a loss scale, and when the
    /// same optimizer was already applied since the last [`update`](LossScale::update); and those of the optimizer. On
    /// an error nothing is updated.
    pub fn apply(&mut self, optimizer: &mut dyn Optimizer, grads: &Grads) -> Result<Outcome> {
        self.apply_with(optimizer, grads, |optimizer, grads| optimizer.update(grads))
    }

    fn apply_with(
        &mut self,
        optimizer: &mut dyn Optimizer,
        grads: &Grads,
        update: impl FnOnce(&mut dyn Optimizer, &Grads) -> Result<()>,
    ) -> Result<Outcome> {
        let Some(unscaled) = grads.scale_checks() else {
            return Err(Error::value(
                "these gradients come from a loss that was not scaled; allowed: those of `LossScale::scale`, `backward` and \
                 `unscale`",
            ));
        };
        let id = self.not_applied(optimizer)?;
        let replaced = || if unscaled.replaced { first_of(grads, optimizer.params()) } else { None };
        let Some(cause) = self.against(grads, unscaled, unscaled.first.clone().or_else(replaced)) else {
            update(optimizer, grads)?;
            grads.settle();
            self.votes.optimizers.extend(id);
            return Ok(Outcome::Stepped);
        };
        self.votes.optimizers.extend(id);
        Ok(self.skipped(grads, cause))
    }

    /// Returns the first parameter of an optimizer that was not applied since the last [`update`](LossScale::update).
    pub(super) fn not_applied(&self, optimizer: &dyn Optimizer) -> Result<Option<LeafId>> {
        let first = optimizer.params().iter().map(|(path, param)| (path, param.id())).next();
        if let Some((path, id)) = first
            && self.votes.optimizers.contains(&id)
        {
            return Err(Error::value(format!(
                "`{path}` already has its update of this step, by this optimizer or by another of the same parameters; call \
                 `LossScale::update` before the next step"
            )));
        }
        Ok(first.map(|(_, id)| id))
    }

    /// Skips the step of these gradients.
    pub(super) fn skipped(&mut self, grads: &Grads, cause: Cause) -> Outcome {
        // Another optimizer may take a step of the same forward pass.
        grads.doubt();
        self.votes.skipped.extend_from_slice(grads.passes());
        // A scale that overflowed shrinks, whatever else went wrong.
        if !matches!(self.votes.worst, Some(Cause::Overflow { .. })) {
            self.votes.worst = Some(cause.clone());
        }
        let (skipped, stalled) = self.machine.after_skip(matches!(cause, Cause::Overflow { .. }));
        if stalled {
            tracing::error!(target: "precast", %cause, skipped, scale = self.value(), "training has stalled");
            Outcome::Stalled { cause, skipped }
        } else {
            tracing::warn!(target: "precast", %cause, skipped, scale = self.value(), "step skipped");
            Outcome::Skipped { cause }
        }
    }

    /// Returns the cause for skipping the step of these gradients, whose non-finite one is `first`.
    pub(super) fn against(&self, grads: &Grads, unscaled: &Unscaled, first: Option<String>) -> Option<Cause> {
        let Scaling { scale, finite_loss, .. } = unscaled.scaling;
        let by_scale = finite_loss || self.votes.overflowed_on_tape();
        match first {
            Some(first) if by_scale => Some(Cause::Overflow { scale, first, origin: None }),
            None if finite_loss => grads.refused().map(|path| Cause::Stored { first: path.to_string() }),
            None if by_scale => Some(Cause::Overflow { scale, first: String::new(), origin: None }),
            _ => Some(Cause::Loss { origin: None }),
        }
    }

    /// Ends a step: sets the scale of the next one from the results of [`apply`](LossScale::apply). One non-finite
    /// gradient, in any optimizer, [shrinks](LossScale::adjust) it. A loss that was itself not finite leaves it
    /// unchanged.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when no gradients were applied since the last call.
    pub fn update(&mut self) -> Result<()> {
        if self.votes.optimizers.is_empty() {
            return Err(Error::value(
                "no gradients were applied since the last `update`; call `LossScale::apply` for each optimizer first",
            ));
        }
        let votes = std::mem::take(&mut self.votes);
        // Passes of a step taken by another optimizer are settled.
        votes.skipped.iter().for_each(|pass| pass.take_back());
        match votes.worst {
            None => self.adjust(true),
            Some(Cause::Overflow { .. }) => self.adjust(false),
            Some(_) => self.machine.skip(),
        }
        Ok(())
    }
}

/// Returns whether every gradient of `params` is finite. A parameter without a gradient counts as finite. If one is
/// not, and no optimizer is given the gradients regardless, the values stored by the forward pass are reverted when
/// they are dropped.
pub fn all_finite(grads: &Grads, params: &Params) -> bool {
    let finite = first_of(grads, params).is_none();
    if !finite {
        grads.doubt();
    }
    finite
}

/// Returns the path of the first parameter with a non-finite gradient.
fn first_of(grads: &Grads, params: &Params) -> Option<String> {
    let bad = params.iter().filter(|(_, param)| grads.get(param).is_some_and(|grad| !grad.has_only_finite()));
    bad.min_by_key(|(_, param)| grads.arrival(param.id())).map(|(path, _)| path.to_string())
}
