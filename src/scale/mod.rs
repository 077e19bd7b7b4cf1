//! Loss scaling: the state machine, a training step that uses it, and its parts for a training loop of your own.

mod given;
mod step;

use serde::{Deserialize, Serialize};

pub use given::IntoLossScale;
pub use step::{Cause, Outcome, all_finite};

use crate::{
    error::{Error, Result},
    logging::event,
    policy::{DynamicScale, LossScaleSpec},
};

/// Multiplies the loss before the backward pass, so that small gradients do not underflow in 16 bits, and divides the
/// gradients by the same number after it.
///
/// [`step`](LossScale::step) does all of it. A training loop of your own calls [`scale`](LossScale::scale),
/// [`unscale`](LossScale::unscale), and [`adjust`](LossScale::adjust) once a step.
///
/// The rule of the dynamic scale is that of MindSpore's `DynamicLossScaler`; see [`adjust`](LossScale::adjust).
///
/// ```
/// use precast::{DType, LossScale, Outcome, Param, Sgd, Tensor};
/// let weight = Param::new(Tensor::full(&[2, 1], 0.5, DType::F32));
/// let mut optimizer = Sgd::new([weight.clone()].into_iter().collect(), 0.1);
/// let mut scale = LossScale::dynamic();
///
/// let loss = Tensor::ones(&[1, 2], DType::F16).matmul(&weight.tensor().cast(DType::F16))?.cast(DType::F32);
/// match scale.step(&mut optimizer, &loss)? {
///     Outcome::Skipped { cause, first } => println!("skipped: {cause}, first seen in {first}"),
///     Outcome::Stalled { cause, .. } => panic!("{cause}"),
///     _ => {} // the parameters were updated
/// }
/// // 65536 does not fit into f16, so the first step only finds a lower scale.
/// assert_eq!(scale.value(), 32768.0);
/// # Ok::<(), precast::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct LossScale {
    spec: LossScaleSpec,
    state: ScaleState,
}

/// The state of a [`LossScale`], for checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScaleState {
    /// The number the loss is multiplied by.
    pub scale: f32,
    /// Finite steps since the scale last changed, or was last due to grow.
    pub counter: u32,
    /// Skipped steps in a row.
    pub skipped: u32,
}

impl LossScale {
    /// The loss scale of a specification.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a number outside its range.
    pub fn new(spec: LossScaleSpec) -> Result<Self> {
        spec.check()?;
        Ok(LossScale::start(spec))
    }

    /// A scale that starts at 65536, doubles after 2000 finite steps and halves after a step that was not finite,
    /// between 1 and 2^24.
    pub fn dynamic() -> Self {
        LossScale::start(LossScaleSpec::Dynamic(DynamicScale::default()))
    }

    /// A scale that never changes: static loss scaling.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) unless the scale is finite and above 0.
    pub fn fixed(scale: f32) -> Result<Self> {
        LossScale::new(LossScaleSpec::Fixed { scale })
    }

    /// No loss scale. A step whose gradients are not finite is still skipped.
    pub fn none() -> Self {
        LossScale::start(LossScaleSpec::None)
    }

    fn start(spec: LossScaleSpec) -> Self {
        let scale = match &spec {
            LossScaleSpec::None => 1.0,
            LossScaleSpec::Fixed { scale } => *scale,
            LossScaleSpec::Dynamic(dynamic) => dynamic.init,
        };
        LossScale { spec, state: ScaleState { scale, counter: 0, skipped: 0 } }
    }

    /// The number the loss is multiplied by now.
    pub fn value(&self) -> f32 {
        self.state.scale
    }

    /// The specification it was made from.
    pub fn spec(&self) -> &LossScaleSpec {
        &self.spec
    }

    /// The current state, for a checkpoint.
    pub fn state(&self) -> ScaleState {
        self.state
    }

    /// Continues from a checkpoint.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a state that this scale cannot reach, such as a scale above its maximum.
    pub fn restore(&mut self, state: ScaleState) -> Result<()> {
        let ScaleState { scale, counter, .. } = state;
        let (least, most, interval) = match &self.spec {
            LossScaleSpec::Dynamic(d) => (d.min, d.max, d.interval),
            LossScaleSpec::Fixed { scale } => (*scale, *scale, 1),
            LossScaleSpec::None => (1.0, 1.0, 1),
        };
        if !(least..=most).contains(&scale) {
            return Err(Error::value(format!(
                "a loss scale of {scale} cannot be restored; allowed: {least} to {most}"
            )));
        }
        if counter >= interval {
            return Err(Error::value(format!(
                "a loss scale counter of {counter} cannot be restored; allowed: below {interval}"
            )));
        }
        self.state = state;
        Ok(())
    }

    /// Sets the scale of the next step; `finite` says whether all gradients of this step were finite.
    ///
    /// A dynamic scale is computed in f32. After `interval` finite steps in a row it is multiplied by `growth`, unless the
    /// product is not finite or above `max`. After a step that was not finite it is multiplied by `backoff`, and is then at
    /// least `min`. The count of finite steps starts again in both cases, also when the scale could not grow.
    /// (MindSpore 2.10, `mindspore.amp.DynamicLossScaler.adjust`.)
    pub fn adjust(&mut self, finite: bool) {
        let state = &mut self.state;
        state.skipped = if finite { 0 } else { state.skipped.saturating_add(1) };
        let LossScaleSpec::Dynamic(d) = &self.spec else { return };
        // Each product is exact or nearly so in f64 and rounded once to f32.
        let times = |factor: f64| (f64::from(state.scale) * factor) as f32;
        if !finite {
            let shrunk = times(d.backoff).max(d.min);
            event!(DEBUG, from = state.scale, to = shrunk, "loss scale shrinks");
            state.scale = shrunk;
            state.counter = 0;
            return;
        }
        if state.counter == d.interval - 1 {
            let grown = times(d.growth);
            if grown.is_finite() && grown <= d.max {
                event!(DEBUG, from = state.scale, to = grown, "loss scale grows");
                state.scale = grown;
            }
        }
        state.counter = (state.counter + 1) % d.interval;
    }
}
