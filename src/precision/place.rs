//! Where the code being run now stands: in which cell's slot, and whether in a backward pass. Thread-local, restored on
//! return, error and panic alike.

use std::cell::{Cell, RefCell};

thread_local! {
    static SLOTS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    static BACKWARD: Cell<bool> = const { Cell::new(false) };
    static WIDE_WEIGHT_GRADS: Cell<bool> = const { Cell::new(false) };
}

/// A slot being run, until dropped.
pub(crate) struct InSlot;

/// Notes that the slot with this identity is being run.
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

/// The innermost slot being run on this thread; `None` outside every cell.
pub(crate) fn slot() -> Option<usize> {
    SLOTS.with_borrow(|slots| slots.last().copied())
}

/// A backward pass, until dropped.
pub(crate) struct InBackward {
    outer: bool,
}

/// Notes that a backward pass is being run.
pub(crate) fn enter_backward() -> InBackward {
    InBackward { outer: BACKWARD.replace(true) }
}

impl Drop for InBackward {
    fn drop(&mut self) {
        BACKWARD.set(self.outer);
    }
}

/// Whether this thread runs a backward pass.
pub(crate) fn in_backward() -> bool {
    BACKWARD.get()
}

/// A choice for the gradients of weights, until dropped.
pub(crate) struct WeightGrads {
    outer: bool,
}

/// Says whether gradients of weights of the ops from here on are computed in f32.
pub(crate) fn enter_weight_grads(wide: bool) -> WeightGrads {
    WeightGrads { outer: WIDE_WEIGHT_GRADS.replace(wide) }
}

impl Drop for WeightGrads {
    fn drop(&mut self) {
        WIDE_WEIGHT_GRADS.set(self.outer);
    }
}

/// Whether gradients of weights are computed in f32.
pub(crate) fn wide_weight_grads() -> bool {
    WIDE_WEIGHT_GRADS.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_nest_and_survive_a_panic() {
        let _outer = enter_slot(1);
        let caught = std::panic::catch_unwind(|| {
            let _inner = enter_slot(2);
            let _backward = enter_backward();
            assert_eq!((slot(), in_backward()), (Some(2), true));
            panic!("left by panic");
        });
        assert!(caught.is_err());
        assert_eq!((slot(), in_backward()), (Some(1), false));
        assert_eq!(std::thread::spawn(slot).join().unwrap(), None);
    }
}
