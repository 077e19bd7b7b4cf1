//! Cells that architecture files can name.

use std::cell::Cell as Place;

use serde::{Serialize, Serializer, ser::Error as _};

use super::{Cell, Child};

/// A cell that is read and written as a map of its `kind` and its fields. `#[cell(saved)]` implements it for a type
/// that derives `Serialize` and `Deserialize`.
#[typetag::serde(tag = "kind")]
pub trait SavedCell: Cell + IntoSlot {}

/// A boxed cell that can be put into a slot.
pub trait IntoSlot {
    /// Puts the cell into a slot.
    fn into_slot(self: Box<Self>) -> Child;
}

impl<C: Cell> IntoSlot for C {
    fn into_slot(self: Box<Self>) -> Child {
        Child::of(*self)
    }
}

impl Serialize for dyn Cell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.saved() {
            Some(saved) => saved.serialize(serializer),
            None => Err(S::Error::custom(format!(
                "a cell of the kind {} is not written to files; mark its type `#[cell(saved)]`, and derive Serialize and \
                 Deserialize",
                self.kind()
            ))),
        }
    }
}

thread_local! {
    /// The innermost slot whose cell was not written.
    static NOT_WRITTEN: Place<Option<usize>> = const { Place::new(None) };
}

/// Notes a slot whose cell was not written; among nested slots the first one noted counts.
pub(super) fn note_not_written(slot: usize) {
    NOT_WRITTEN.set(NOT_WRITTEN.get().or(Some(slot)));
}

/// Runs `write`; on failure, returns the slot along with the error.
pub(crate) fn writing<T, E>(write: impl FnOnce() -> Result<T, E>) -> Result<T, (E, Option<usize>)> {
    NOT_WRITTEN.set(None);
    write().map_err(|error| (error, NOT_WRITTEN.take()))
}
