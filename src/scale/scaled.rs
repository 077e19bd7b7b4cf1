//! A scaled loss and its gradients, as types of their own that rule out misuse of gradients that are still scaled.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use precast_tensor::{
    LeafId, Scaling, Unscaled, context,
    internals::{GradsInternals as _, TensorInternals as _},
};

use super::LossScale;
use crate::{
    DType, Grads, Moment, Param, Tensor,
    cell::Params,
    error::{Error, Result},
    policy::LossScaleSpec,
    precision::{self, Frame},
};

/// A loss times the loss scale, created by [`LossScale::scale`]. It only supports a backward pass.
#[derive(Clone, Debug)]
#[must_use = "a scaled loss is there to run backward"]
pub struct ScaledLoss {
    scaled: Tensor,
    scaling: Scaling,
    /// Flag for the loss scale: a gradient that is part of a loss overflowed.
    overflowed: Arc<AtomicBool>,
}

/// The gradients of a [`ScaledLoss`], all multiplied by the loss scale.
///
/// They can be [added](ScaledGrads::accumulate) to others of the same scale and [unscaled](ScaledGrads::unscale). They
/// cannot be read, clipped, or passed to an optimizer: results would be wrong by a factor of the loss scale.
///
/// ```compile_fail,E0277
/// # use precast::{prelude::*, DType, Param};
/// # let weight = Param::new(Tensor::ones(&[2], DType::F32));
/// let loss = weight.tensor().sum_all()?;
/// let mut grads = LossScale::dynamic().scale(&loss)?.backward()?;
/// grads.clip_norm(1.0)?; // these gradients are still scaled: unscale first
/// # Ok::<(), precast::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "scaled gradients are there to be unscaled"]
pub struct ScaledGrads {
    grads: Grads,
    scaling: Scaling,
}

/// Loss of a step: a tensor, or a reference to one that keeps its tape.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be used as a loss",
    label = "allowed: `Tensor` and `&Tensor`"
)]
pub trait IntoLoss {
    fn into_loss(self) -> Tensor;
}

impl IntoLoss for Tensor {
    fn into_loss(self) -> Tensor {
        self
    }
}

impl IntoLoss for &Tensor {
    fn into_loss(self) -> Tensor {
        self.clone()
    }
}

impl LossScale {
    /// Multiplies the loss by the scale, on the tape. A 16-bit loss is first widened to f32, since the product would
    /// overflow in its own dtype. The multiplication runs outside every autocast region.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the loss is not a floating scalar.
    pub fn scale(&self, loss: impl IntoLoss) -> Result<ScaledLoss> {
        let loss = loss.into_loss();
        loss.check_scalar("a training step starts from a floating scalar; the loss")?;
        let _off = precision::enter(Frame::Off);
        let finite = loss.item()?.is_finite();
        let loss = if loss.dtype().is_low() { loss.cast(DType::F32) } else { loss };
        let scaled = match self.spec() {
            LossScaleSpec::None => loss,
            _ => loss.mul(&Tensor::scalar(f64::from(self.value()), loss.dtype()))?,
        };
        Ok(ScaledLoss { scaled, scaling: self.scaling(finite), overflowed: self.votes.on_tape.clone() })
    }

    /// Declares gradients to be those of a loss times this scale. For gradients from elsewhere, such as a backward pass
    /// scaled by hand, or a sum over several machines.
    ///
    /// ```
    /// # use precast::{prelude::*, DType, Param};
    /// # let weight = Param::new(Tensor::ones(&[2], DType::F32));
    /// # let params = [weight.clone()].into_iter().collect();
    /// let scale = LossScale::fixed(8.0)?;
    /// let loss = weight.tensor().sum_all()?;
    /// let by_hand = loss.mul(&Tensor::scalar(8.0, DType::F32))?.backward()?;
    /// let grads = scale.already_scaled(by_hand).unscale(&params)?;
    /// assert_eq!(grads.get(&weight).unwrap().to_f64(), [1.0, 1.0]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn already_scaled(&self, grads: Grads) -> ScaledGrads {
        ScaledGrads { grads, scaling: self.scaling(true) }
    }

    /// Returns the current scaling of a loss, with whether the loss was finite before it.
    fn scaling(&self, finite_loss: bool) -> Scaling {
        Scaling { scale: self.value(), by_scaler: *self.spec() != LossScaleSpec::None, finite_loss }
    }
}

