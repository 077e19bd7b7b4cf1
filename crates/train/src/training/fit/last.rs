//! The last step of a run: its magnitudes, and the examples of its batch; the score at its end.

use precast::{Child, cell::AsCell, error::Result};
use precast_diagnose::Monitor;

use super::Fit;
use crate::{
    data::{Batch, Split, batches::part_of},
    training::Tested,
};

impl Fit {
    /// Returns the record of the largest magnitudes in the last steps, which is empty unless the run
    /// [watches](crate::training::FitOptions::monitor) its steps.
    pub fn monitor(&self) -> &Monitor {
        &self.monitor
    }

    /// Names the measure of the scores, before there is one, and says if they are those of validation examples.
    pub(crate) fn measured_by(mut self, measure: &'static str, validated: bool) -> Self {
        (self.history.measure, self.history.validated) = (Some(measure), validated);
        self
    }

    /// Records the score at the end of the run.
    pub(crate) fn note_test(&mut self, test: Tested) {
        self.history.test = Some(test);
    }

    /// Returns the seed of the order of the examples.
    pub fn seed(&self) -> u64 {
        self.options.seed
    }

    /// Returns the index of the batch of the last step in its epoch, and the indices of its examples.
    pub(crate) fn last_batch(&self, data: &Split) -> (usize, Vec<usize>) {
        let (place, examples) = self.batch_at(self.place.step.saturating_sub(1), data);
        (place, examples.to_vec())
    }

    /// Returns the index of a batch in its epoch, and the indices of its examples.
    pub(super) fn batch_at(&self, place: usize, data: &Split) -> (usize, &[usize]) {
        let (size, examples) = (self.options.examples_of_step(), data.train.len());
        (place, part_of(&self.order, size, self.options.steps_of_epoch(examples), place))
    }

    /// Returns the batch of the last step.
    pub(crate) fn tensors_of_last(&self, data: &Split) -> Result<Batch> {
        data.train.read_batch(&self.order, self.options.examples_of_step(), self.place.step.saturating_sub(1))
    }

    /// Raises the cell that stalled the run, if it may, and ends the epoch if all its steps were taken.
    pub(crate) fn finish_epoch<C: ?Sized + AsCell>(&mut self, net: &mut Child<C>, data: &Split) -> Result<()> {
        self.raise()?;
        self.end_rules();
        if self.place.step >= self.options.steps_of_epoch(data.train.len()) {
            self.advance(net, data)?;
        }
        Ok(())
    }
}
