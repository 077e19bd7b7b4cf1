//! Steps over shards that are divided among the ranks of a job.

mod reduction;
mod state;

use precast::{
    Checkpoint, Child, DType, Param, Tensor,
    cell::{AsCell, Params},
    error::{Error, Result},
    layers::drawing_in_shard,
    observe::{Origin, Phase},
    optim::Optimizer,
    scale::{Cause, LossScale, Outcome, ScaledGrads, ScaledLoss, Scaling},
    uses_amx, vector_lanes,
};
use precast_diagnose::Monitor;
use precast_mpi::{Exchange, Node, Ranks, Shards, Tree, Votes, Wire};

use reduction::mean_over_targets;
use state::State;

use super::{
    Loss,
    outgoing::{Outgoing, Own},
    shards::{Buffers, OfShard, Sum, filled},
};
use crate::data::Batch;

/// Training of one network by several ranks, each of which has a copy of it: data parallelism.
///
/// A batch is cut into shards, whose number is part of the computation as the seed is. Each rank computes the gradients of
/// its shards alone; they are added in the order of a binary tree over the numbers of the shards. So weights, optimizer
/// and loss scale have the same bits for every number of ranks, with the wire `float32`, if all have the same vectors.
///
/// - Every rank takes the same step, or skips it for the same reason: gradients are summed before they are unscaled and
///   checked.
/// - A batch norm sees each shard alone, and its running statistics move once a step, by the mean of the moves of all
///   shards. A dropout is a function of its seed, the step and the shard.
/// - A shard weighs as much as the targets in it that count: those that are not ignored, or as
///   [`step_weighted`](DataParallel::step_weighted) has it.
/// - An error of one rank is the error of all, with its number.
///
/// Without a launcher there is one rank. Under `mpirun -n 4` the same program has four:
///
/// ```
/// use precast::prelude::*;
/// use precast_train::{data, DataParallel};
/// use precast_mpi::{Ranks, Wire};
///
/// let ranks = Ranks::of_launcher().map_err(Error::ranks)?;
/// let rng = &mut Rng::seed(1);
/// let mut net = Child::new(sequential![Flatten::default(), Dense::new(64, 10, rng)]);
/// let policy = Policy::new(Level::O2, DType::F16)?;
/// policy.apply(&mut net)?;
/// let (mut optimizer, mut scale) = (Adam::new(net.params(), 1e-3), policy.loss_scale()?);
/// let mut parallel = DataParallel::new(&ranks, 4, Wire::Float32)?;
/// parallel.begin(&mut net, &mut [&mut optimizer], &mut scale)?; // all ranks continue from rank 0
/// net.set_train(true);
/// for batch in data::digits()?.shuffled_batches(64, 1, 0)?.take(3) {
///     let loss = |net: &Child<_>, shard: &data::Batch| net.call(&shard.x)?.cross_entropy(&shard.y);
///     let outcome = parallel.step(&net, &mut optimizer, &mut scale, &batch, loss)?; // the same on all ranks
///     assert_eq!(outcome, Outcome::Stepped);
/// }
/// # Ok::<(), precast::Error>(())
/// ```
#[doc(alias = "DistributedDataParallel")]
#[doc(alias = "DDP")]
#[derive(Debug)]
pub struct DataParallel<'r> {
    ranks: &'r Ranks,
    exchange: Exchange<'r>,
    shards: Shards,
    /// Steps so far.
    steps: u64,
    state: State,
    /// Memory for the numbers of each node of this rank.
    terms: Vec<Vec<f32>>,
    /// Memory for the sum over ranks.
    total: Vec<f32>,
    /// `true` when the kind of the loss was checked.
    checked: bool,
}

/// Runs the last backward pass of a shard, whose gradients the caller adds to those of earlier parts of the shard.
pub(super) type LastPass<'a> = dyn FnMut(ScaledLoss, Option<&ScaledGrads>) -> Result<ScaledGrads> + 'a;

impl<'r> DataParallel<'r> {
    /// Divides steps of so many shards among ranks.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](precast::ErrorKind::Value) for 0 shards, or fewer than ranks.
    pub fn new(ranks: &'r Ranks, shards: usize, wire: Wire) -> Result<Self> {
        if shards < ranks.size() {
            return Err(Error::value(format!(
                "{shards} shards for {} ranks; a step is divided among as many ranks as it has shards at most",
                ranks.size()
            )));
        }
        let exchange = ranks.exchange(shards, wire).map_err(Error::value)?;
        let shards = Shards::new(shards, ranks.size()).map_err(Error::value)?;
        Ok(DataParallel {
            ranks,
            exchange,
            shards,
            steps: 0,
            state: State::Whole,
            terms: Vec::new(),
            total: Vec::new(),
            checked: false,
        })
    }

