//! The state machine of a loss scale: the scale of the next step, given whether the gradients of this one were finite.

use precast_base::{Error, Result, printable::number};
use serde::{Deserialize, Serialize};

pub use crate::outcome::{Cause, Outcome};
use crate::policy::{DynamicScale, Forgive, LossScaleSpec};

/// After this many consecutive skipped steps, at a scale that cannot fall, training has stalled.
const PATIENCE: u32 = 20;

/// A loss scale without tensors: the factor by which a loss is multiplied before the backward pass, so that small
/// gradients do not underflow in 16 bits. The gradients are divided by it, and the step is skipped when one of them is
/// not finite.
///
/// The rule of the dynamic scale is in [`adjust`](ScaleMachine::adjust); [`DynamicScale`] has the numbers of other
/// systems.
///
/// ```
/// use precast_policy::{Policy, scale::ScaleMachine};
/// let mut scale = ScaleMachine::new(Policy::named("o2")?.loss_scale)?;
/// assert_eq!(scale.value(), 65536.0);
/// scale.adjust(false); // a gradient was infinite: this step is left out, and the next one has a smaller scale
/// assert_eq!((scale.value(), scale.state().skipped), (32768.0, 1));
/// scale.adjust(true);
/// assert_eq!((scale.value(), scale.state().skipped), (32768.0, 0));
/// # Ok::<(), precast_policy::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ScaleMachine {
    spec: LossScaleSpec,
    state: ScaleState,
}

/// The state of a [`ScaleMachine`], for checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScaleState {
    /// The factor of the loss.
    pub scale: f32,
    /// Finite steps since the scale last changed, or was last due to grow.
    pub counter: u32,
    /// Consecutive skipped steps.
    pub skipped: u32,
    /// Non-finite steps that have not yet reduced the scale; see [`DynamicScale::hysteresis`].
    #[serde(default)]
    pub spared: u32,
}

impl ScaleMachine {
    /// Creates the loss scale of a specification.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a number outside its range.
    pub fn new(spec: LossScaleSpec) -> Result<Self> {
        spec.check()?;
        Ok(ScaleMachine::start(spec))
    }

    /// Creates a scale that starts at 65536, doubles after 2000 finite steps and halves after a non-finite one, between
    /// 1 and 2^24.
    pub fn dynamic() -> Self {
        ScaleMachine::start(LossScaleSpec::Dynamic(DynamicScale::default()))
    }

    /// Creates a scale that never changes: static loss scaling.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) unless the scale is finite and above 0.
    pub fn fixed(scale: f32) -> Result<Self> {
        ScaleMachine::new(LossScaleSpec::Fixed { scale })
    }

    /// Creates a loss scale that scales nothing. A step with non-finite gradients is still skipped.
    pub fn none() -> Self {
        ScaleMachine::start(LossScaleSpec::None)
    }

    fn start(spec: LossScaleSpec) -> Self {
        let scale = match &spec {
            LossScaleSpec::None => 1.0,
            LossScaleSpec::Fixed { scale } => *scale,
            LossScaleSpec::Dynamic(dynamic) => dynamic.init,
        };
        let state = ScaleState { scale, counter: 0, skipped: 0, spared: 0 };
        ScaleMachine { spec, state }
    }

    /// Returns the current factor of the loss.
    pub fn value(&self) -> f32 {
        self.state.scale
    }

    /// Returns the specification it was created from.
    pub fn spec(&self) -> &LossScaleSpec {
        &self.spec
    }

    /// Returns the current state, for a checkpoint.
    pub fn state(&self) -> ScaleState {
        self.state
    }

    /// Sets the scale of the next step manually. The count of finite steps is kept.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a scale outside the range of a dynamic scale; for one that is
    /// not a positive normal float32; and if there is no loss scale.
    pub fn set_scale(&mut self, scale: f32) -> Result<()> {
        let spec = match &self.spec {
            LossScaleSpec::None => return Err(Error::value("a loss scale of kind none has no scale to be set")),
            LossScaleSpec::Fixed { .. } => LossScaleSpec::Fixed { scale },
            spec => spec.clone(),
        };
        let (least, most) = match &spec {
            LossScaleSpec::Dynamic(d) => (d.min, d.max),
            _ => (f32::MIN_POSITIVE, f32::MAX),
        };
        if !(least..=most).contains(&scale) {
            let (scale, least, most) = (number(scale), number(least), number(most));
            return Err(Error::value(format!("the loss scale cannot be set to {scale}; allowed: {least} to {most}")));
        }
        (self.spec, self.state.scale) = (spec, scale);
        Ok(())
    }

