//! The state of an optimizer, divided among ranks.

use std::cmp::Reverse;

use super::DataParallel;
use crate::{
    Checkpoint, Child, Grads, LossScale, Param, Tensor,
    cell::{AsCell, Params},
    error::{Error, Result},
    optim::{Optimizer, OptimizerState},
};

/// The part of the optimizer's state that a rank keeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum State {
    Whole,
    /// The whole state, of which the next step keeps a part.
    ToShard,
    Sharded,
}

impl State {
    /// Notes that the optimizers have the whole state again.
    pub fn is_anew(&mut self) {
        if *self == State::Sharded {
            *self = State::ToShard;
        }
    }
}

impl DataParallel<'_> {
    /// Divides the state of the optimizer, such as the moments of Adam, among the ranks: each keeps that of some
    /// parameters, updates these, and sends their values to the others. Weights have the same bits. The state of a rank
    /// takes about the share `1 / ranks` of the memory, if no parameter is larger than that; a step sends as much as
    /// before, and the weights once more. (Stage 1 of ZeRO.)
    ///
    /// Save what [`checkpoint`](DataParallel::checkpoint) returns, since the optimizer of a rank has a part of the state.
    #[doc(alias = "ZeRO")]
    #[doc(alias = "ZeroRedundancyOptimizer")]
    #[must_use]
    pub fn sharding_state(self) -> Self {
        let state = if self.ranks.size() == 1 { State::Whole } else { State::ToShard };
        DataParallel { state, ..self }
    }

    /// Captures the current state of a run on rank 0, as [`Checkpoint::of`] does, with the parts of all ranks, which all
    /// make this call. It does not depend on the number of ranks. `None` on other ranks.
    ///
    /// # Errors
    /// [`ErrorKind::Ranks`](crate::ErrorKind::Ranks) when ranks do not answer.
    pub fn checkpoint<C: ?Sized + AsCell>(
        &self,
        net: &Child<C>,
        optimizers: &[&dyn Optimizer],
        scale: &LossScale,
    ) -> Result<Option<Checkpoint>> {
        let checkpoint = |states| Checkpoint::of_states(states, scale).with_net(net).counting("steps", self.steps);
        Ok(self.states(optimizers)?.map(checkpoint))
    }

    /// Returns whether the ranks have different parts of the state.
    pub(in crate::train) fn is_sharded(&self) -> bool {
        self.state == State::Sharded
    }

    /// Refuses ranks with another checksum than rank 0. `of` is the plural noun in the error.
    pub(in crate::train) fn check_equal(&self, checksum: Result<u32>, of: &str) -> Result<()> {
        let own = self.ranks.agree(checksum).map_err(Error::ranks)?;
        let votes = self.ranks.vote(&[own.into()]).map_err(Error::ranks)?;
        match votes.word(0).position(|met| met != votes.of(0)[0]) {
            None => Ok(()),
            Some(rank) => Err(Error::ranks(format!(
                "rank {rank} has other {of} than rank 0, step {}; a cause may be another machine or build",
                self.ranks.step()
            ))),
        }
    }

    /// Returns the whole states of optimizers on rank 0.
    pub(in crate::train) fn states(&self, optimizers: &[&dyn Optimizer]) -> Result<Option<Vec<OptimizerState>>> {
        let own: Vec<OptimizerState> = optimizers.iter().map(|optimizer| optimizer.state()).collect();
        if self.state != State::Sharded {
            return Ok((self.ranks.rank() == 0).then_some(own));
        }
        let mut all = vec![own];
        for rank in 1..self.ranks.size() {
            let bytes = match rank == self.ranks.rank() {
                true => Checkpoint::of_states(all[0].clone(), &LossScale::none()).to_bytes(),
                false => Ok(Vec::new()),
            };
            let bytes = self.ranks.agree(bytes).map_err(Error::ranks)?;
            let bytes = self.ranks.broadcast_from(rank, bytes).map_err(Error::ranks)?;
            let states = match self.ranks.rank() {
                0 => Checkpoint::from_bytes(&bytes).map(|checkpoint| checkpoint.states()),
                _ => Ok(Vec::new()),
            };
            all.push(self.ranks.agree(states).map_err(Error::ranks)?);
        }
        let whole = |(i, optimizer): (usize, &&dyn Optimizer)| {
            let owners = owners(optimizer.params(), self.ranks.size());
            let mut whole = OptimizerState { tensors: Vec::new(), ..all[0][i].clone() };
            for ((path, _), owner) in optimizer.params().iter().zip(owners) {
                let of = &all[owner][i];
                whole.steps.extend(of.steps.get(path).map(|steps| (path.to_string(), *steps)));
                whole.tensors.extend(of.tensors.iter().filter(|(name, _)| is_of(name, path)).cloned());
            }
            whole
        };
        Ok((self.ranks.rank() == 0).then(|| optimizers.iter().enumerate().map(whole).collect()))
    }

    /// Updates the parameters of this rank, and receives the others.
    pub(super) fn update_own(&mut self, optimizer: &mut dyn Optimizer, grads: &Grads) -> Result<()> {
        let owners = owners(optimizer.params(), self.ranks.size());
        if self.state == State::ToShard {
            let sharded = optimizer.restore(own_part(optimizer, &owners, self.ranks.rank()));
            self.ranks.agree(sharded).map_err(Error::ranks)?;
            self.state = State::Sharded;
        }
        let params: Vec<(Param, usize)> =
            optimizer.params().iter().map(|(_, param)| param.clone()).zip(owners).collect();
        let updated = params.iter().filter(|(param, _)| grads.pending(param).is_some());
        let of_rank = |rank: usize| updated.clone().filter(move |(_, owner)| *owner == rank).map(|(param, _)| param);
        let own: Vec<&Param> = of_rank(self.ranks.rank()).collect();
        let result = if own.is_empty() { Ok(()) } else { optimizer.update(&grads.only(&own)) };

        // An update that is refused for some numbers has changed others.
        let numbers = own.iter().flat_map(|param| param.full().to_f64());
        let bytes: Vec<u8> = numbers.flat_map(|number| (number as f32).to_le_bytes()).collect();
        let all = self.ranks.gather(&bytes).map_err(Error::ranks)?;
        let received = (0..self.ranks.size()).filter(|rank| *rank != self.ranks.rank()).try_for_each(|rank| {
            let mut numbers = all[rank].as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
            of_rank(rank).try_for_each(|param| {
                let (before, shape) = (param.full(), param.shape());
                let of_param: Vec<f32> = numbers.by_ref().take(before.len()).collect();
                param.set(&Tensor::from_vec(of_param, &shape)?.cast(before.dtype()))
            })
        });
        self.ranks.agree(result.and(received)).map_err(Error::ranks)
    }
}

/// Returns the rank that keeps the state of each parameter: from the largest on, the one that has the least so far.
fn owners(params: &Params, ranks: usize) -> Vec<usize> {
    let sizes: Vec<usize> = params.iter().map(|(_, param)| param.shape().iter().product()).collect();
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|&param| Reverse(sizes[param]));
    let (mut owners, mut loads) = (vec![0; sizes.len()], vec![0; ranks]);
    for param in order {
        let least = (0..ranks).min_by_key(|&rank| loads[rank]).unwrap_or_default();
        owners[param] = least;
        loads[least] += sizes[param];
    }
    owners
}

/// Returns the state of the parameters of a rank, as if the others had not been updated.
fn own_part(optimizer: &dyn Optimizer, owners: &[usize], rank: usize) -> OptimizerState {
    let mut state = optimizer.state();
    for ((path, _), owner) in optimizer.params().iter().zip(owners) {
        if *owner != rank {
            state.steps.insert(path.to_string(), 0);
            state.tensors.retain(|(name, _)| !is_of(name, path));
        }
    }
    state
}

/// Returns whether a tensor of an optimizer belongs to a parameter.
fn is_of(name: &str, path: &str) -> bool {
    name.rsplit_once('/').is_some_and(|(of, _)| of == path)
}
