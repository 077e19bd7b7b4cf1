//! Random inputs.

use std::ops::{Range, RangeInclusive};

use precast::Tensor;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Seeded random inputs.
pub struct Draw(ChaCha8Rng);

impl Draw {
    pub fn new(seed: u64) -> Self {
        Draw(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Draws an integer.
    pub fn size(&mut self, range: RangeInclusive<usize>) -> usize {
        self.0.random_range(range)
    }

    /// Draws an f64 tensor of numbers in the range.
    pub fn tensor(&mut self, shape: &[usize], range: Range<f64>) -> Tensor {
        let data: Vec<f64> = (0..shape.iter().product()).map(|_| self.0.random_range(range.clone())).collect();
        Tensor::from_vec(data, shape).expect("as many numbers as the shape has")
    }
}