    /// Gives all ranks the network, the optimizers and the loss scale of rank 0. Call it once, before the first step, or
    /// when rank 0 has restored a checkpoint.
    ///
    /// # Errors
    /// [`ErrorKind::Ranks`](precast::ErrorKind::Ranks) when ranks have different networks or optimizers, or do not answer;
    /// [`ErrorKind::DType`](precast::ErrorKind::DType) for parameters in f64, which the sum over ranks would round.
    pub fn begin<C: ?Sized + AsCell>(
        &mut self,
        net: &mut Child<C>,
        optimizers: &mut [&mut dyn Optimizer],
        scale: &mut LossScale,
    ) -> Result<()> {
        if let Some((path, _)) =
            net.params().iter().find(|(_, param)| self.ranks.size() > 1 && param.dtype() == DType::F64)
        {
            return Err(Error::dtype(format!("`{path}` is float64; gradients are summed over ranks in float32")));
        }
        let refs: Vec<&dyn Optimizer> = optimizers.iter().map(|optimizer| &**optimizer).collect();
        let own = Checkpoint::of(net, &refs, scale).counting("steps", self.steps).to_bytes();
        let own = self.ranks.agree(own).map_err(Error::ranks)?;
        let first = self.ranks.broadcast(own).map_err(Error::ranks)?;
        let restored = Checkpoint::from_bytes(&first).and_then(|checkpoint| {
            checkpoint.restore(net, optimizers, scale)?;
            self.steps = checkpoint.count("steps").unwrap_or_default();
            Ok(())
        });
        self.state.is_anew();
        self.ranks.agree(restored).map_err(Error::ranks)
    }

    /// Returns the number of shards of a step.
    pub fn shards(&self) -> usize {
        self.shards.shards()
    }

    /// Sets the number of steps that were taken before, for a run that continues.
    pub fn set_steps(&mut self, steps: u64) {
        self.steps = steps;
    }

    /// Takes a step on a batch that all ranks have. `loss` computes the mean loss of a shard; a shard weighs as much as its
    /// targets that are not [ignored](crate::data::IGNORED).
    ///
    /// # Errors
    /// [`ErrorKind::Ranks`](precast::ErrorKind::Ranks) with the rank and its words, on all ranks, when `loss` or the
    /// backward pass fails on one, and when ranks do not answer; [`ErrorKind::Value`](precast::ErrorKind::Value) in the first
    /// step for a loss that is a sum, has weights of classes or ignores another class, as shards would weigh otherwise; and
    /// those of [`LossScale::step`].
    pub fn step<C: ?Sized + AsCell>(
        &mut self,
        net: &Child<C>,
        optimizer: &mut dyn Optimizer,
        scale: &mut LossScale,
        batch: &Batch,
        mut loss: impl FnMut(&Child<C>, &Batch) -> Result<Tensor>,
    ) -> Result<Outcome> {
        let weight = |shard: &Batch| Loss::cross_entropy().weight_of(&shard.y);
        let is_checked = self.checked || filled(batch.x.shape()[0], self.shards()) == 1;
        let outcome = self.step_weighted(net, optimizer, scale, batch, weight, |net, shard| match is_checked {
            true => loss(net, shard),
            false => mean_over_targets(|| loss(net, shard)),
        })?;
        self.checked |= !is_checked;
        Ok(outcome)
    }

