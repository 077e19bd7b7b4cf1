//! Ops composed of other ops, with a single rounding.

use std::{cell::Cell, sync::Arc};

use crate::{
    DType, Tensor,
    error::Result,
    ops::{Call, dispatch, not_floating},
    precision::Frame,
    tensor::{Forward, Written, context, with_recording},
};

/// Runs an op whose formula is composed of other ops. They run on the widened inputs in f32 (f64 for f64), and only
/// their result is rounded to the dtype of the inputs. Listeners see one op.
///
/// `plan` checks the inputs and returns the formula. Only the inputs are saved. The backward pass runs the formula
/// again, on its own tape, and rounds the f32 gradients once.
pub(in crate::ops) fn composed<F>(call: Call<'_>, plan: impl FnOnce(&[Tensor]) -> Result<F>) -> Result<Tensor>
where
    F: Fn(&[Tensor]) -> Result<Tensor> + Send + Sync + 'static,
{
    if OPENED.take() {
        let inputs: Vec<Tensor> = call.inputs.iter().map(|x| (*x).clone()).collect();
        return plan(&inputs)?(&inputs);
    }
    dispatch(call, |inputs| {
        let dtype = floating(inputs)?;
        let formula = plan(inputs)?;
        // An input may be an unread widening. It is computed here, so that listeners see its cast.
        inputs.iter().for_each(|x| _ = x.array());
        let value = inside(false, || Ok(formula(&widened(inputs))?.cast(dtype).array().clone()))?;
        let formula = Arc::new(formula);
        let written = Written::Op(formula.clone());
        let forward = Forward::new(value, inputs.to_vec(), move |back| {
            let leaf = |(x, &needed): (Tensor, &bool)| if needed { x.requires_grad() } else { x };
            let leaves: Vec<Tensor> = widened(back.saved).into_iter().zip(back.needs).map(leaf).collect();
            inside(true, || {
                let y = formula(&leaves)?;
                let grads = y.backward_from(&back.grad.cast(y.dtype()))?;
                // The formula does not read this input: its gradient is 0, represented by `None`.
                Ok(leaves.iter().map(|x| grads.of(x).map(|grad| grad.cast(dtype))).collect())
            })
        });
        Ok(forward.written(written))
    })
}

thread_local! {
    /// `true` when the next composed op is to run as the ops of which it is composed.
    static OPENED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f` with its first composed op as the ops of which it is composed, each seen by listeners; `None` if `f` runs
/// none.
pub(in crate::ops) fn opened<R>(f: impl FnOnce() -> R) -> Option<R> {
    OPENED.set(true);
    let result = f();
    (!OPENED.take()).then_some(result)
}

/// Returns the dtype common to all floating inputs.
pub(in crate::ops) fn floating(inputs: &[Tensor]) -> Result<DType> {
    let mut floats = inputs.iter().map(Tensor::dtype).filter(|dtype| dtype.is_float());
    match floats.next() {
        Some(first) if floats.all(|other| other == first) => Ok(first),
        _ => {
            let met: Vec<DType> = inputs.iter().map(Tensor::dtype).collect();
            Err(not_floating("floating tensors of one dtype", &met))
        }
    }
}

fn widened(inputs: &[Tensor]) -> Vec<Tensor> {
    inputs.iter().map(|x| if x.dtype().is_low() { x.detach().cast(DType::F32) } else { x.detach() }).collect()
}

/// Runs `f` outside every region, hidden from listeners, with or without a tape.
pub(in crate::ops) fn inside<R>(recording: bool, f: impl FnOnce() -> Result<R>) -> Result<R> {
    let _off = context::enter(Frame::Off);
    let _silence = context::silence();
    with_recording(recording, f)
}