    /// Continues from a state taken between two steps, of a loss scale of the same kind. A fixed scale takes its value
    /// from the state, where it may have been [set](ScaleMachine::set_scale) manually. A run that continues with a loss
    /// scale of another kind, for instance in another dtype, does not restore the state: gradients are scaled only
    /// within a step.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a state that this scale cannot reach, such as a scale above
    /// its maximum.
    pub fn restore(&mut self, state: ScaleState) -> Result<()> {
        let ScaleState { scale, counter, spared, .. } = state;
        let (least, most, interval, hysteresis) = match &self.spec {
            LossScaleSpec::Dynamic(d) => (d.min, d.max, d.interval, d.hysteresis),
            LossScaleSpec::Fixed { .. } => (f32::MIN_POSITIVE, f32::MAX, 1, 1),
            LossScaleSpec::None => (1.0, 1.0, 1, 1),
        };
        if matches!(self.spec, LossScaleSpec::None) && (scale, counter, spared) != (1.0, 0, 0) {
            return Err(Error::value(format!(
                "a loss scale of {} cannot be restored; allowed: 1 to 1, as the state has a loss scale and this run has none: use \
                 the kind of loss scale that the state is of, as `LossScale::dynamic()`, or, in a dtype that needs none, \
                 leave the state out",
                number(scale)
            )));
        }
        if matches!(self.spec, LossScaleSpec::Fixed { .. }) && (counter, spared) != (0, 0) {
            return Err(Error::value(format!(
                "a dynamic loss scale of {} cannot be restored where the scale is fixed: use `LossScale::dynamic()`, or \
                 leave the state out",
                number(scale)
            )));
        }
        if !(least..=most).contains(&scale) {
            return Err(Error::value(format!(
                "a loss scale of {} cannot be restored; allowed: {} to {}",
                number(scale),
                number(least),
                number(most)
            )));
        }
        for (name, met, limit) in [("counter", counter, interval), ("`spared`", spared, hysteresis)] {
            if met >= limit {
                return Err(Error::value(format!(
                    "a loss scale's {name} of {met} cannot be restored; allowed: below {limit}"
                )));
            }
        }
        if let LossScaleSpec::Fixed { scale: fixed } = &mut self.spec {
            // It may have been set manually since.
            *fixed = scale;
        }
        self.state = state;
        Ok(())
    }

    /// Sets the scale of the next step; `finite` says whether all gradients of this step were finite.
    ///
    /// A dynamic scale is computed in f64 and rounded to f32. After `interval` consecutive finite steps it is
    /// multiplied by `growth`, unless the product is above `max`. After [`hysteresis`](DynamicScale::hysteresis)
    /// non-finite steps (default: 1) it is multiplied by `backoff`, but does not fall below `min`. The count of finite
    /// steps restarts in all of these cases, even if the scale could not grow. (PyTorch 2.15, `_amp_update_scale_`;
    /// MindSpore 2.10, `mindspore.amp.DynamicLossScaler.adjust`, is the same.)
    pub fn adjust(&mut self, finite: bool) {
        let state = &mut self.state;
        state.skipped = if finite { 0 } else { state.skipped.saturating_add(1) };
        let LossScaleSpec::Dynamic(d) = &self.spec else { return };
        // Each product is exact or nearly so in f64 and rounded once to f32.
        let times = |factor: f64| (f64::from(state.scale) * factor) as f32;
        if finite {
            state.counter += 1;
            let grows = state.counter >= d.interval;
            if grows {
                state.counter = 0;
                let grown = times(d.growth);
                if grown <= d.max && grown != state.scale {
                    tracing::debug!(target: "precast", from = state.scale, to = grown, "loss scale grows");
                    state.scale = grown;
                }
            }
            if grows || d.forgive != Forgive::Growth {
                state.spared = 0;
            }
            return;
        }
        state.counter = 0;
        if state.spared + 1 < d.hysteresis {
            state.spared += 1;
            return;
        }
        if d.forgive == Forgive::Shrink {
            state.spared = 0;
        }
        let shrunk = times(d.backoff).max(d.min);
        if shrunk != state.scale {
            tracing::debug!(target: "precast", from = state.scale, to = shrunk, "loss scale shrinks");
            state.scale = shrunk;
        }
    }

