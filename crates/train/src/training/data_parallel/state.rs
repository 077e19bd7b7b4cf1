//! The state of an optimizer, divided among ranks.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, HashSet},
};

use precast::{
    Checkpoint, Child, DType, Grads, LossScale, Param, Tensor,
    cell::{AsCell, Params},
    error::{Error, Result},
    optim::{Optimizer, OptimizerState},
};

use super::{super::outgoing::numbers, DataParallel};

/// Numbers of a message with the values of several parameters: 1 MiB of f32.
const MESSAGE: usize = 1 << 18;

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
    /// [`ErrorKind::Ranks`](precast::ErrorKind::Ranks) when ranks do not answer.
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
    pub(crate) fn is_sharded(&self) -> bool {
        self.state == State::Sharded
    }

    /// Refuses ranks with another checksum than rank 0. `of` is the plural noun in the error.
    pub(crate) fn check_equal(&self, checksum: Result<u32>, of: &str) -> Result<()> {
        let own = self.ranks.agree(checksum).map_err(Error::ranks)?;
        let votes = self.ranks.vote(&[own.into()]).map_err(Error::ranks)?;
        match votes.differing(0) {
            None => Ok(()),
            Some(rank) => Err(Error::ranks(format!(
                "rank {rank} has other {of} than rank 0, step {}; a cause may be another machine or build",
                self.ranks.step()
            ))),
        }
    }

    /// Returns the whole states of optimizers on rank 0.
    pub(crate) fn states(&self, optimizers: &[&dyn Optimizer]) -> Result<Option<Vec<OptimizerState>>> {
        let own: Vec<OptimizerState> = optimizers.iter().map(|optimizer| optimizer.state()).collect();
        if self.state != State::Sharded {
            return Ok((self.ranks.rank() == 0).then_some(own));
        }
        // One parameter after another, so that no rank has the state of all others at a time.
        let mut whole: Vec<OptimizerState> =
            own.iter().map(|own| OptimizerState { tensors: Vec::new(), ..own.clone() }).collect();
        for (i, optimizer) in optimizers.iter().enumerate() {
            let owners = owners(optimizer.params(), self.ranks.size());
            let mut by_param = by_param(&own[i]);
            for ((path, _), owner) in optimizer.params().iter().zip(owners) {
                let (optimizer, steps, tensors) = (own[i].optimizer.clone(), BTreeMap::new(), Vec::new());
                let one = by_param.remove(path).unwrap_or(OptimizerState { optimizer, steps, tensors });
                let one = match owner {
                    0 => one,
                    _ => self.received_from(owner, one)?,
                };
                if self.ranks.rank() == 0 {
                    whole[i].steps.extend(one.steps);
                    whole[i].tensors.extend(one.tensors);
                }
            }
        }
        Ok((self.ranks.rank() == 0).then_some(whole))
    }

    /// Returns a state of its owner on rank 0; on other ranks, that of this rank.
    fn received_from(&self, owner: usize, own: OptimizerState) -> Result<OptimizerState> {
        let bytes = match owner == self.ranks.rank() {
            true => Checkpoint::of_states(vec![own.clone()], &LossScale::none()).to_bytes(),
            false => Ok(Vec::new()),
        };
        let bytes = self.ranks.agree(bytes).map_err(Error::ranks)?;
        let bytes = self.ranks.broadcast_from(owner, bytes).map_err(Error::ranks)?;
        let state = match self.ranks.rank() {
            0 => Checkpoint::from_bytes(&bytes).map(|checkpoint| checkpoint.states().pop()),
            _ => Ok(None),
        };
        Ok(self.ranks.agree(state).map_err(Error::ranks)?.unwrap_or(own))
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
        let updated = params.iter().filter(|(param, _)| grads.contains(param));
        let of_rank = |rank: usize| updated.clone().filter(move |(_, owner)| *owner == rank).map(|(param, _)| param);
        let own: Vec<&Param> = of_rank(self.ranks.rank()).collect();
        let mut result = if own.is_empty() { Ok(()) } else { optimizer.update(&grads.only(&own)) };
        // An update that is refused for some numbers has changed others.
        for rank in 0..self.ranks.size() {
            let mut params: Vec<&Param> = of_rank(rank).collect();
            while !params.is_empty() {
                let mut numbers = 0;
                let mut fits = |param: &&Param| {
                    numbers += param.shape().iter().product::<usize>();
                    numbers <= MESSAGE
                };
                let later = params.split_off(params.iter().take_while(|param| fits(param)).count().max(1));
                let received = self.values_from(rank, &params)?;
                result = result.and(received);
                params = later;
            }
        }
        self.ranks.agree(result).map_err(Error::ranks)
    }

    /// Gives the parameters the values that a rank has. Returns an error of this rank within the result.
    fn values_from(&self, rank: usize, params: &[&Param]) -> Result<Result<()>> {
        let is_own = rank == self.ranks.rank();
        let bytes = if is_own {
            params
                .iter()
                .flat_map(|param| numbers(&param.full()).iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>())
                .collect()
        } else {
            Vec::new()
        };
        let bytes = self.ranks.broadcast_from(rank, bytes).map_err(Error::ranks)?;
        if is_own {
            return Ok(Ok(()));
        }
        let mut numbers = bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
        Ok(params.iter().try_for_each(|param| {
            let (before, shape) = (param.full(), param.shape());
            let values: Vec<f32> = numbers.by_ref().take(before.len()).collect();
            param.set(&match before.dtype() {
                DType::F32 => Tensor::from_vec(values, &shape)?,
                // These represent the numbers that the owner has.
                dtype => Tensor::from_f64(&values.into_iter().map(f64::from).collect::<Vec<_>>(), &shape, dtype)?,
            })
        }))
    }
}

/// Returns the state of each parameter, by path.
fn by_param(state: &OptimizerState) -> HashMap<&str, OptimizerState> {
    let one = |(path, steps): (&String, &u64)| OptimizerState {
        optimizer: state.optimizer.clone(),
        steps: [(path.clone(), *steps)].into(),
        tensors: Vec::new(),
    };
    let mut all: HashMap<&str, _> = state.steps.iter().map(|of| (of.0.as_str(), one(of))).collect();
    for (name, tensor) in &state.tensors {
        if let Some(one) = all.get_mut(param_of(name)) {
            one.tensors.push((name.clone(), tensor.clone()));
        }
    }
    all
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
    let params = optimizer.params().iter().zip(owners);
    let others: HashSet<&str> = params.filter(|(_, owner)| **owner != rank).map(|((path, _), _)| path).collect();
    state.steps.iter_mut().filter(|(path, _)| others.contains(path.as_str())).for_each(|(_, steps)| *steps = 0);
    state.tensors.retain(|(name, _)| !others.contains(param_of(name)));
    state
}

/// Returns the path of the parameter to which a tensor of an optimizer belongs.
fn param_of(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(path, _)| path)
}
