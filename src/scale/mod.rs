//! Loss scaling: a training step, and its parts for a training loop of your own.

mod in_backward;
mod scaled;
mod step;

#[doc(inline)]
pub use precast_policy::scale::{ScaleMachine, ScaleState};
pub use precast_tensor::Scaling;
pub use scaled::{ScaledGrads, ScaledLoss};
use step::Votes;
pub use step::{Cause, Outcome, all_finite};

use crate::{
    Policy,
    error::Result,
    policy::{GraphPolicy, LossScaleSpec},
};

/// A loss scale: multiplies the loss before the backward pass, so that small gradients do not underflow in 16 bits, and
/// divides the gradients by the same number afterwards.
///
/// [`step`](LossScale::step) does all of it. A custom training loop calls [`scale`](LossScale::scale),
/// [`backward`](ScaledLoss::backward), [`unscale`](ScaledGrads::unscale), [`apply`](LossScale::apply) for each
/// optimizer, and [`update`](LossScale::update) once per step. Gradients that are still scaled have a type of their
/// own.
///
/// The rule of the dynamic scale is in [`ScaleMachine::adjust`], which needs no tensors;
/// [`DynamicScale`](crate::policy::DynamicScale) has the numbers of other systems.
///
/// ```
/// use precast::{DType, LossScale, Outcome, Param, Sgd, Tensor};
/// let weight = Param::new(Tensor::full(&[2, 1], 0.5, DType::F32));
/// let mut optimizer = Sgd::new([weight.clone()].into_iter().collect(), 0.1);
/// let mut scale = LossScale::dynamic();
///
/// let loss = Tensor::ones(&[1, 2], DType::F16).matmul(&weight.tensor().cast(DType::F16))?.cast(DType::F32);
/// match scale.step(&mut optimizer, &loss)? {
///     Outcome::Skipped { cause } => println!("skipped: {cause}"),
///     Outcome::Stalled { cause, .. } => panic!("{cause}"),
///     _ => {} // the parameters were updated
/// }
/// // 65536 does not fit into f16, so the first step only finds a lower scale.
/// assert_eq!(scale.value(), 32768.0);
/// # Ok::<(), precast::Error>(())
/// ```
///
/// Training by a policy takes [the loss scale of the policy](ScalesLoss::loss_scale).
#[derive(Clone, Debug, PartialEq)]
#[doc(alias = "GradScaler")]
pub struct LossScale {
    machine: ScaleMachine,
    votes: Votes,
}

/// A policy, as the source of a loss scale.
pub trait ScalesLoss {
    /// Creates the loss scale that the policy specifies, ready for the first step.
    ///
    /// ```
    /// use precast::prelude::*;
    /// assert_eq!(Policy::new(Level::O2, DType::F16)?.loss_scale()?, LossScale::dynamic());
    /// assert_eq!(Policy::new(Level::O2, DType::Bf16)?.loss_scale()?, LossScale::none());
    /// # Ok::<(), precast::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a number outside its range.
    fn loss_scale(&self) -> Result<LossScale>;
}

impl ScalesLoss for Policy {
    fn loss_scale(&self) -> Result<LossScale> {
        LossScale::new(self.loss_scale.clone())
    }
}

impl ScalesLoss for GraphPolicy {
    fn loss_scale(&self) -> Result<LossScale> {
        LossScale::new(self.loss_scale.clone())
    }
}

impl From<ScaleMachine> for LossScale {
    fn from(machine: ScaleMachine) -> Self {
        LossScale { machine, votes: Votes::default() }
    }
}

impl LossScale {
    /// Creates the loss scale of a specification.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a number outside its range.
    pub fn new(spec: LossScaleSpec) -> Result<Self> {
        ScaleMachine::new(spec).map(LossScale::from)
    }

    /// Creates a scale that starts at 65536, doubles after 2000 finite steps and halves after a non-finite one, between
    /// 1 and 2^24.
    pub fn dynamic() -> Self {
        ScaleMachine::dynamic().into()
    }

    /// Creates a scale that never changes: static loss scaling.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) unless the scale is finite and above 0.
    pub fn fixed(scale: f32) -> Result<Self> {
        ScaleMachine::fixed(scale).map(LossScale::from)
    }

    /// Creates a loss scale that scales nothing. A step with non-finite gradients is still skipped.
    pub fn none() -> Self {
        ScaleMachine::none().into()
    }

    /// Returns the current factor of the loss.
    pub fn value(&self) -> f32 {
        self.machine.value()
    }

    /// Returns the specification it was created from.
    pub fn spec(&self) -> &LossScaleSpec {
        self.machine.spec()
    }

    /// Returns the current state, for a checkpoint.
    pub fn state(&self) -> ScaleState {
        self.machine.state()
    }

    /// Sets the scale of the next step manually. The count of finite steps is kept.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a scale outside the range of a dynamic scale; for one that is
    /// not a positive normal float32; and if there is no loss scale.
    pub fn set_scale(&mut self, scale: f32) -> Result<()> {
        self.machine.set_scale(scale)
    }

    /// Continues from a state taken between two steps, of a loss scale of the same kind. A fixed scale takes its value
    /// from the state, where it may have been [set](LossScale::set_scale) manually. A run that continues with a loss
    /// scale of another kind, for instance in another dtype, does not restore the state: gradients are scaled only
    /// within a step.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a state that this scale cannot reach, such as a scale above
    /// its maximum.
    pub fn restore(&mut self, state: ScaleState) -> Result<()> {
        self.machine.restore(state)?;
        self.votes = Votes::default();
        Ok(())
    }

    /// Sets the scale of the next step; `finite` says whether all gradients of this step were finite.
    /// [`update`](LossScale::update) calls it; a loop that checks its gradients itself may also call it. The rule is
    /// that of [`ScaleMachine::adjust`].
    pub fn adjust(&mut self, finite: bool) {
        self.machine.adjust(finite);
    }
}
