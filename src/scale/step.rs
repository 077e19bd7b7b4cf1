//! One training step: scale the loss, run the backward pass, unscale the gradients and check them, update.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::LossScale;
use crate::{
    DType, Grads, Tensor,
    cell::Params,
    error::{Error, Result},
    kernels::elementwise::finite,
    logging::event,
    optim::Optimizer,
    policy::LossScaleSpec,
    precision::{self, Frame},
    tensor::{Array, with_float},
};

/// After this many skipped steps in a row, at a scale that cannot fall, a step is [`Outcome::Stalled`].
const PATIENCE: u32 = 20;

/// What a training step did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[must_use = "a step may have been skipped"]
#[non_exhaustive]
pub enum Outcome {
    /// The parameters were updated.
    Stepped,
    /// Nothing was updated, because a gradient was not finite.
    Skipped {
        /// Why.
        cause: Cause,
        /// Path of the first parameter whose gradient was not finite.
        first: String,
    },
    /// As [`Skipped`](Outcome::Skipped), for the 20th time in a row at least, and the scale cannot fall any further:
    /// training will not recover by itself.
    Stalled {
        /// Why.
        cause: Cause,
        /// Path of the first parameter whose gradient was not finite.
        first: String,
        /// Skipped steps in a row.
        skipped: u32,
    },
}

/// Why a step was skipped.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Cause {
    /// The loss was not finite before it was scaled. The scale is not to blame and stays.
    Loss,
    /// The loss was finite, but a gradient was not, at this scale.
    Overflow {
        /// The loss scale of the step.
        scale: f32,
    },
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Loss => f.write_str("the loss itself was not finite"),
            Cause::Overflow { scale } => write!(f, "a gradient was not finite at loss scale {scale}"),
        }
    }
}

impl LossScale {
    /// One training step from a loss: scales the loss, runs the backward pass, unscales the gradients, and lets the optimizer
    /// update its parameters if every gradient is finite. Then [adjusts](LossScale::adjust) the scale.
    ///
    /// As in MindSpore, PyTorch, Paddle and TensorFlow, a gradient that is not finite skips the update. Unlike there, a loss
    /// that was not finite before it was scaled leaves the scale as it is: a smaller scale would not help.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the loss is not a floating scalar,
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when it depends on none of the optimizer's parameters, and what the
    /// optimizer reports. On an error nothing is updated.
    pub fn step(&mut self, optimizer: &mut dyn Optimizer, loss: &Tensor) -> Result<Outcome> {
        let mut grads = self.scale(loss)?.backward()?;
        if !optimizer.params().iter().any(|(_, param)| grads.get(param).is_some()) {
            return Err(Error::value(
                "the loss depends on none of the optimizer's parameters (was it computed under `no_grad`?)",
            ));
        }
        let Some(first) = self.unscale(&mut grads, optimizer.params()) else {
            optimizer.update(&grads)?;
            self.adjust(true);
            return Ok(Outcome::Stepped);
        };
        let scale = self.value();
        let cause = if loss.item()?.is_finite() { Cause::Overflow { scale } } else { Cause::Loss };
        match cause {
            Cause::Overflow { .. } => self.adjust(false),
            Cause::Loss => self.state.skipped = self.state.skipped.saturating_add(1),
        }
        let skipped = self.state.skipped;
        Ok(if skipped >= PATIENCE && self.value() == scale {
            event!(ERROR, %cause, first, skipped, scale, "training has stalled");
            Outcome::Stalled { cause, first, skipped }
        } else {
            event!(WARN, %cause, first, skipped, scale, "step skipped");
            Outcome::Skipped { cause, first }
        })
    }

    /// The loss times the scale, on the tape. A 16-bit loss is widened to f32 first, since the product would overflow in its
    /// own dtype. The multiplication runs outside of every autocast region.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the loss is not a floating scalar.
    pub fn scale(&self, loss: &Tensor) -> Result<Tensor> {
        if loss.len() != 1 || !loss.dtype().is_float() {
            return Err(Error::shape(format!(
                "a training step starts from a floating scalar; the loss is {} {:?} (take the mean or the sum first)",
                loss.dtype(),
                loss.shape()
            )));
        }
        let _off = precision::enter(Frame::Off);
        let loss = if loss.dtype().is_low() { loss.cast(DType::F32) } else { loss.clone() };
        match self.spec {
            LossScaleSpec::None => Ok(loss),
            _ => loss.mul(&Tensor::scalar(f64::from(self.value()), loss.dtype())),
        }
    }

    /// Divides the gradients of `params` by the scale and checks that they are finite. The gradients are f32 afterwards, or f64
    /// where they were f64. A gradient that nothing else shares is changed in place.
    /// Returns the path of the first parameter whose gradient is not finite.
    pub fn unscale(&self, grads: &mut Grads, params: &Params) -> Option<String> {
        let inverse = 1.0 / self.value();
        let mut taken = Vec::new();
        for (path, param) in params.iter() {
            let Some(grad) = grads.take(param) else { continue };
            let wide = if grad.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
            taken.push((path, param, grad.cast(wide).into_array()));
        }
        let finite = if inverse == 1.0 {
            taken.iter().map(|(.., grad)| is_finite(grad)).collect()
        } else {
            times(taken.iter_mut().map(|(.., grad)| grad), inverse)
        };
        let first = finite.iter().position(|finite| !finite).map(|i| taken[i].0.to_string());
        for (_, param, grad) in taken {
            grads.set(param, Tensor::from_array(grad));
        }
        first
    }
}

/// Whether every gradient of `params` is finite. A parameter without gradient counts as finite.
pub fn all_finite(grads: &Grads, params: &Params) -> bool {
    params.iter().filter_map(|(_, param)| grads.get(param)).all(|grad| is_finite(grad.array()))
}

fn is_finite(x: &Array) -> bool {
    with_float!(x.contiguous(), a: T => finite::all_finite::<T>(a.as_slice().expect("contiguous")), else true)
}

/// Multiplies arrays of f32 and f64 by a number, in place, and returns whether each result is finite.
fn times<'a>(arrays: impl Iterator<Item = &'a mut Array>, factor: f32) -> Vec<bool> {
    let (mut f32s, mut f64s) = (Vec::new(), Vec::new());
    let mut is_f64 = Vec::new();
    for array in arrays {
        is_f64.push(array.dtype() == DType::F64);
        if array.dtype() == DType::F64 {
            f64s.extend(array.slice_mut::<f64>());
        } else {
            f32s.extend(array.slice_mut::<f32>());
        }
    }
    let mut f32s = finite::unscale_and_check(&mut f32s, factor).into_iter();
    let mut f64s = finite::unscale_and_check(&mut f64s, f64::from(factor)).into_iter();
    let mut next = |is_f64| if is_f64 { f64s.next() } else { f32s.next() };
    is_f64.into_iter().map(|is_f64| next(is_f64).expect("one for each")).collect()
}
