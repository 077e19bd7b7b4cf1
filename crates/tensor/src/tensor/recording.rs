//! Recording of op calls, with their tensors and attributes, for a graph that replays them.
//!
//! Nothing is recorded unless this thread [records](record). Each op then keeps its tensors alive until the end, so
//! that no two have the same [identity](Tensor::identity).

use std::{cell::RefCell, fmt, iter, rc::Rc, sync::Arc};

use super::{
    Param, Tensor, context,
    context::Quantizing,
    listener::{CastCall, Observer, OpCall},
};
use crate::{Op, catalogue::Attributes, error::Result, ops::multiplies_weights};

/// A closure that repeats an op only code can run: a custom op with its options.
#[derive(Clone)]
pub struct Again(pub Arc<AgainFn>);

impl Again {
    /// Runs the op.
    ///
    /// # Errors
    /// Those of the op.
    pub fn run(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        (self.0)(inputs)
    }
}

type AgainFn = dyn Fn(&[&Tensor]) -> Result<Tensor> + Send + Sync;

impl fmt::Debug for Again {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Again")
    }
}

/// An op call without its tensors, to run it again.
#[derive(Clone, Debug)]
pub struct Repeatable {
    pub(crate) op: Op,
    pub(crate) attributes: Attributes,
    pub(crate) again: Option<Again>,
}

impl Repeatable {
    /// Returns whether only code can run the op: a custom op.
    pub fn is_code(&self) -> bool {
        self.again.is_some()
    }
}

/// One op call.
pub struct Call {
    /// The op.
    pub op: Op,
    /// Its arguments other than tensors.
    pub attributes: Attributes,
    /// The op itself, if only code can run it.
    pub again: Option<Again>,
    /// Its inputs, as cast by the region in force.
    pub inputs: Vec<Tensor>,
    /// Its results, before they are cast back.
    pub outputs: Vec<Tensor>,
    /// The innermost slot, as `Child::slot` numbers it.
    pub slot: Option<usize>,
    /// `true` when gradients of weights are computed in f32.
    pub wide_weight_grads: bool,
    /// The call of the cell whose product it is, if its operands are quantized.
    pub operands: Option<Quantizing>,
    /// Identity of the layer, for a dropout.
    pub stream: Option<usize>,
}

/// A buffer moving towards the statistics of a batch; see [`Param::blend`].
#[derive(Debug)]
pub struct Blend {
    /// The buffer, such as a running mean.
    pub buffer: Param,
    /// The statistics of the batch.
    pub batch: Tensor,
    /// The share of the batch.
    pub momentum: f64,
    /// The number of numbers behind a biased variance.
    pub count: Option<usize>,
}

/// Contents of a recording.
#[derive(Default)]
pub struct Recorded {
    /// The calls, in order.
    pub calls: Vec<Call>,
    /// The moves of buffers, in order.
    pub blends: Vec<Blend>,
    /// Tensors whose values were read by code, and the slot in which they were read.
    pub read: Vec<(Tensor, Option<usize>)>,
    /// Closures that undo the other changes made by the code.
    undo: Vec<Box<dyn FnOnce()>>,
}

/// A recording in progress.
#[derive(Default, Debug)]
pub struct Recorder(RefCell<Recorded>);

/// Records `f`. Side effects, such as updates of the statistics of a batch norm, are undone.
pub fn record<R>(f: impl FnOnce() -> R) -> (R, Recorded) {
    let (result, mut recorded) = record_for_good(f);
    undo(std::mem::take(&mut recorded.undo));
    (result, recorded)
}

/// Records as [`record`] does, but keeps the side effects of `f` unless it panics.
pub fn record_for_good<R>(f: impl FnOnce() -> R) -> (R, Recorded) {
    let recorder = Rc::new(Recorder::default());
    let result = {
        let _scope = context::record(recorder.clone());
        f()
    };
    (result, recorder.0.take())
}

fn undo(changes: Vec<Box<dyn FnOnce()>>) {
    changes.into_iter().rev().for_each(|change_back| change_back());
}

impl Drop for Recorder {
    /// Undoes the changes of a recording that ended in a panic.
    fn drop(&mut self) {
        undo(std::mem::take(&mut self.0.get_mut().undo));
    }
}

/// Returns whether this thread records.
pub fn is_on() -> bool {
    context::recorder().is_some()
}

fn note(what: impl FnOnce(&mut Recorded)) {
    if let Some(recorder) = context::recorder() {
        what(&mut recorder.0.borrow_mut());
    }
}

impl Observer for Recorder {
    fn op(&self, call: &OpCall<'_>) {
        self.0.borrow_mut().calls.push(Call {
            op: call.op,
            attributes: call.attributes.clone(),
            again: call.again.cloned(),
            inputs: call.inputs.to_vec(),
            outputs: iter::once(call.output).chain(call.more).cloned().collect(),
            slot: call.slot,
            wide_weight_grads: context::wide_weight_grads(),
            operands: multiplies_weights(call.op).then(context::last_product).flatten(),
            stream: None,
        });
    }

    fn cast(&self, cast: &CastCall<'_>) {
        let mut attributes = Attributes::default();
        attributes.set("dtype", &cast.output.dtype());
        self.0.borrow_mut().calls.push(Call {
            op: Op::Cast,
            attributes,
            again: None,
            inputs: vec![cast.input.clone()],
            outputs: vec![cast.output.clone()],
            slot: cast.slot,
            wide_weight_grads: false,
            operands: None,
            stream: None,
        });
    }
}

/// Records that the last call took its seed from a layer's stream, which the next call of the layer continues.
pub fn drawn(stream: usize) {
    note(|recorded| {
        if let Some(call) = recorded.calls.last_mut() {
            call.stream = Some(stream);
        }
    });
}

/// Records that a value was read by code.
pub fn read(x: &Tensor) {
    note(|recorded| recorded.read.push((x.clone(), context::slot())));
}

/// Records that a buffer moves towards the statistics of a batch.
pub fn blend(buffer: &Param, batch: &Tensor, momentum: f64, count: Option<usize>) {
    note(|recorded| {
        recorded.blends.push(Blend { buffer: buffer.clone(), batch: batch.clone(), momentum, count });
    });
}

/// Registers how to undo a change at the end of a recording.
pub fn on_end(change_back: impl FnOnce() + 'static) {
    note(|recorded| recorded.undo.push(Box::new(change_back)));
}

impl fmt::Debug for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.calls).finish()
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.op, self.attributes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, no_grad};

    #[test]
    fn calls_are_recorded_once_with_their_attributes() {
        let x = Tensor::ones(&[2, 3], DType::F32);
        let (y, recorded) = record(|| no_grad(|| x.logsumexp(&[-1], true)?.cast(DType::F16).add(&x)));
        assert_eq!(y.unwrap().dtype(), DType::F32);
        let calls: Vec<String> = recorded.calls.iter().map(|call| format!("{call:?}")).collect();
        // Addition promotes inside the op.
        assert_eq!(calls[..2], ["LogSumExp(axes: [-1], keep_dims: true)", "Cast(dtype: \"float16\")"]);
        assert_eq!(recorded.calls.last().unwrap().op, Op::Add);
        assert!(!is_on());
    }

    #[test]
    fn attributes_of_a_call_that_failed_reach_no_other_op() {
        let x = Tensor::ones(&[2], DType::F32);
        let (_, recorded) = record(|| {
            x.softmax(3).unwrap_err();
            x.relu()
        });
        assert!(recorded.calls[0].attributes.is_empty());
    }
}
