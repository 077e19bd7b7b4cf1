//! Which ops run, on which tensors and with which attributes, for a graph that will run them again.
//!
//! Nothing is recorded unless this thread [records](record); then each op keeps its tensors alive until the end, so that no
//! two of them have one [identity](Tensor::identity).

use std::{
    cell::{Cell, RefCell},
    fmt,
    sync::Arc,
};

use super::{Param, Tensor};
use crate::{Op, catalogue::Attributes, error::Result, precision};

/// Runs an op again that only code can run: a custom op with its options.
pub(crate) type Again = Arc<dyn Fn(&[&Tensor]) -> Result<Tensor> + Send + Sync>;

/// One op call.
pub(crate) struct Call {
    pub op: Op,
    pub attributes: Attributes,
    pub again: Option<Again>,
    pub inputs: Vec<Tensor>,
    pub outputs: Vec<Tensor>,
    /// The innermost slot.
    pub slot: Option<usize>,
    /// Whether gradients of weights are computed in f32.
    pub wide_weight_grads: bool,
    /// Of a dropout, what tells its layer from others.
    pub stream: Option<usize>,
}

/// A buffer that moves towards the statistics of a batch; see [`Param::blend`].
pub(crate) struct Blend {
    pub buffer: Param,
    pub batch: Tensor,
    pub momentum: f64,
    pub count: Option<usize>,
}

/// What was recorded.
#[derive(Default)]
pub(crate) struct Recorded {
    pub calls: Vec<Call>,
    pub blends: Vec<Blend>,
    /// Tensors whose values the code read, and in which slot.
    pub read: Vec<(Tensor, Option<usize>)>,
    /// Undoes what the code changed besides.
    undo: Vec<Box<dyn FnOnce()>>,
}

/// What an op will be told when it is called next.
struct Announced {
    op: Op,
    attributes: Attributes,
    again: Option<Again>,
}

/// Who wants to know of op calls.
#[derive(Clone, Copy, Default)]
struct Listeners {
    /// A recording.
    recording: bool,
    /// The tape, for second derivatives.
    tape: bool,
}

thread_local! {
    static LISTENERS: Cell<Listeners> = const { Cell::new(Listeners { recording: false, tape: false }) };
    static RECORDED: RefCell<Option<Recorded>> = const { RefCell::new(None) };
    static ANNOUNCED: RefCell<Option<Announced>> = const { RefCell::new(None) };
}

/// Records what `f` does. What it changes besides its result, such as the statistics of a batch norm, is changed back.
pub(crate) fn record<R>(f: impl FnOnce() -> R) -> (R, Recorded) {
    let (result, mut recorded) = record_for_good(f);
    undo(std::mem::take(&mut recorded.undo));
    (result, recorded)
}

/// As [`record`], but what `f` changes stays changed, unless it panics.
pub(crate) fn record_for_good<R>(f: impl FnOnce() -> R) -> (R, Recorded) {
    struct Restore(Option<Recorded>, Listeners);
    impl Drop for Restore {
        fn drop(&mut self) {
            let recorded = RECORDED.replace(self.0.take());
            LISTENERS.set(self.1);
            undo(recorded.map(|recorded| recorded.undo).unwrap_or_default());
        }
    }
    let listeners = LISTENERS.get();
    let restore = Restore(RECORDED.replace(Some(Recorded::default())), listeners);
    LISTENERS.set(Listeners { recording: true, ..listeners });
    let result = f();
    let recorded = RECORDED.take().unwrap_or_default();
    drop(restore);
    (result, recorded)
}

fn undo(changes: Vec<Box<dyn FnOnce()>>) {
    changes.into_iter().rev().for_each(|change_back| change_back());
}

/// Whether this thread records.
pub(crate) fn is_on() -> bool {
    LISTENERS.get().recording
}

/// Whether the tape keeps calls, for second derivatives.
pub(crate) fn keeps_calls() -> bool {
    LISTENERS.get().tape
}

/// Others listen until dropped.
pub(crate) struct Paused(Listeners);

/// Nobody listens: inside of an op.
pub(crate) fn pause() -> Paused {
    Paused(LISTENERS.replace(Listeners::default()))
}

/// The tape keeps calls, besides what was recorded before.
pub(crate) fn keep_calls() -> Paused {
    let before = LISTENERS.get();
    Paused(LISTENERS.replace(Listeners { tape: true, ..before }))
}

