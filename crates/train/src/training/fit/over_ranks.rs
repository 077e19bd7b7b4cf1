//! A run on the ranks of a job.

use precast::{
    Checkpoint, Child,
    cell::AsCell,
    error::{Error, Result},
};

use super::{Event, Fit};
use crate::{data::Split, training::DataParallel};

impl Fit {
    /// Advances as [`advance`](Fit::advance) does, with the [shards](super::FitOptions::shards) of a step divided among ranks,
    /// each of which has the same data and makes the same calls. The batches of a score are divided as well.
    ///
    /// # Errors
    /// As [`fit`](super::fit); [`ErrorKind::Value`](precast::ErrorKind::Value) for another number of shards,
    /// [`ErrorKind::Ranks`](precast::ErrorKind::Ranks) as for [`DataParallel::step`].
    pub fn advance_on<C: ?Sized + AsCell>(
        &mut self,
        parallel: &mut DataParallel<'_>,
        net: &mut Child<C>,
        data: &Split,
    ) -> Result<Option<Event<'_>>> {
        if parallel.shards() != self.options.shards {
            let (met, expected) = (parallel.shards(), self.options.shards);
            return Err(Error::value(format!("steps of {met} shards for a run of {expected}")));
        }
        self.advance_with(net, data, Some(parallel))
    }

    /// Returns a checkpoint on rank 0 as [`checkpoint`](Fit::checkpoint) does, with the parts of the optimizer's
    /// [state](DataParallel::sharding_state) that other ranks keep. All ranks make this call, which compares weights, the loss
    /// scale, counters, and the state that each of them has.
    ///
    /// # Errors
    /// [`ErrorKind::Ranks`](precast::ErrorKind::Ranks) when ranks differ, or do not answer.
    pub fn checkpoint_on<C: ?Sized + AsCell>(
        &self,
        parallel: &DataParallel<'_>,
        net: &Child<C>,
    ) -> Result<Option<Checkpoint>> {
        let of_all = if parallel.is_sharded() { Vec::new() } else { vec![self.optimizer.state()] };
        let own = self.counted(Checkpoint::of_states(of_all, &self.scale).with_net(net)).checksum();
        parallel.check_equal(own, "weights or state of the optimizer")?;
        let states = parallel.states(&[self.optimizer.as_ref()])?;
        Ok(states.map(|states| self.counted(Checkpoint::of_states(states, &self.scale).with_net(net))))
    }

    /// Gives the optimizer on rank 0 the whole state. All ranks make this call, after their last step.
    ///
    /// # Errors
    /// As [`checkpoint_on`](Fit::checkpoint_on).
    pub fn gather_state(&mut self, parallel: &DataParallel<'_>) -> Result<()> {
        match parallel.states(&[self.optimizer.as_ref()])?.and_then(|mut states| states.pop()) {
            Some(state) => self.optimizer.restore(state),
            None => Ok(()),
        }
    }
}
