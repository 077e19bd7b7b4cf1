//! A training step whose updates are part of the backward pass.

use precast_tensor::internals::GradsInternals as _;

use super::{Cause, LossScale, Outcome};
use crate::{
    Grads, Tensor,
    error::{Error, Result},
    optim::Optimizer,
    policy::LossScaleSpec,
};

impl LossScale {
    /// Takes one training step as [`step`](LossScale::step) does, but updates each parameter as soon as the backward pass
    /// has computed its gradient, and then frees the gradient. Gradients of all parameters never exist together, which
    /// saves most of their memory: 2 or 4 bytes per weight.
    ///
    /// ```
    /// use precast::prelude::*;
    /// let mut net = Child::new(sequential![Dense::new(4, 8, &mut Rng::seed(1)), ReLU, Dense::new(8, 2, &mut Rng::seed(2))]);
    /// Policy::new(Level::O2, DType::Bf16)?.apply(&mut net)?;
    /// decorate(&net, Decorate::new(DType::Bf16).stochastic_rounding(1))?; // no f32 weights either
    /// net.set_train(true);
    /// let (mut optimizer, mut scale) = (AdamW::new(net.params(), 1e-3), LossScale::none());
    /// for _ in 0..3 {
    ///     let loss = net.call(&Tensor::ones(&[16, 4], DType::F32))?.square()?.mean_all()?;
    ///     let outcome = scale.step_in_backward(&mut optimizer, loss)?;
    ///     assert_eq!(outcome, Outcome::Stepped);
    /// }
    /// # Ok::<(), precast::Error>(())
    /// ```
    ///
    /// If all gradients are finite, parameters and optimizer have the same bits as after [`step`](LossScale::step). A
    /// parameter that is used several times (tied weights) is updated after the last part of its gradient has arrived.
    /// Every optimizer can be used, since each updates a parameter from its gradient alone.
    ///
    /// An update is not taken back. So there are no clipping by norm and no sum over several losses, which need all
    /// gradients first (gradients that were accumulated or clipped before are not used), and a loss scale must not be dynamic, since that finds its value by steps that overflow.
    ///
    /// If the loss is not finite, or the gradient that is computed first, nothing is updated and the step is skipped. If
    /// a later one is not finite, those before it have been updated: this is an error, and the remaining parameters stay
    /// as they were. A run continues from its last checkpoint then.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a dynamic loss scale, and for a gradient that is not finite after
    /// other parameters have been updated, with their number; and those of [`step`](LossScale::step). An error of the
    /// optimizer for one parameter ends the step, after the updates of those before it.
    pub fn step_in_backward(&mut self, optimizer: &mut dyn Optimizer, loss: Tensor) -> Result<Outcome> {
        if matches!(self.spec(), LossScaleSpec::Dynamic(_)) {
            return Err(Error::value(
                "an update in the backward pass cannot be taken back, and a dynamic loss scale skips the steps that overflow; \
                 allowed: `LossScale::none()` (bfloat16 needs no scale), `LossScale::fixed(..)`, or `LossScale::step`",
            ));
        }
        optimizer.check()?;
        let id = self.not_applied(optimizer)?;
        let scaled = self.scale(loss)?;
        if !scaled.is_finite() || self.votes.overflowed_on_tape() {
            // It is skipped.
            let grads = scaled.into_grads_before_update()?;
            return self.step_grads(optimizer, grads, None, |optimizer, grads| optimizer.update(grads));
        }
        let (mut updated, mut met) = (0, None);
        let params = optimizer.params().clone();
        let mut rest = scaled.into_parts(&params, |place, grads| {
            if met.is_none() {
                met = self.cause_against(grads);
            }
            if met.is_none() {
                optimizer.update_one(place, grads).map_err(|error| partly(error, updated))?;
                updated += 1;
            }
            Ok(())
        })?;
        rest.warn_of_late(&params);
        let outcome = match met {
            None if updated == 0 => return rest.unscale(&params).map(|_| Outcome::Stepped),
            None => {
                rest.grads().settle();
                Outcome::Stepped
            }
            Some(cause) if updated == 0 => self.skipped(rest.grads(), cause),
            Some(cause) => {
                rest.grads().settle();
                let words =
                    format!("{cause}; continue from the last checkpoint, with `LossScale::step` or a lower scale");
                return Err(partly(Error::value(words), updated));
            }
        };
        self.votes.optimizers.extend(id);
        self.update()?;
        Ok(outcome)
    }

    /// Returns the cause for not updating a parameter with this gradient.
    fn cause_against(&self, part: &Grads) -> Option<Cause> {
        let unscaled = part.scale_checks()?;
        self.against(part, unscaled, unscaled.first.clone())
    }
}

/// Adds to an error how many parameters were updated before it.
fn partly(error: Error, updated: usize) -> Error {
    match updated {
        0 => error,
        1 => error.context("1 parameter was updated in this backward pass before the error, those after it were not"),
        n => error.context(format_args!(
            "{n} parameters were updated in this backward pass before the error, those after it were not"
        )),
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use precast_tensor::internals::LOOK_UPS;

    use crate::{optim::Method, prelude::*};

    /// Each parameter is looked up as often, however many others there are.
    #[test]
    fn a_step_takes_work_for_each_parameter_once() {
        let look_ups = |layers: usize, make: &dyn Fn(&Child<Sequential>) -> Box<dyn Optimizer>| {
            let rng = &mut Rng::seed(1);
            let net = Child::new((0..layers).map(|_| Child::of(Dense::new(1, 1, rng))).collect::<Sequential>());
            let mut optimizer = make(&net);
            let mut scale = LossScale::none();
            let loss = net.call(&Tensor::ones(&[1, 1], DType::F32)).unwrap().sum_all().unwrap();
            LOOK_UPS.set(0);
            assert_eq!(scale.step_in_backward(&mut *optimizer, loss).unwrap(), Outcome::Stepped);
            let steps = optimizer.state().steps;
            assert!(steps.len() == 2 * layers && steps.values().all(|steps| *steps == 1), "{steps:?}");
            LOOK_UPS.get()
        };
        type Make = dyn Fn(&Child<Sequential>) -> Box<dyn Optimizer>;
        let optimizers: [&Make; 3] = [
            &|net| Box::new(Sgd::new(net.params(), 0.1)),
            &|net| Box::new(AdamW::new(net.params(), 0.1).count_lost_updates()),
            &|net| "muon".parse::<Method>().unwrap().optimizer(net.params(), 0.1, &|_| false),
        ];
        for make in optimizers {
            let [few, many] = [15, 150].map(|layers| look_ups(layers, make));
            assert_eq!(many, 10 * few, "look-ups for 30 and for 300 parameters");
        }
    }
}
