//! A training step with a loss scale, for candle's optimizers.

use candle_core::{DType, Tensor};
use candle_nn::Optimizer;
use precast_policy::{
    self as policy,
    policy::{LossScaleSpec, Scaler},
    scale::{Outcome, ScaleMachine},
};

use crate::{
    Network, Result,
    dtype::is_castable,
    grads::{Entry, Grads, ScaledGrads},
};

impl<N> Network<N> {
    /// Does a whole training step: multiplies the loss by the scale, runs the backward pass, divides the gradients by the
    /// scale, checks that all of them are finite, updates the variables, and adjusts the scale.
    ///
    /// A skipped step leaves the variables, the running statistics of batch norms, and the state of the optimizer as they
    /// were. The outcome names the first variable with a gradient that is not finite.
    ///
    /// # Errors
    /// [`ErrorKind::Gradient`](policy::ErrorKind::Gradient) with the names of variables that no gradient reaches, and what
    /// usually cuts them. [`ErrorKind::Shape`](policy::ErrorKind::Shape) and [`ErrorKind::DType`](policy::ErrorKind::DType)
    /// for a loss that is not one number. [`ErrorKind::Policy`](policy::ErrorKind::Policy) for f16 without a loss scale,
    /// where the policy requires one. Nothing is changed then, except by candle's own errors in an update.
    pub fn step<O: Optimizer>(
        &mut self,
        scale: &mut ScaleMachine,
        optimizer: &mut O,
        loss: &Tensor,
    ) -> Result<Outcome> {
        let grads = self.backward(scale, loss)?.unscale()?;
        self.update(scale, optimizer, &grads)
    }

    /// Multiplies a loss by the scale, in f32, and runs the backward pass.
    ///
    /// # Errors
    /// As [`step`](Network::step), except for missing gradients.
    pub fn backward(&self, scale: &ScaleMachine, loss: &Tensor) -> Result<ScaledGrads> {
        if loss.elem_count() != 1 {
            let words = format!("a loss is one number, and this one has the shape {:?}; take its mean", loss.dims());
            return Err(policy::Error::shape(words).into());
        }
        if !is_castable(loss.dtype()) {
            let words = format!("a loss is f32, f16 or bf16, and this one is {}", loss.dtype().as_str());
            return Err(policy::Error::dtype(words).into());
        }
        self.check_scale(scale)?;
        // 65536 and most scaled losses do not fit in f16.
        let loss = loss.to_dtype(DType::F32)?.flatten_all()?;
        let finite_loss = loss.to_vec1::<f32>()?.iter().all(|loss| loss.is_finite());
        let mut grads = (loss * f64::from(scale.value()))?.backward()?;
        let entries = self.trained().map(|(variable, var)| {
            let (name, may_lack) = (variable.name.clone(), self.may_lack(variable));
            Entry { name, grad: grads.remove(&var), var, may_lack }
        });
        Ok(ScaledGrads { scale: scale.value(), finite_loss, entries: entries.collect() })
    }

    /// Updates the variables, unless the loss or a gradient is not finite, and adjusts the scale.
    ///
    /// # Errors
    /// [`ErrorKind::Gradient`](policy::ErrorKind::Gradient) as [`step`](Network::step); those of candle.
    pub fn update<O: Optimizer>(
        &mut self,
        scale: &mut ScaleMachine,
        optimizer: &mut O,
        grads: &Grads,
    ) -> Result<Outcome> {
        grads.check_missing()?;
        let outcome = scale.judge(grads.is_loss_finite(), grads.first_non_finite().map(String::from));
        if outcome.is_step() {
            // Also when it fails half-way.
            self.changed();
            optimizer.step(&grads.store())?;
            self.keep_statistics()?;
        } else {
            self.restore_statistics()?;
        }
        Ok(outcome)
    }

    /// Refuses f16 without a loss scale where the policy requires one.
    fn check_scale(&self, scale: &ScaleMachine) -> Result<()> {
        let Some(plan) = self.applied() else { return Ok(()) };
        let in_f16 = || plan.decisions.iter().any(|decision| decision.run.dtype() == Some(policy::DType::F16));
        if plan.policy.scaler == Scaler::Required && *scale.spec() == LossScaleSpec::None && in_f16() {
            let words = "the policy requires a loss scale for f16, and this one scales nothing; use \
                         `ScaleMachine::new(policy.loss_scale.clone())?`";
            return Err(policy::Error::policy(words).into());
        }
        Ok(())
    }
}
