//! Observers: they are told of every op call with its dtypes and the slot of the cell it ran in. They change nothing.
//!
//! Nothing is recorded unless this thread [watches](watch); then each event costs one push.

mod non_finite;
mod stats;

use std::cell::{Cell, RefCell};

pub(crate) use non_finite::{Cast, look, seek};
pub use stats::{Calls, OpStats, collect_op_stats};

use crate::{DType, Op, precision};

/// One op call, or one cast that was really done.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Identity of the cell slot it ran in; see [`Trace`](crate::cell::Trace) for paths.
    pub slot: Option<usize>,
    /// The op.
    pub op: Op,
    /// Dtypes of the inputs as the kernel saw them, after casts.
    pub inputs: Vec<DType>,
    /// Dtype of the kernel's result, before it is cast back.
    pub output: DType,
    /// Whether it ran in a backward pass.
    pub backward: bool,
    /// Whether a region that code entered decided on its precision, and not the slot of a cell.
    pub in_code: bool,
    /// Shapes of inputs and result, and what the tape keeps.
    pub sizes: Sizes,
}

/// The sizes of one op call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Shapes of the inputs.
    pub inputs: Vec<Vec<usize>>,
    /// Shape of the result.
    pub output: Vec<usize>,
    /// Which inputs will be sent a gradient.
    pub needs: Vec<bool>,
    /// What the tape keeps of it for the backward pass, parameters left out.
    pub(crate) kept: Vec<Activation>,
}

/// An activation that the tape keeps.
#[derive(Clone, Copy, Debug, Eq)]
pub(crate) struct Activation {
    /// Where its storage begins. Storage that two ops keep is counted once.
    pub address: usize,
    pub dtype: DType,
    pub len: usize,
    /// Whether it is an input of the op.
    pub came_in: bool,
}

impl PartialEq for Activation {
    /// Without the addresses, which differ between two equal runs.
    fn eq(&self, other: &Activation) -> bool {
        (self.dtype, self.len, self.came_in) == (other.dtype, other.len, other.came_in)
    }
}

/// One call of a cell: how many elements that a cast would touch went in and came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CellCall {
    pub slot: usize,
    pub kind: &'static str,
    /// Whether it has parameters, or cells inside it have.
    pub has_params: bool,
    pub inputs: usize,
    pub outputs: usize,
}

/// A forward pass that reads the leaf of this number, in the cell of this slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub slot: Option<usize>,
    pub leaf: u64,
}

/// What a watch has seen.
#[derive(Default)]
pub(crate) struct Seen {
    pub events: Vec<Event>,
    /// In the order in which they ended.
    pub cell_calls: Vec<CellCall>,
    pub reads: Vec<Read>,
}

thread_local! {
    static SEEN: RefCell<Option<Seen>> = const { RefCell::new(None) };
    static WATCHED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f` and returns, beside its result, every event of this thread in order. An outer watch sees them too.
pub fn watch<R>(f: impl FnOnce() -> R) -> (R, Vec<Event>) {
    let (result, seen) = watch_all(f);
    (result, seen.events)
}

/// As [`watch`], with the calls of cells and what they read.
pub(crate) fn watch_all<R>(f: impl FnOnce() -> R) -> (R, Seen) {
    struct Restore(Option<Seen>);
    impl Drop for Restore {
        fn drop(&mut self) {
            WATCHED.set(self.0.is_some());
            SEEN.set(self.0.take());
        }
    }
    let mut outer = Restore(SEEN.replace(Some(Seen::default())));
    WATCHED.set(true);
    let result = f();
    let seen = SEEN.take().unwrap_or_default();
    if let Some(outer) = &mut outer.0 {
        outer.events.extend_from_slice(&seen.events);
        outer.cell_calls.extend_from_slice(&seen.cell_calls);
        outer.reads.extend_from_slice(&seen.reads);
    }
    (result, seen)
}

/// Tells observers of an op call. `sizes` is called only where somebody watches.
pub(crate) fn emit(op: Op, inputs: impl IntoIterator<Item = DType>, output: DType, sizes: impl FnOnce() -> Sizes) {
    if is_watched() {
        let (inputs, sizes) = (inputs.into_iter().collect(), sizes());
        let (slot, backward, in_code) = (precision::slot(), precision::in_backward(), precision::in_code());
        let event = Event { slot, op, inputs, output, backward, in_code, sizes };
        note(|seen| seen.events.push(event));
    }
}

/// Tells observers of the call of a cell.
pub(crate) fn emit_cell_call(call: CellCall) {
    if is_watched() {
        note(|seen| seen.cell_calls.push(call));
    }
}

/// Tells observers which leaves an op reads.
pub(crate) fn emit_reads(leaves: impl Iterator<Item = u64>) {
    if is_watched() && !precision::in_backward() {
        let slot = precision::slot();
        note(|seen| seen.reads.extend(leaves.map(|leaf| Read { slot, leaf })));
    }
}

/// Whether anybody on this thread watches.
pub(crate) fn is_watched() -> bool {
    WATCHED.get()
}

fn note(what: impl FnOnce(&mut Seen)) {
    SEEN.with_borrow_mut(|seen| seen.as_mut().map(what));
}

/// Hides what runs from observers until dropped: for ops that are made of other ops.
pub(crate) fn silence() -> Silence {
    Silence { watched: WATCHED.replace(false) }
}

/// Observers are told nothing, until dropped.
pub(crate) struct Silence {
    watched: bool,
}

impl Drop for Silence {
    fn drop(&mut self) {
        WATCHED.set(self.watched);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_nest() {
        let ((_, inner), outer) = watch(|| {
            emit(Op::Relu, [DType::F32], DType::F32, Sizes::default);
            watch(|| emit(Op::Exp, [DType::F16], DType::F16, Sizes::default))
        });
        assert_eq!(inner.iter().map(|e| e.op).collect::<Vec<_>>(), [Op::Exp]);
        assert_eq!(outer.iter().map(|e| e.op).collect::<Vec<_>>(), [Op::Relu, Op::Exp]);
    }
}
