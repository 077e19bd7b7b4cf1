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
}

thread_local! {
    static EVENTS: RefCell<Option<Vec<Event>>> = const { RefCell::new(None) };
    static WATCHED: Cell<bool> = const { Cell::new(false) };
    static BACKWARD: Cell<bool> = const { Cell::new(false) };
    static SLOTS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Runs `f` and returns, beside its result, every event of this thread in order. An outer watch sees them too.
pub fn watch<R>(f: impl FnOnce() -> R) -> (R, Vec<Event>) {
    struct Restore(Option<Vec<Event>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            WATCHED.set(self.0.is_some());
            EVENTS.set(self.0.take());
        }
    }
    let mut outer = Restore(EVENTS.replace(Some(Vec::new())));
    WATCHED.set(true);
    let result = f();
    let events = EVENTS.take().unwrap_or_default();
    if let Some(seen) = &mut outer.0 {
        seen.extend_from_slice(&events);
    }
    (result, events)
}

pub(crate) fn emit(op: Op, inputs: impl IntoIterator<Item = DType>, output: DType) {
    if WATCHED.get() {
        let inputs = inputs.into_iter().collect();
        let event = Event { slot: innermost_slot(), op, inputs, output, backward: BACKWARD.get() };
        EVENTS.with_borrow_mut(|events| {
            if let Some(events) = events {
                events.push(event);
            }
        });
    }
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
            emit(Op::Relu, [DType::F32], DType::F32);
            watch(|| emit(Op::Exp, [DType::F16], DType::F16))
        });
        assert_eq!(inner.iter().map(|e| e.op).collect::<Vec<_>>(), [Op::Exp]);
        assert_eq!(outer.iter().map(|e| e.op).collect::<Vec<_>>(), [Op::Relu, Op::Exp]);
    }
}