    /// Judges a step and [sets](ScaleMachine::adjust) the scale of the next one. `finite_loss` is whether the loss was
    /// finite before it was scaled; `first_non_finite` is the path of the first parameter whose gradient is not finite.
    ///
    /// A non-finite gradient of a finite loss skips the step and shrinks a dynamic scale. A non-finite loss skips the
    /// step and leaves the scale as it is: a smaller scale would not help.
    ///
    /// ```
    /// use precast_policy::scale::{Cause, Outcome, ScaleMachine};
    /// let mut scale = ScaleMachine::dynamic();
    /// let outcome = scale.judge(true, Some("layers.0.weight".into()));
    /// assert_eq!(
    ///     outcome.to_string(),
    ///     "skipped: a gradient was not finite at loss scale 65536, first seen in `layers.0.weight`"
    /// );
    /// assert_eq!(scale.value(), 32768.0);
    /// assert_eq!(scale.judge(false, None), Outcome::Skipped { cause: Cause::Loss });
    /// assert_eq!(scale.value(), 32768.0);
    /// assert!(scale.judge(true, None).is_step());
    /// ```
    pub fn judge(&mut self, finite_loss: bool, first_non_finite: Option<String>) -> Outcome {
        let cause = match first_non_finite {
            None if finite_loss => {
                self.adjust(true);
                return Outcome::Stepped;
            }
            Some(first) if finite_loss => Cause::Overflow { scale: self.value(), first },
            _ => Cause::Loss,
        };
        let by_scale = matches!(cause, Cause::Overflow { .. });
        let (skipped, stalled) = self.after_skip(by_scale);
        if by_scale {
            self.adjust(false);
        } else {
            self.skip();
        }
        if stalled {
            tracing::error!(target: "precast", %cause, skipped, "training has stalled");
            return Outcome::Stalled { cause, skipped };
        }
        tracing::warn!(target: "precast", %cause, skipped, "step skipped");
        Outcome::Skipped { cause }
    }

    /// Returns the number of consecutive skipped steps if this one is skipped as well, and whether training has stalled
    /// then. `by_scale` is whether a smaller scale would help.
    pub fn after_skip(&self, by_scale: bool) -> (u32, bool) {
        let skipped = self.state.skipped.saturating_add(1);
        (skipped, skipped >= PATIENCE && !(by_scale && self.can_shrink()))
    }

    /// Counts a step that was skipped for a reason other than the scale, such as a non-finite loss.
    pub fn skip(&mut self) {
        self.state.skipped = self.state.skipped.saturating_add(1);
    }

    /// Returns whether non-finite steps lower the scale, now or after more of them.
    pub fn can_shrink(&self) -> bool {
        matches!(&self.spec, LossScaleSpec::Dynamic(d) if d.backoff < 1.0 && self.value() > d.min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Closed form: from 8 down to 1 are three halvings; the scale cannot fall afterwards, and the 20th skip stalls.
    #[test]
    fn a_scale_that_cannot_fall_stalls_at_the_twentieth_skip() {
        let spec = LossScaleSpec::Dynamic(DynamicScale::default().init(8.0));
        let mut scale = ScaleMachine::new(spec).unwrap();
        for skip in 1..=25 {
            let outcome = scale.judge(true, Some("w".into()));
            assert_eq!(matches!(outcome, Outcome::Stalled { .. }), skip >= 20, "{skip}: {outcome}");
            assert_eq!(
                outcome.cause(),
                Some(&Cause::Overflow { scale: (16.0 / 2f32.powi(skip)).max(1.0), first: "w".into() })
            );
        }
        assert_eq!(scale.judge(true, None), Outcome::Stepped);
        assert_eq!(scale.state().skipped, 0);
    }

    #[test]
    fn a_loss_that_is_not_finite_leaves_the_scale() {
        let mut scale = ScaleMachine::dynamic();
        for first in [None, Some("w".to_string())] {
            assert_eq!(scale.judge(false, first), Outcome::Skipped { cause: Cause::Loss });
            assert_eq!(scale.value(), 65536.0);
        }
        assert_eq!(scale.state().skipped, 2);
    }
}