impl ScaledLoss {
    /// Returns the scaled loss as a number.
    ///
    /// # Errors
    /// None; the signature is that of [`Tensor::item`].
    pub fn item(&self) -> Result<f64> {
        self.scaled.item()
    }

    /// Returns the dtype: f64 for a loss in f64, else f32.
    pub fn dtype(&self) -> DType {
        self.scaled.dtype()
    }

    /// Returns the loss scale by which it was multiplied.
    pub fn scale(&self) -> f32 {
        self.scaling.scale
    }

    /// Computes the gradients with respect to each tensor of `of`, on the tape and divided by the scale, for a gradient
    /// penalty that is part of a loss. They are computed scaled, so that none underflows in f16 along the way. One that
    /// overflows is a vote for a lower scale: the step with that loss is skipped as an overflow.
    ///
    /// The loss must be computed and scaled within [`twice_differentiable`](crate::twice_differentiable):
    ///
    /// ```
    /// use precast::{prelude::*, twice_differentiable};
    /// let w = Tensor::scalar(3.0, DType::F32).requires_grad();
    /// let scale = LossScale::fixed(1024.0)?;
    /// let scaled = twice_differentiable(|| scale.scale(w.square()?))?;
    /// let grads = scaled.gradients_on_tape(&[&w])?;
    /// assert_eq!(grads[0].as_ref().map(Tensor::to_f64), Some(vec![6.0]));
    /// # Ok::<(), precast::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Tensor::gradients_on_tape`].
    pub fn gradients_on_tape(&self, of: &[&Tensor]) -> Result<Vec<Option<Tensor>>> {
        let scaled = self.scaled.gradients_on_tape(of)?;
        if self.scaling.finite_loss && !scaled.iter().flatten().all(Tensor::has_only_finite) {
            self.overflowed.store(true, Ordering::Relaxed);
        }
        let _off = precision::enter(Frame::Off);
        let unscaled = |grad: Tensor| {
            let grad = if grad.dtype().is_low() { grad.cast(DType::F32) } else { grad };
            grad.mul(&Tensor::scalar(f64::from(1.0 / self.scaling.scale), grad.dtype()))
        };
        scaled.into_iter().map(|grad| grad.map(unscaled).transpose()).collect()
    }

    /// Computes the gradients, multiplied by the loss scale.
    ///
    /// # Errors
    /// Those of [`Tensor::backward`].
    pub fn backward(&self) -> Result<ScaledGrads> {
        Ok(ScaledGrads { grads: self.scaled.backward()?, scaling: self.scaling })
    }

    /// Runs the backward pass, as [`backward`](ScaledLoss::backward) does, but consumes the loss: see
    /// [`Tensor::into_grads`].
    ///
    /// # Errors
    /// Those of [`Tensor::backward`].
    pub fn into_grads(self) -> Result<ScaledGrads> {
        Ok(ScaledGrads { grads: self.scaled.into_grads()?, scaling: self.scaling })
    }

