//! Dropout.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use precast_tensor::{context, recording};
use serde::{Deserialize, Serialize};

use super::{init::Rng, spec::written_as_spec};
use crate::{
    Tensor,
    cell::{Cell, Forward, ran_in_evaluation},
    error::Result,
    options::{Options, options},
};

/// Options of a [`Dropout`].
#[options(of_cell)]
#[derive(Clone, Debug, PartialEq)]
pub struct DropoutSpec {
    /// The probability of zeroing an element.
    #[option(at_least = 0, at_most = 1)]
    pub p: f64,
}

impl DropoutSpec {
    /// Builds the cell. Its seed is drawn from the generator.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when `p` is not within 0 to 1.
    pub fn build(self, rng: &mut Rng) -> Result<Dropout> {
        self.check()?;
        Ok(self.make(rng))
    }

    fn make(self, rng: &mut Rng) -> Dropout {
        Dropout { seed: rng.bits(), calls: Arc::default(), training: false, spec: self }
    }
}

/// Dropout (Srivastava et al. 2014, inverted): zeroes each element with probability `p` in training and divides the
/// others by `1 - p`; returns its input unchanged in evaluation.
///
/// The n-th call in training drops the same elements for the same seed. In a step over
/// [shards](super::drawing_in_shard), calls are counted from the number of the step and of the shard. In files: `{kind: Dropout, p: 0.5}`.
#[derive(Cell, Clone, Debug, Serialize, Deserialize)]
#[cell(saved)]
#[serde(try_from = "DropoutSpec", into = "DropoutSpec")]
pub struct Dropout {
    seed: u64,
    /// Number of calls in training so far, shared by clones, since they represent one layer.
    calls: Arc<AtomicU64>,
    training: bool,
    spec: DropoutSpec,
}

impl Dropout {
    /// Creates a dropout with probability `p`; the seed is drawn from the generator. A `p` that is not within 0 to 1 is
    /// reported by the first call.
    pub fn new(p: f64, rng: &mut Rng) -> Self {
        DropoutSpec::new(p).make(rng)
    }

    /// Returns the probability of zeroing an element.
    pub(super) fn p(&self) -> f64 {
        self.spec.p
    }
}

written_as_spec!(Dropout, DropoutSpec);

impl Forward for Dropout {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.spec.check()?;
        if !self.training {
            if self.spec.p > 0.0 {
                ran_in_evaluation();
            }
            return Ok(x.clone());
        }
        if self.spec.p == 0.0 {
            return Ok(x.clone());
        }
        let layer = Arc::as_ptr(&self.calls) as usize;
        let call = context::draw_in_shard(layer).unwrap_or_else(|| {
            let calls = self.calls.clone();
            recording::on_end(move || _ = calls.fetch_sub(1, Ordering::Relaxed));
            self.calls.fetch_add(1, Ordering::Relaxed)
        });
        let y = x.dropout(self.spec.p, self.seed.wrapping_add(call))?;
        recording::drawn(layer);
        Ok(y)
    }

    fn counters(&self) -> Vec<u64> {
        vec![self.seed, self.calls.load(Ordering::Relaxed)]
    }

    fn set_counters(&mut self, counters: &[u64]) -> Result<()> {
        if let &[seed, calls] = counters {
            self.seed = seed;
            self.calls.store(calls, Ordering::Relaxed);
        }
        Ok(())
    }

    fn on_train(&mut self, training: bool) {
        self.training = training;
    }
}
