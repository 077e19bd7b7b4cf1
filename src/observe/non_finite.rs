//! Where the first number appears that is not finite.

use std::cell::{Cell, RefCell};

use crate::{DType, Op, precision};

/// What is cast, of a cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cast {
    /// The leaf of this number.
    Leaf(u64),
    /// What goes into a cell, at its border.
    IntoCell,
    /// What comes out of a cell, at its border.
    OutOfCell,
    /// What an op reads.
    IntoOp(Op),
    Gradient,
    Other,
}

/// The op in which a number appeared that is not finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub slot: Option<usize>,
    pub op: Op,
    pub backward: bool,
    pub came_in: bool,
    /// Of a cast: what is cast, and to which dtype.
    pub cast: Option<(Cast, DType)>,
}

thread_local! {
    static SEEKS: Cell<bool> = const { Cell::new(false) };
    static FOUND: RefCell<Option<Found>> = const { RefCell::new(None) };
}

/// Runs `f` and returns, beside its result, where the first number appeared that is not finite. Each op's inputs and
/// outputs are read for it.
pub(crate) fn seek<R>(f: impl FnOnce() -> R) -> (R, Option<Found>) {
    struct Restore(bool, Option<Found>);
    impl Drop for Restore {
        fn drop(&mut self) {
            SEEKS.set(self.0);
            FOUND.set(self.1.take());
        }
    }
    let _restore = Restore(SEEKS.replace(true), FOUND.take());
    let result = f();
    (result, FOUND.take())
}

/// Looks at the numbers of an op, where somebody seeks and nothing was found so far. `slot` is the cell that called it,
/// `cast` says of a cast what it casts.
pub(crate) fn look(
    op: Op,
    cast: Option<(Cast, DType)>,
    slot: impl FnOnce() -> Option<usize>,
    inputs_finite: impl FnOnce() -> bool,
    output_finite: impl FnOnce() -> bool,
) {
    if SEEKS.get() && FOUND.with_borrow(Option::is_none) && !output_finite() {
        let (slot, came_in) = (slot(), !inputs_finite());
        FOUND.set(Some(Found { slot, op, backward: precision::in_backward(), came_in, cast }));
    }
}