    /// As [`into_grads`](ScaledLoss::into_grads), with a hook: see [`Tensor::into_grads_with`]. Its gradients are scaled.
    ///
    /// # Errors
    /// Those of [`Tensor::backward`], and those of the hook.
    pub fn into_grads_with(self, params: &Params, hook: impl FnMut(Moment<'_>) -> Result<()>) -> Result<ScaledGrads> {
        Ok(ScaledGrads { grads: self.scaled.into_grads_with(params.iter(), hook)?, scaling: self.scaling })
    }

    /// As [`into_grads`](ScaledLoss::into_grads), before an update of the parameters. Each gradient of `params` is
    /// [unscaled](ScaledGrads::unscale) once it is final, and given to `part` with its place among them.
    pub(super) fn into_parts(
        self,
        params: &Params,
        mut part: impl FnMut(usize, &Grads) -> Result<()>,
    ) -> Result<ScaledGrads> {
        let scaling = self.scaling;
        let by_leaf: HashMap<LeafId, (usize, (&str, &Param))> =
            params.iter().enumerate().map(|(place, known)| (known.1.id(), (place, known))).collect();
        let grads = self.scaled.into_grads_taken(|leaf, grads| {
            let Some(&(place, known)) = by_leaf.get(&leaf) else { return Ok(()) };
            part(place, &unscaled(grads, scaling, &[known]))?;
            grads.continue_step();
            Ok(())
        })?;
        Ok(ScaledGrads { grads, scaling })
    }

    /// Returns whether the loss was finite before it was scaled.
    pub(super) fn is_finite(&self) -> bool {
        self.scaling.finite_loss
    }

    /// As [`into_grads`](ScaledLoss::into_grads), before an update of the parameters, whose low copies are not needed again.
    ///
    /// # Errors
    /// Those of [`Tensor::backward`].
    pub fn into_grads_before_update(self) -> Result<ScaledGrads> {
        Ok(ScaledGrads { grads: self.scaled.into_grads_before_update()?, scaling: self.scaling })
    }
}

/// A trait without implementations, so that scaled gradients cannot be read or clipped.
#[diagnostic::on_unimplemented(
    message = "these gradients are still scaled",
    label = "would be a mistake by a factor of the loss scale",
    note = "unscale them first: `let mut grads = scaled.unscale(optimizer.params())?;`"
)]
pub trait AfterUnscaling {
    /// Never called.
    fn never<R>(self) -> R;
}

/// Methods of unscaled gradients. Their bound never holds; because of its lifetime, the compiler checks it where a
/// method is called.
impl ScaledGrads {
    /// Does not compile: [unscale](ScaledGrads::unscale) the gradients first.
    pub fn clip_norm(&mut self, _max: f64) -> Result<f64>
    where
        for<'never> &'never Self: AfterUnscaling,
    {
        (&*self).never()
    }

    /// Does not compile: [unscale](ScaledGrads::unscale) the gradients first.
    pub fn clip_value(&mut self, _max: f64) -> Result<()>
    where
        for<'never> &'never Self: AfterUnscaling,
    {
        (&*self).never()
    }

    /// Does not compile: [unscale](ScaledGrads::unscale) the gradients first.
    pub fn norm(&self) -> f64
    where
        for<'never> &'never Self: AfterUnscaling,
    {
        self.never()
    }

    /// Does not compile: [unscale](ScaledGrads::unscale) the gradients first.
    pub fn get(&self, _param: &Param) -> Option<Tensor>
    where
        for<'never> &'never Self: AfterUnscaling,
    {
        self.never()
    }
}

impl ScaledGrads {
    /// Returns the loss scale by which they are multiplied.
    pub fn scale(&self) -> f32 {
        self.scaling.scale
    }

    /// Returns the number of leaves with a gradient that was not yet [unscaled](ScaledGrads::unscale).
    pub fn len(&self) -> usize {
        self.grads.len()
    }

    /// Returns whether no gradient is left.
    pub fn is_empty(&self) -> bool {
        self.grads.is_empty()
    }

    /// Adds the gradients of another loss, or of another part of a batch. Gradients of 16-bit parameters are added in
    /// f32. One non-finite gradient makes the sum non-finite, and the whole step is skipped.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when the two have different scales: the loss scale must not change
    /// within a step.
    pub fn accumulate(&mut self, other: ScaledGrads) -> Result<()> {
        let (scale, others) = (self.scaling.scale, other.scaling.scale);
        if scale != others {
            return Err(Error::value(format!(
                "gradients at loss scale {others} cannot be added to gradients at {scale}; the scale must stay the same until the \
                 step is taken"
            )));
        }
        self.scaling.finite_loss &= other.scaling.finite_loss;
        self.grads.add(other.grads);
        Ok(())
    }

    /// Returns the gradients, still scaled.
    pub(super) fn grads(&self) -> &Grads {
        &self.grads
    }

