//! Random numbers and initial values from a seed.

use candle_core::{Result, Tensor};
use candle_nn::VarMap;

/// Numbers from 0 to 1, without 1: the generator of Knuth's MMIX.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Sets all matrices from a seed and all biases to 0: candle's own random numbers have none on CPUs.
pub fn seeded(vars: &VarMap, seed: u64) -> Result<()> {
    let vars = vars.data().lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut names: Vec<&String> = vars.keys().collect();
    names.sort();
    let mut random = Random(seed);
    for name in names {
        let var = &vars[name];
        if let [rows, inside @ ..] = var.dims()
            && !inside.is_empty()
        {
            let columns: usize = inside.iter().product();
            let bound = (3.0 / columns as f64).sqrt();
            let numbers = (0..rows * columns).map(|_| (bound * (2.0 * random.next() - 1.0)) as f32);
            var.set(&Tensor::from_iter(numbers, var.device())?.reshape(var.shape())?)?;
        } else if name.ends_with("bias") {
            var.set(&var.zeros_like()?)?;
        }
    }
    Ok(())
}
