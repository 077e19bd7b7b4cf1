//! Watching what runs: every op call tells its dtypes here, and the cell slot it ran in.
//!
//! Nothing is recorded unless somebody on this thread [watches](watch); then each event costs one push.

mod stats;

use std::cell::{Cell, RefCell};

pub use stats::{Calls, OpStats, collect_op_stats};

use crate::{DType, Op};

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
    /// How large all that was.
    pub sizes: Sizes,
}

/// How much there was to do in one op call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Shapes of the inputs.
    pub inputs: Vec<Vec<usize>>,
    /// Shape of the result.
    pub output: Vec<usize>,
    /// Which inputs will be sent a gradient.
    pub needs: Vec<bool>,
    /// What the tape keeps of it for the way back, parameters left out.
    pub(crate) kept: Vec<Kept>,
}

/// An activation that the tape keeps.
#[derive(Clone, Copy, Debug, Eq)]
pub(crate) struct Kept {
    /// Where its storage begins: what two ops keep of one storage is kept once.
    pub address: usize,
    pub dtype: DType,
    pub len: usize,
    /// Whether it is what came in.
    pub came_in: bool,
}

impl PartialEq for Kept {
    /// Two runs did the same wherever their storages lie.
    fn eq(&self, other: &Kept) -> bool {
        (self.dtype, self.len, self.came_in) == (other.dtype, other.len, other.came_in)
    }
}

/// One call of a cell: how many elements that a cast would touch went in and came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Crossing {
    pub slot: usize,
    pub inputs: usize,
    pub outputs: usize,
}

/// What a watch has seen so far.
#[derive(Default)]
struct Seen {
    events: Vec<Event>,
    crossings: Vec<Crossing>,
}

thread_local! {
    static SEEN: RefCell<Option<Seen>> = const { RefCell::new(None) };
    static WATCHED: Cell<bool> = const { Cell::new(false) };
    static BACKWARD: Cell<bool> = const { Cell::new(false) };
    static SLOTS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Runs `f` and returns, beside its result, every event of this thread in order. An outer watch sees them too.
pub fn watch<R>(f: impl FnOnce() -> R) -> (R, Vec<Event>) {
    let (result, events, _) = watch_cells(f);
    (result, events)
}

/// As [`watch`], with every call of a cell in the order in which they ended.
pub(crate) fn watch_cells<R>(f: impl FnOnce() -> R) -> (R, Vec<Event>, Vec<Crossing>) {
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
    let Seen { events, crossings } = SEEN.take().unwrap_or_default();
    if let Some(seen) = &mut outer.0 {
        seen.events.extend_from_slice(&events);
        seen.crossings.extend_from_slice(&crossings);
    }
    (result, events, crossings)
}

/// Tells watchers of an op call; its sizes are asked for only where there are any.
pub(crate) fn emit(op: Op, inputs: impl IntoIterator<Item = DType>, output: DType, sizes: impl FnOnce() -> Sizes) {
    if is_watched() {
        let (inputs, sizes) = (inputs.into_iter().collect(), sizes());
        let event = Event { slot: innermost_slot(), op, inputs, output, backward: BACKWARD.get(), sizes };
        note(|seen| seen.events.push(event));
    }
}

/// Tells watchers of the call of a cell.
pub(crate) fn emit_crossing(slot: usize, inputs: usize, outputs: usize) {
    if is_watched() {
        note(|seen| seen.crossings.push(Crossing { slot, inputs, outputs }));
    }
}

/// Whether anybody on this thread watches.
pub(crate) fn is_watched() -> bool {
    WATCHED.get()
}

fn note(what: impl FnOnce(&mut Seen)) {
    SEEN.with_borrow_mut(|seen| seen.as_mut().map(what));
}

/// Marks the backward pass until dropped.
pub(crate) fn enter_backward() -> Flag {
    Flag::set(&BACKWARD, true)
}

/// Hides what runs from watchers until dropped: for ops that are made of other ops.
pub(crate) fn silence() -> Flag {
    Flag::set(&WATCHED, false)
}

/// A thread-local flag that is put back when dropped, also on panic.
pub(crate) struct Flag {
    flag: &'static std::thread::LocalKey<Cell<bool>>,
    before: bool,
}

impl Flag {
    fn set(flag: &'static std::thread::LocalKey<Cell<bool>>, value: bool) -> Flag {
        Flag { flag, before: flag.replace(value) }
    }
}

impl Drop for Flag {
    fn drop(&mut self) {
        self.flag.set(self.before);
    }
}

/// Notes that a slot is being run, until dropped.
pub(crate) struct InSlot;

pub(crate) fn enter_slot(slot: usize) -> InSlot {
    SLOTS.with_borrow_mut(|slots| slots.push(slot));
    InSlot
}

impl Drop for InSlot {
    fn drop(&mut self) {
        SLOTS.with_borrow_mut(|slots| {
            slots.pop();
        });
    }
}

/// How many slots are being run on this thread.
pub(crate) fn slot_depth() -> usize {
    SLOTS.with_borrow(Vec::len)
}

fn innermost_slot() -> Option<usize> {
    SLOTS.with_borrow(|slots| slots.last().copied())
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