    /// Warns of parameters whose gradients no optimizer takes; see [`Grads::warn_of_late`].
    pub(super) fn warn_of_late(&self, params: &Params) {
        self.grads.warn_of_late(params.iter().map(|(_, param)| param));
    }

    /// Returns the scaling of the loss.
    pub fn scaling(&self) -> Scaling {
        self.scaling
    }

    /// Returns the path of the first parameter or buffer for which a forward pass refused to store a number that is not
    /// finite.
    pub fn refused(&self) -> Option<&str> {
        self.grads.refused()
    }

    /// Returns the gradient of a parameter, still scaled, and whether it came out of an op in f16: what one rank adds to the sum
    /// [over ranks](ScaledGrads::of_ranks).
    pub fn stored(&self, param: &Param) -> Option<(&Tensor, bool)> {
        Some((self.grads.lying(param.id())?, self.grads.is_through_f16(param)))
    }

    /// Creates the sum over ranks: gradients of parameters, each with whether some of its terms came out of an op in f16, and
    /// what a rank [refused](ScaledGrads::refused).
    pub fn of_ranks<'a>(
        sums: impl Iterator<Item = (&'a Param, Tensor, bool)>,
        scaling: Scaling,
        refused: Option<String>,
    ) -> Self {
        ScaledGrads { grads: Grads::of_ranks(sums, refused), scaling }
    }

    /// Reverts what the forward passes stored, and keeps the gradients, without the order in which they arrived: that of
    /// another shard may differ.
    pub fn take_back(&mut self) {
        self.grads.passes().iter().for_each(|pass| pass.take_back());
        self.grads.forget_arrivals();
    }

    /// Abandons a step and reverts what its forward passes stored; see [`Grads::discard`].
    pub fn discard(self) {
        self.grads.discard();
    }

    /// Takes out the gradients of these parameters, divides them by the scale, and checks that they are finite; see
    /// [`Grads::non_finite`]. Gradients of other parameters remain, so that each of several optimizers gets its own.
    ///
    /// From here on they are f32, or f64 if they were f64.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when none of the parameters has a gradient here: the loss depends
    /// on none of them, or they were already unscaled.
    pub fn unscale(&mut self, params: &Params) -> Result<Grads> {
        let with_grads: Vec<_> = params.iter().filter(|(_, param)| self.grads.lying(param.id()).is_some()).collect();
        if with_grads.is_empty() {
            let first = params.first()?;
            return Err(Error::value(format!(
                "none of the optimizer's parameters, the first of which is `{first}`, has a gradient: the loss depends on \
                 none of them (was it computed from another network?), or they were unscaled before"
            )));
        }
        Ok(unscaled(&mut self.grads, self.scaling, &with_grads))
    }

    /// Returns the gradient with respect to a tensor made by [`Tensor::requires_grad`], divided by the scale; `None`
    /// when the loss does not depend on it.
    pub fn unscaled_of(&self, leaf: &Tensor) -> Option<Tensor> {
        self.grads.of_times(leaf, 1.0 / self.scaling.scale)
    }
}

/// Takes out the gradients of these parameters, each of which has one; see [`ScaledGrads::unscale`].
fn unscaled(scaled: &mut Grads, scaling: Scaling, params: &[(&str, &Param)]) -> Grads {
    let leaves = params.iter().map(|(_, param)| param.id());
    let peaks = scaled.peaks_of(leaves, 1.0 / scaling.scale);
    context::tell(|listener| {
        peaks.iter().for_each(|&(leaf, before, after)| listener.unscaled(leaf, before, after));
    });
    let bad = peaks.iter().enumerate().filter(|(_, (.., after))| !after.is_finite());
    let first = bad.min_by_key(|(_, (leaf, ..))| scaled.arrival(*leaf));
    let first = first.map(|(which, _)| params[which].0.to_string());
    if first.is_some() {
        scaled.doubt();
    }
    let unscaled = Unscaled { scaling, first, replaced: false };
    let grads = scaled.split_off(params.iter().map(|(_, param)| param.id()), unscaled);
    grads.tell_gradients(params.iter().map(|(_, param)| *param));
    grads
}
