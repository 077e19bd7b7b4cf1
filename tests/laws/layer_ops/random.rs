//! Random tensors.

use std::cell::RefCell;

use precast::Tensor;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Random sizes and f64 tensors from a seed.
pub struct Random(RefCell<ChaCha8Rng>);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(RefCell::new(ChaCha8Rng::seed_from_u64(seed)))
    }

    /// Draws a number from `low` to `high`, inclusive.
    pub fn size(&self, low: usize, high: usize) -> usize {
        self.0.borrow_mut().random_range(low..=high)
    }

    pub fn sizes(&self, count: usize, low: usize, high: usize) -> Vec<usize> {
        (0..count).map(|_| self.size(low, high)).collect()
    }

    pub fn flag(&self) -> bool {
        self.0.borrow_mut().random()
    }

    /// Draws numbers between -1 and 1.
    pub fn tensor(&self, shape: &[usize]) -> Tensor {
        self.between(-1.0, 1.0, shape)
    }

    pub fn between(&self, low: f64, high: f64, shape: &[usize]) -> Tensor {
        let data = (0..shape.iter().product()).map(|_| self.0.borrow_mut().random_range(low..high)).collect();
        Tensor::from_vec::<f64>(data, shape).unwrap()
    }

    pub fn indices(&self, below: usize, shape: &[usize]) -> Tensor {
        let data = (0..shape.iter().product()).map(|_| self.0.borrow_mut().random_range(0..below as i64)).collect();
        Tensor::from_vec::<i64>(data, shape).unwrap()
    }
}

/// Runs a check for each of many seeds.
pub fn many(f: impl Fn(&Random)) {
    (0..24).for_each(|seed| f(&Random::new(seed)));
}

/// Returns exact values, with NaN equal to itself.
pub fn bits(x: &Tensor) -> Vec<u64> {
    x.to_f64().into_iter().map(f64::to_bits).collect()
}