impl Drop for Paused {
    fn drop(&mut self) {
        LISTENERS.set(self.0);
    }
}

fn note(what: impl FnOnce(&mut Recorded)) {
    if is_on() {
        RECORDED.with_borrow_mut(|recorded| recorded.as_mut().map(what));
    }
}

/// Says with which attributes the next call of `op` will be.
pub(crate) fn announce(op: Op, attributes: impl FnOnce() -> Attributes) {
    let Listeners { recording, tape } = LISTENERS.get();
    if recording || tape {
        ANNOUNCED.set(Some(Announced { op, attributes: attributes(), again: None }));
    }
}

/// Says how the next call of a custom op is run again.
pub(crate) fn announce_custom(op: Op, again: impl FnOnce() -> Again) {
    if is_on() {
        ANNOUNCED.set(Some(Announced { op, attributes: Attributes::default(), again: Some(again()) }));
    }
}

/// Names the attributes of the next call of an op, by the names of variables.
macro_rules! attributes {
    ($op:expr; $($name:ident),* $(,)?) => {
        $crate::tensor::recording::announce($op, || {
            #[allow(unused_mut, reason = "some ops of a group have no attributes")]
            let mut attributes = $crate::catalogue::Attributes::default();
            $(attributes.set(stringify!($name), &$name.to_owned());)*
            attributes
        })
    };
}
pub(crate) use attributes;

/// The attributes that were announced for this call of an op.
pub(crate) fn announced(op: Op) -> Attributes {
    ANNOUNCED.with_borrow(|announced| {
        let announced = announced.as_ref().filter(|announced| announced.op == op);
        announced.map(|announced| announced.attributes.clone()).unwrap_or_default()
    })
}

/// Records an op call.
pub(crate) fn call(op: Op, inputs: &[Tensor], output: &Tensor) {
    let Listeners { recording, tape } = LISTENERS.get();
    if !recording && !tape {
        return;
    }
    // The op may be made of others, which were told nothing.
    let announced = ANNOUNCED.with_borrow_mut(|announced| announced.take_if(|announced| announced.op == op));
    note(|recorded| {
        let (attributes, again) = announced.map_or_else(Default::default, |a| (a.attributes, a.again));
        let (inputs, outputs) = (inputs.to_vec(), vec![output.clone()]);
        let slot = precision::slot();
        let wide_weight_grads = precision::wide_weight_grads();
        recorded.calls.push(Call { op, attributes, again, inputs, outputs, slot, wide_weight_grads, stream: None });
    });
}

/// Records more outputs of the last call of an op.
pub(crate) fn also(op: Op, outputs: &[&Tensor]) {
    note(|recorded| {
        if let Some(call) = recorded.calls.iter_mut().rev().find(|call| call.op == op) {
            call.outputs.extend(outputs.iter().map(|&output| output.clone()));
        }
    });
}

/// Records that the last call took its seed from a layer's stream of seeds, which the next call of the layer continues.
pub(crate) fn drawn(stream: usize) {
    note(|recorded| {
        if let Some(call) = recorded.calls.last_mut() {
            call.stream = Some(stream);
        }
    });
}

/// Records a cast.
pub(crate) fn cast(from: &Tensor, to: &Tensor) {
    note(|recorded| {
        let mut attributes = Attributes::default();
        attributes.set("dtype", &to.dtype());
        let (inputs, outputs) = (vec![from.clone()], vec![to.clone()]);
        let (op, again, slot, stream) = (Op::Cast, None, precision::slot(), None);
        let wide_weight_grads = false;
        recorded.calls.push(Call { op, attributes, again, inputs, outputs, slot, wide_weight_grads, stream });
    });
}

/// Records that a value was read.
pub(crate) fn read(x: &Tensor) {
    note(|recorded| recorded.read.push((x.clone(), precision::slot())));
}

/// Records that a buffer moves.
pub(crate) fn blend(buffer: &Param, batch: &Tensor, momentum: f64, count: Option<usize>) {
    note(|recorded| {
        recorded.blends.push(Blend { buffer: buffer.clone(), batch: batch.clone(), momentum, count });
    });
}

/// How to undo a change that is being made.
pub(crate) fn on_end(change_back: impl FnOnce() + 'static) {
    note(|recorded| recorded.undo.push(Box::new(change_back)));
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
        // Addition promotes inside of the op.
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
