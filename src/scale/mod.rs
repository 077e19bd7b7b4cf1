//! Loss scaling: one state machine, the step that uses it, and the pieces for a loop of one's own.

mod step;

use serde::{Deserialize, Serialize};

pub use step::{Cause, Outcome, all_finite};

use crate::{
    error::{Error, Result},
    policy::{DynamicScale, LossScaleSpec},
};

/// Multiplies the loss before the backward pass so that small gradients survive 16 bits, and divides the gradients after.
///
/// [`step`](LossScale::step) does all of it. A loop of one's own calls [`scale`](LossScale::scale),
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
///     Outcome::Stepped => {}
///     Outcome::Skipped { cause, first } => println!("skipped: {cause}, first seen in {first}"),
///     Outcome::Stalled { cause, .. } => panic!("{cause}"),
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

/// Everything that changes in a [`LossScale`], for checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScaleState {
    /// The number the loss is multiplied by.
    pub scale: f32,
    /// Finite steps since the scale last changed (or could not grow).
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

    /// A scale that never changes.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) unless the scale is finite and above 0.
    pub fn fixed(scale: f32) -> Result<Self> {
        LossScale::new(LossScaleSpec::Fixed { scale })
    }

    /// No scale. A step whose gradients are not finite is skipped all the same.
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

    /// What it was made from.
    pub fn spec(&self) -> &LossScaleSpec {
        &self.spec
    }

    /// What has changed since, for a checkpoint.
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

    /// Tells whether the gradients of a step were all finite; the scale of the next step follows.
    ///
    /// Dynamic, in f32: with `interval` finite steps in a row the scale grows by `growth` if that stays finite and at most
    /// `max`; a step that was not finite shrinks it by `backoff`, to `min` at least. The count of finite steps starts
    /// again after either, also when the scale could not grow. (MindSpore 2.10, `mindspore.amp.DynamicLossScaler.adjust`.)
    pub fn adjust(&mut self, finite: bool) {
        let state = &mut self.state;
        state.skipped = if finite { 0 } else { state.skipped.saturating_add(1) };
        let LossScaleSpec::Dynamic(d) = &self.spec else { return };
        // Each product is exact or nearly so in f64 and rounded once to f32.
        let times = |factor: f64| (f64::from(state.scale) * factor) as f32;
        if !finite {
            state.scale = times(d.backoff).max(d.min);
            state.counter = 0;
            return;
        }
        if state.counter == d.interval - 1 {
            let grown = times(d.growth);
            if grown.is_finite() && grown <= d.max {
                state.scale = grown;
            }
        }
        state.counter = (state.counter + 1) % d.interval;
    }
}
