//! The steps of a run, in one process or on the ranks of a job.

use precast::{Checkpoint, Child, Result};

use crate::{
    data::Split,
    training::{Event, Fit},
};

/// The calls of a run that all ranks make.
pub(super) trait Steps {
    /// Returns the number of ranks.
    fn ranks(&self) -> usize {
        1
    }

    /// Runs the next step, or scores an epoch.
    ///
    /// # Errors
    /// As [`Fit::advance`].
    fn advance<'f>(&mut self, fit: &'f mut Fit, net: &mut Child, data: &Split) -> Result<Option<Event<'f>>>;

    /// Returns whether another rank asks for the end of the run after the last step.
    fn is_stopped(&self) -> bool {
        false
    }

    /// Captures the state of the run.
    ///
    /// # Errors
    /// Those of the ranks.
    fn checkpoint(&mut self, fit: &Fit, net: &Child) -> Result<Checkpoint>;
}

/// Steps in one process.
pub(super) struct Alone;

impl Steps for Alone {
    fn advance<'f>(&mut self, fit: &'f mut Fit, net: &mut Child, data: &Split) -> Result<Option<Event<'f>>> {
        fit.advance(net, data)
    }

    fn checkpoint(&mut self, fit: &Fit, net: &Child) -> Result<Checkpoint> {
        Ok(fit.checkpoint(net))
    }
}
