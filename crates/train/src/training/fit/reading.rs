//! The batches of stored examples, read a few steps ahead.

use precast::error::Result;

use super::Fit;
use crate::data::{
    Batch, Dataset, Inputs, Split, Stored, ahead::Ahead, batches::part_of, batches_of_epoch, later::in_order,
};

/// Examples of the steps of an epoch, read ahead from one of them.
#[derive(Debug)]
pub(super) struct Reading {
    examples: Stored<Dataset>,
    ahead: Ahead<Dataset>,
    /// Epoch and step that are next.
    next: (usize, usize),
}

impl Fit {
    /// Returns the parts of the next batch. Those of stored examples were read ahead.
    pub(super) fn read_parts(&mut self, data: &Split) -> Result<Vec<Batch>> {
        let (size, many, step) = (self.options.batch, self.options.accumulate, self.place.step);
        let Inputs::Stored(stored) = data.train.inputs() else {
            return Ok(data.train.batch_in_parts(&self.order, size, many, step));
        };
        let next = (self.place.epoch, step);
        let reading = match self.reading.take().filter(|reading| reading.next == next && reading.examples == *stored) {
            Some(reading) => reading,
            None => {
                let (order, whole) = (self.order.clone(), self.options.examples_of_step());
                let steps = batches_of_epoch(order.len(), whole);
                let parts = (step..steps).map(move |step| part_of(&order, whole, steps, step).to_vec());
                Reading { examples: stored.clone(), ahead: Ahead::of(stored, parts)?, next }
            }
        };
        let Reading { examples, mut ahead, .. } = reading;
        let read = ahead.part()?;
        let (_, part) = self.batch_at(step, data);
        let read = read.with_targets_of(&data.train, part);
        self.reading = Some(Reading { examples, ahead, next: (self.place.epoch, step + 1) });
        Ok(read.batch_in_parts(&in_order(read.len()), size, many, 0))
    }

    /// Returns whether the last call of [`advance`](Fit::advance) failed before its step, as it read its examples or scored
    /// them.
    pub(crate) fn has_not_read(&self) -> bool {
        self.unread
    }
}