    /// Takes a step as [`step`](DataParallel::step) does, with the weight of each shard: the divisor of its mean loss. A
    /// [`Loss`] knows it, also with ignored classes or weights of classes.
    ///
    /// ```
    /// # use precast::prelude::*;
    /// # use precast_train::{data, DataParallel, Loss};
    /// # use precast_mpi::{Ranks, Wire};
    /// # let ranks = Ranks::of_launcher().map_err(Error::ranks)?;
    /// # let mut net = Child::new(sequential![Flatten::default(), Dense::new(64, 10, &mut Rng::seed(1))]);
    /// # let (mut optimizer, mut scale) = (Adam::new(net.params(), 1e-3), LossScale::none());
    /// # let mut parallel = DataParallel::new(&ranks, 4, Wire::Float32)?;
    /// # parallel.begin(&mut net, &mut [&mut optimizer], &mut scale)?;
    /// # let batch = data::digits()?.batches(64)?.next().unwrap();
    /// let loss = Loss::CrossEntropy { label_smoothing: 0.1, ignore_index: Some(0), weight: None };
    /// let weight = |shard: &data::Batch| loss.weight_of(&shard.y);
    /// let mean = |net: &Child<_>, shard: &data::Batch| loss.of(&net.call(&shard.x)?, &shard.y);
    /// let outcome = parallel.step_weighted(&net, &mut optimizer, &mut scale, &batch, weight, mean)?;
    /// # assert_eq!(outcome, Outcome::Stepped);
    /// # Ok::<(), precast::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`step`](DataParallel::step), but for the kind of the loss.
    pub fn step_weighted<C: ?Sized + AsCell>(
        &mut self,
        net: &Child<C>,
        optimizer: &mut dyn Optimizer,
        scale: &mut LossScale,
        batch: &Batch,
        weight: impl Fn(&Batch) -> f64,
        mut loss: impl FnMut(&Child<C>, &Batch) -> Result<Tensor>,
    ) -> Result<Outcome> {
        let shards = batch.shards(self.shards.shards())?;
        let weights: Vec<f64> = shards.iter().map(weight).collect();
        let all: f64 = weights.iter().sum();
        let scaled = scale.clone();
        let gradients = |shard: usize, last_pass: &mut LastPass<'_>| {
            let share = weights[shard] / all;
            if share.is_nan() || share == 0.0 {
                return Ok(None);
            }
            let mut loss = loss(net, &shards[shard])?;
            loss.check_scalar("a step starts from a floating scalar; the loss of a shard")?;
            if share != 1.0 {
                loss = loss.mul(&Tensor::scalar(share, loss.dtype()))?;
            }
            let value = loss.item()?;
            Ok(Some(OfShard { grads: last_pass(scaled.scale(loss)?, None)?, share, loss: value }))
        };
        self.take(net, (optimizer, None), scale, gradients).map(|(_, outcome)| outcome)
    }

    /// Takes a step with the gradients of all shards, of which each rank computes its own. Also returns the loss.
    pub(super) fn take<C: ?Sized + AsCell>(
        &mut self,
        net: &Child<C>,
        (optimizer, clip): (&mut dyn Optimizer, Option<f64>),
        scale: &mut LossScale,
        gradients: impl FnMut(usize, &mut LastPass<'_>) -> Result<Option<OfShard>>,
    ) -> Result<(f64, Outcome)> {
        self.ranks.set_step(self.steps);
        let buffers = Buffers::of(net);
        let delayed = net.collect_amaxima();
        let sum = match self.ranks.size() {
            1 => self.alone(&buffers, gradients),
            _ => self.over_ranks(optimizer.params(), &buffers, gradients, scale.value()),
        };
        self.steps += 1;
        let sum = sum?;
        if delayed {
            let own: Vec<u8> = net.amaxima().iter().flat_map(|word| word.to_le_bytes()).collect();
            let all = match self.ranks.size() {
                1 => vec![own],
                _ => self.ranks.gather(&own).map_err(Error::ranks)?,
            };
            let words = |bytes: &Vec<u8>| bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
            net.update_scales(&all.iter().map(words).collect::<Vec<_>>())?;
        }
        let Some(grads) = sum.grads else {
            return Ok((f64::NAN, Outcome::Skipped { cause: Cause::NoTarget }));
        };
        let outcome = match self.state {
            State::Whole => scale.step_grads(optimizer, grads, clip, |optimizer, grads| optimizer.update(grads))?,
            _ => scale.step_grads(optimizer, grads, clip, |optimizer, grads| self.update_own(optimizer, grads))?,
        };
        if outcome == Outcome::Stepped {
            buffers.set(&sum.moves)?;
        }
        Ok((sum.losses.iter().sum(), outcome))
    }

    /// Computes the sum of all shards in one process.
    fn alone(
        &self,
        buffers: &Buffers,
        mut gradients: impl FnMut(usize, &mut LastPass<'_>) -> Result<Option<OfShard>>,
    ) -> Result<Sum> {
        let mut tree = Tree::default();
        for shard in self.shards.run(0) {
            let of_shard = || gradients(shard, &mut |loss, _| loss.into_grads());
            let sum = Sum::of(drawing_in_shard(self.steps, shard, of_shard)?, buffers);
            tree.push(Node::shard(shard), sum, Sum::add)?;
        }
        Ok(tree.fold(Sum::add)?.unwrap_or_default())
    }

    /// Computes the sum of all shards over ranks, in the order of the tree. The numbers of a rank leave while the backward
    /// pass of its last shard runs; votes on everything else follow.
    fn over_ranks(
        &mut self,
        params: &Params,
        buffers: &Buffers,
        mut gradients: impl FnMut(usize, &mut LastPass<'_>) -> Result<Option<OfShard>>,
        scale: f32,
    ) -> Result<Sum> {
        let mut order: Vec<&Param> = params.iter().map(|(_, param)| param).collect();
        order.reverse();
        let mut outgoing =
            Outgoing::new(&mut self.exchange, (&mut self.terms, &mut self.total), (params, &order), buffers);
        let run = self.shards.run(self.ranks.rank());
        let mut compute = || -> Result<Own> {
            let mut own = Own { before: Tree::default(), last: None };
            for shard in run.clone() {
                let is_last = shard + 1 == run.end;
                let grads = drawing_in_shard(self.steps, shard, || match is_last {
                    true => gradients(shard, &mut |loss, earlier| outgoing.backward(loss, earlier, &own.before)),
                    false => gradients(shard, &mut |loss, _| loss.into_grads()),
                })?;
                match is_last {
                    true => own.last = Some(Sum::of(grads, buffers)),
                    false => own.before.push(Node::shard(shard), Sum::of(grads, buffers), Sum::add)?,
                }
            }
            Ok(own)
        };
        let own = compute();
        let totals = outgoing.finish(&own)?;

        let mut ballot = Ballot::new(&own, &order, buffers.len(), self.shards.shards().div_ceil(self.ranks.size()));
        ballot.words[SCALE] = u64::from(scale.to_bits());
        let votes = self.ranks.vote(&ballot.words).map_err(Error::ranks)?;
        if votes.any(FAILED) != 0 {
            let agreed = self.ranks.agree(own.map(drop)).map_err(Error::ranks);
            return Err(agreed.err().unwrap_or_else(|| Error::ranks("a rank failed, and has no error")));
        }
        self.check_vectors(&votes)?;
        check_scales(&votes)?;
        let refused = match votes.any(REFUSED) {
            0 => None,
            _ => {
                let own = own?.sums().find_map(|sum| sum.grads.as_ref()?.refused().map(str::to_string));
                let all = self.ranks.gather(own.unwrap_or_default().as_bytes()).map_err(Error::ranks)?;
                all.into_iter().find(|path| !path.is_empty()).map(|path| String::from_utf8_lossy(&path).into_owned())
            }
        };
        let bit = |from: usize, i: usize| votes.any(from + i / 64) >> (i % 64) & 1 == 1;
        let present = order.iter().enumerate().filter(|(i, _)| bit(ballot.present, *i));
        let sums = present.map(|(i, param)| (*param, totals.of_param(i, &param.shape()), bit(ballot.through_f16, i)));
        let moves = (0..buffers.len()).map(|i| bit(ballot.moved, i).then(|| totals.of_buffer(i))).collect();
        let losses = (0..self.ranks.size())
            .flat_map(|rank| {
                let (words, run) = (votes.of(rank), self.shards.run(rank));
                (0..run.len()).map(move |i| f64::from_bits(words[LOSSES + i]))
            })
            .collect();
        let scaling = Scaling { scale, by_scaler: votes.any(BY_SCALER) != 0, finite_loss: votes.any(NOT_FINITE) == 0 };
        let mut sums = sums.peekable();
        let grads = sums.peek().is_some().then(|| ScaledGrads::of_ranks(sums, scaling, refused));
        self.total = totals.total;
        Ok(Sum { grads, moves, losses })
    }

    /// Returns the first result of the last step that was not finite, as one process that runs all shards finds it: that of
    /// the first shard, since later phases are the same on all ranks.
    pub(super) fn first_origin(&self, monitor: &mut Monitor) -> Result<Option<Origin>> {
        let own = monitor.fault().map(|fault| fault.origin());
        if self.ranks.size() == 1 {
            return Ok(own);
        }
        let votes = self.ranks.vote(&[own.is_some().into(), (!monitor.was_sound()).into()]).map_err(Error::ranks)?;
        if votes.any(1) != 0 {
            monitor.doubt();
        }
        if votes.any(0) == 0 {
            return Ok(None);
        }
        let written = own.as_ref().map(serde_json::to_vec).transpose();
        let written = written.map_err(|error| Error::ranks(format!("the first number that was not finite: {error}")));
        let all = self.ranks.gather(&self.ranks.agree(written).map_err(Error::ranks)?.unwrap_or_default());
        let read = |bytes: &Vec<u8>| serde_json::from_slice::<Origin>(bytes).ok();
        let all: Vec<Option<Origin>> = all.map_err(Error::ranks)?.iter().map(read).collect();
        let of_shards = |origin: &Origin| matches!(origin.edge.phase, Phase::Forward | Phase::Backward);
        let first = all.iter().position(|origin| origin.as_ref().is_some_and(of_shards));
        let Some(rank) = first.or_else(|| all.iter().position(Option::is_some)) else { return Ok(None) };
        let Some(mut origin) = all.into_iter().nth(rank).flatten() else { return Ok(None) };
        let calls = self.ranks.vote(&[monitor.calls_at(&origin.edge) as u64]).map_err(Error::ranks)?;
        if of_shards(&origin) {
            origin.edge.call += calls.word(0).take(rank).sum::<u64>() as usize;
        }
        Ok(Some(origin))
    }

    /// Returns the ranks.
    pub(super) fn ranks(&self) -> &Ranks {
        self.ranks
    }

    /// Refuses ranks with different vectors, or of which only some use AMX: sums may have other bits.
    fn check_vectors(&self, votes: &Votes) -> Result<()> {
        if let Some(rank) = votes.differing(VECTORS) {
            return Err(Error::ranks(format!(
                "rank {rank} computes with vectors of {} numbers, and rank 0 with {}; results would have other bits. Set \
                 the environment variable PRECAST_VECTORS to the smaller number for all",
                votes.of(rank)[VECTORS],
                votes.of(0)[VECTORS]
            )));
        }
        if let Some(rank) = votes.differing(AMX) {
            let (with, without) = if votes.of(rank)[AMX] == 1 { (rank, 0) } else { (0, rank) };
            return Err(Error::ranks(format!(
                "rank {with} multiplies bf16 by AMX, and rank {without} does not; results would have other bits. Set the \
                 environment variable PRECAST_AMX to 0 for all"
            )));
        }
        Ok(())
    }
}

/// Refuses ranks with different scales, whose gradients cannot be added.
fn check_scales(votes: &Votes) -> Result<()> {
    let of = |rank: usize| f32::from_bits(votes.of(rank)[SCALE] as u32);
    match votes.differing(SCALE) {
        None => Ok(()),
        Some(rank) => Err(Error::ranks(format!(
            "rank {rank} has the loss scale {}, and rank 0 {}; expected one for all, which `begin` gives them",
            of(rank),
            of(0)
        ))),
    }
}

// Words of a vote on a step.

const FAILED: usize = 0;
const NOT_FINITE: usize = 1;
const REFUSED: usize = 2;
const SCALE: usize = 3;
const BY_SCALER: usize = 4;
const VECTORS: usize = 5;
const AMX: usize = 6;
/// The losses of the shards of a rank.
const LOSSES: usize = 7;

/// A rank's vote on a step: everything but numbers of gradients.
struct Ballot {
    words: Vec<u64>,
    /// The first words of sets of bits, one for each parameter or buffer.
    present: usize,
    through_f16: usize,
    moved: usize,
}

impl Ballot {
    fn new(own: &Result<Own>, params: &[&Param], buffers: usize, most: usize) -> Self {
        let (sets, of_buffers) = (params.len().div_ceil(64), buffers.div_ceil(64));
        let present = LOSSES + most;
        let (through_f16, moved) = (present + sets, present + 2 * sets);
        let mut words = vec![0; moved + of_buffers];
        words[VECTORS] = vector_lanes() as u64;
        words[AMX] = uses_amx().into();
        let mut ballot = |word: usize, i: usize| words[word + i / 64] |= 1 << (i % 64);
        let Ok(own) = own else {
            ballot(FAILED, 0);
            return Ballot { words, present, through_f16, moved };
        };
        for sum in own.sums() {
            for (i, param) in params.iter().enumerate() {
                if let Some((_, is_through_f16)) = sum.grads.as_ref().and_then(|grads| grads.stored(param)) {
                    ballot(present, i);
                    if is_through_f16 {
                        ballot(through_f16, i);
                    }
                }
            }
            for (i, _) in sum.moves.iter().enumerate().filter(|(_, moves)| moves.is_some()) {
                ballot(moved, i);
            }
        }
        let losses = own.sums().flat_map(|sum| &sum.losses);
        losses.enumerate().for_each(|(i, loss)| words[LOSSES + i] = loss.to_bits());
        for grads in own.sums().filter_map(|sum| sum.grads.as_ref()) {
            let scaling = grads.scaling();
            words[BY_SCALER] |= u64::from(scaling.by_scaler);
            words[NOT_FINITE] |= u64::from(!scaling.finite_loss);
            words[REFUSED] |= u64::from(grads.refused().is_some());
        }
        Ballot { words, present, through_f16, moved }
    }
}
