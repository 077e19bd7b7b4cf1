//! The ranks of a job, as the command on rank 0 leads them.

use std::{cell::Cell, fs, ops::ControlFlow};

use precast::ErrorKind;
use precast_mpi::Ranks;
use precast_train::Event;
use precast_train::{EndReason, Run, RunFile};

use super::Result;

/// The ranks of rank 0, and whether the others have begun with its run.
pub(super) struct Lead<'r> {
    pub ranks: &'r Ranks,
    pub has_begun: Cell<bool>,
}

impl Lead<'_> {
    /// Checks that the steps of a run can be divided among the ranks.
    pub fn check(&self, file: &RunFile) -> Result {
        Ok(file.check_ranks(self.ranks.size())?)
    }

    /// Trains a run on all ranks, as [`Run::train_with`] does on one. A run that another rank cannot begin leaves no folder,
    /// unless it had one.
    pub fn train(
        &self,
        run: &mut Run,
        is_new: bool,
        observer: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> precast::Result<EndReason> {
        self.has_begun.set(true);
        let ended = run.train_on(self.ranks, observer);
        if ended.as_ref().is_err_and(|error| error.kind() == ErrorKind::Ranks)
            && is_new
            && run.history().steps.is_empty()
        {
            // Best effort: the error is what matters.
            let _ = fs::remove_dir_all(run.folder());
        }
        ended
    }
}
