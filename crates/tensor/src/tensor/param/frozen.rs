//! Copies of parameters, frozen ones, and the optimizers that have them.

use std::sync::atomic::Ordering;

use super::{Inner, Param};
use crate::tensor::late;

impl Param {
    /// Creates another parameter with the same value, storage and master, frozen if this one is.
    ///
    /// A clone is a handle of the same parameter instead.
    #[must_use]
    pub fn deep_copy(&self) -> Self {
        let copy = Param::make(self.value(), self.0.is_buffer);
        copy.0.frozen.store(self.is_frozen(), Ordering::Relaxed);
        {
            let (state, mut new) = (self.read(), copy.write());
            new.value = copy.placed(state.value.array().clone());
            new.lowered.clone_from(&state.lowered);
            (new.saved_as, new.requires_scaler) = (state.saved_as, state.requires_scaler);
        }
        copy
    }

    /// Freezes it: it has no gradient, and optimizers leave it alone. A batch norm whose running statistics are frozen
    /// uses them in training as well, and leaves them as they are. See `Child::freeze`.
    pub fn freeze(&self) {
        self.set_frozen(true);
    }

    /// Undoes [`freeze`](Param::freeze). An optimizer trains it if it was made while the parameter was trained.
    pub fn unfreeze(&self) {
        self.set_frozen(false);
    }

    /// Returns whether it is [frozen](Param::freeze).
    pub fn is_frozen(&self) -> bool {
        self.0.frozen.load(Ordering::Relaxed)
    }

    fn set_frozen(&self, frozen: bool) {
        let mut state = self.write();
        if self.0.frozen.swap(frozen, Ordering::Relaxed) != frozen {
            state.value = self.placed(state.value.array().clone());
            drop(state);
            self.note_late();
        }
    }

    /// Notes that it came to be trained and is in no optimizer; see [`Grads::warn_of_late`](super::Grads::warn_of_late).
    pub(super) fn note_late(&self) {
        if self.is_trained() && self.in_optimizer_since() == 0 {
            late::note(self.0.id, &self.shape());
        }
    }

    /// Notes that an optimizer made at some time has it.
    pub(crate) fn note_optimizer(&self, time: u64) {
        late::note_optimizer();
        if self.0.in_optimizer.swap(time, Ordering::Relaxed) == 0 {
            late::forget(self.0.id);
        }
    }

    /// Returns the time at which the last optimizer that has it was made; 0 if none has.
    pub(in crate::tensor) fn in_optimizer_since(&self) -> u64 {
        self.0.in_optimizer.load(Ordering::Relaxed)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        late::forget(self.id);
    }
}
