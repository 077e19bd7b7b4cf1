//! Shards of a step: parts whose gradients are computed alone, and added in the order of a binary tree over their numbers.

use std::{collections::HashSet, ops::Range};

use precast::{
    Child, Param, Tensor,
    cell::AsCell,
    error::{Error, Result},
    scale::ScaledGrads,
};

use super::augment::Mixed;
use crate::data::Batch;

impl Batch {
    /// Cuts a batch into shards of neighbouring examples. Their lengths differ by one at most, and each has two examples at
    /// least, which a batch norm needs, except that of a single example; the last shards of a small batch are empty.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](precast::ErrorKind::Value) for 0 shards.
    ///
    /// ```
    /// use precast_train::data;
    /// let batch = data::digits()?.batches(13)?.next().unwrap();
    /// let lengths = |n: usize| -> precast::Result<Vec<usize>> {
    ///     Ok(batch.shards(n)?.iter().map(|shard| shard.y.len()).collect())
    /// };
    /// assert_eq!(lengths(4)?, [3, 3, 3, 4]);
    /// assert_eq!(lengths(8)?, [2, 2, 2, 2, 2, 3, 0, 0]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn shards(&self, shards: usize) -> Result<Vec<Batch>> {
        if shards == 0 {
            return Err(Error::value("a batch in 0 shards; allowed: at least 1"));
        }
        (0..shards).map(|shard| self.rows(rows_of(self.x.shape()[0], shards, shard))).collect()
    }

    /// Returns some neighbouring examples.
    fn rows(&self, rows: Range<usize>) -> Result<Batch> {
        let of = |x: &Tensor| x.slice(0, rows.clone());
        Ok(Batch { x: of(&self.x)?, further: self.further.iter().map(of).collect::<Result<_>>()?, y: of(&self.y)? })
    }
}

/// Returns the number of shards with examples, of which each has two at least unless there is one alone.
pub fn filled(examples: usize, shards: usize) -> usize {
    (examples / 2).clamp(1, shards)
}

/// Returns the examples of a shard, of so many.
fn rows_of(examples: usize, shards: usize, shard: usize) -> Range<usize> {
    let filled = filled(examples, shards);
    let start = |shard: usize| shard.min(filled) * examples / filled;
    start(shard)..start(shard + 1)
}

/// Cuts each part of a step, and returns the pieces of each shard. A shard without examples has none.
pub(super) fn cut(parts: Vec<Mixed>, shards: usize) -> Result<Vec<Vec<Mixed>>> {
    if shards == 1 {
        return Ok(vec![parts]);
    }
    let of_shard = |shard: usize| {
        let mut pieces = Vec::new();
        for Mixed { batch, others } in &parts {
            let rows = rows_of(batch.x.shape()[0], shards, shard);
            if !rows.is_empty() {
                let of_rows = |(y, share): &(Tensor, f64)| y.slice(0, rows.clone()).map(|y| (y, *share));
                let others = others.as_ref().map(of_rows).transpose()?;
                pieces.push(Mixed { batch: batch.rows(rows)?, others });
            }
        }
        Ok(pieces)
    };
    (0..shards).map(of_shard).collect()
}

/// The buffers of a network, such as the running statistics of a batch norm, with their values before a step.
pub(super) struct Buffers(Vec<(Param, Tensor)>);

impl Buffers {
    pub fn of<C: ?Sized + AsCell>(net: &Child<C>) -> Self {
        let mut seen = HashSet::new();
        let all = net.named_params().into_iter().map(|(_, param)| param);
        let buffers = all.filter(|param| param.is_buffer() && seen.insert(param.id()));
        let before = buffers.map(|buffer| (buffer.full(), buffer)).filter(|(before, _)| before.dtype().is_float());
        Buffers(before.map(|(before, buffer)| (buffer, before)).collect())
    }

    /// Returns by how much each has moved, times a weight; `None` for one that has not.
    pub fn moves(&self, weight: f64) -> Vec<Option<Vec<f32>>> {
        let of = |(buffer, before): &(Param, Tensor)| {
            let (now, before) = (buffer.full().to_f64(), before.to_f64());
            let moves = now.iter().zip(&before).map(|(now, before)| (weight * (now - before)) as f32).collect();
            (now != before).then_some(moves)
        };
        self.0.iter().map(of).collect()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of elements of each.
    pub fn lengths(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(|(_, before)| before.len())
    }

    /// Moves the buffers from their values before the step.
    pub fn set(&self, moves: &[Option<Vec<f32>>]) -> Result<()> {
        for ((buffer, before), moves) in self.0.iter().zip(moves) {
            let Some(moves) = moves else { continue };
            let after: Vec<f64> = before.to_f64().iter().zip(moves).map(|(x, by)| x + f64::from(*by)).collect();
            buffer.set(&Tensor::from_f64(&after, before.shape(), before.dtype())?)?;
        }
        Ok(())
    }
}

/// Gradients of one shard.
pub(super) struct OfShard {
    pub grads: ScaledGrads,
    /// The share of its targets in all that count.
    pub share: f64,
    /// Its part of the loss of the step.
    pub loss: f64,
}

/// The sum of some neighbouring shards.
#[derive(Debug, Default)]
pub(super) struct Sum {
    /// `None` if no target of them counts.
    pub grads: Option<ScaledGrads>,
    /// The moves of each buffer.
    pub moves: Vec<Option<Vec<f32>>>,
    /// The loss of each shard.
    pub losses: Vec<f64>,
}

impl Sum {
    /// Returns the sum of one shard, without what its forward pass stored.
    pub fn of(shard: Option<OfShard>, buffers: &Buffers) -> Self {
        match shard {
            None => Sum { losses: vec![-0.0], ..Sum::default() },
            Some(OfShard { mut grads, share, loss }) => {
                let moves = buffers.moves(share);
                grads.take_back();
                Sum { grads: Some(grads), moves, losses: vec![loss] }
            }
        }
    }

    /// Adds the next shards.
    pub fn add(&mut self, next: Sum) -> Result<()> {
        match (&mut self.grads, next.grads) {
            (Some(grads), Some(next)) => grads.accumulate(next)?,
            (grads @ None, next) => *grads = next,
            (_, None) => {}
        }
        self.moves.resize(self.moves.len().max(next.moves.len()), None);
        for (moves, next) in self.moves.iter_mut().zip(next.moves) {
            match (moves, next) {
                (Some(moves), Some(next)) => moves.iter_mut().zip(next).for_each(|(sum, x)| *sum += x),
                (moves @ None, next) => *moves = next,
                (_, None) => {}
            }
        }
        self.losses.extend(next.losses);
        Ok(())
    }
}
