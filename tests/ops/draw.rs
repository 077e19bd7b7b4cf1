//! Random inputs, and the check of an op's gradients on them.

use std::ops::{Range, RangeInclusive};

use precast::{DType, Result, Tensor, check as checks};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// How many epsilons the 16-bit gradients may differ from those in f32, relative to the largest of them: half of one for
/// the gradient's own rounding, the rest for that of what the forward pass kept.
const LOW_BOUND: f64 = 3.0;

/// Seeded random inputs.
pub struct Draw(ChaCha8Rng);

impl Draw {
    pub fn new(seed: u64) -> Self {
        Draw(ChaCha8Rng::seed_from_u64(seed))
    }

    /// A whole number.
    pub fn size(&mut self, range: RangeInclusive<usize>) -> usize {
        self.0.random_range(range)
    }

    /// A shape of such a rank, each axis 1 to 5 long.
    pub fn shape(&mut self, rank: RangeInclusive<usize>) -> Vec<usize> {
        (0..self.size(rank)).map(|_| self.size(1..=5)).collect()
    }

    /// An f64 tensor of numbers in the range.
    pub fn tensor(&mut self, shape: &[usize], range: Range<f64>) -> Tensor {
        self.away(shape, range, &[])
    }

    /// An f64 tensor of numbers in the range and at least 0.05 away from the kinks, where there is no slope to compare.
    pub fn away(&mut self, shape: &[usize], range: Range<f64>, kinks: &[f64]) -> Tensor {
        let mut number = || loop {
            let x = self.0.random_range(range.clone());
            if kinks.iter().all(|kink| (x - kink).abs() > 0.05) {
                return x;
            }
        };
        let data: Vec<f64> = (0..shape.iter().product()).map(|_| number()).collect();
        Tensor::from_vec(data, shape).expect("as many numbers as the shape has")
    }
}

/// Asserts that f's gradients agree with central differences in f64 (to 1e-6), and those in f16 and bf16 with those in
/// f32 (to three epsilons).
#[track_caller]
pub fn check(name: &str, inputs: &[Tensor], f: impl Fn(&[Tensor]) -> Result<Tensor>) {
    check_within(name, LOW_BOUND, inputs, f);
}

/// [`check`] with another bound for the 16-bit dtypes, in epsilons. Say why where you use it.
#[track_caller]
pub fn check_within(name: &str, low_bound: f64, inputs: &[Tensor], f: impl Fn(&[Tensor]) -> Result<Tensor>) {
    let shapes: Vec<&[usize]> = inputs.iter().map(Tensor::shape).collect();
    let found = checks::gradients(inputs, &f).unwrap_or_else(|e| panic!("{name} of {shapes:?}: {e}"));
    assert!(found.relative <= 1e-6, "{name} of {shapes:?} in f64: {found:?}");
    for low in DType::LOW {
        let found = checks::low_gradients(inputs, low, &f).unwrap_or_else(|e| panic!("{name} of {shapes:?}: {e}"));
        assert!(found.relative <= low_bound, "{name} of {shapes:?} in {low}: {found:?}");
    }
}
