//! The handwritten digits of `crates/train/data`.

use std::io::Read;

use candle_core::{DType, Device, Result, Tensor};

use crate::random::Random;

/// Pixels of shape (examples, 64), from 0 to 1, and classes of shape (examples).
pub struct Digits {
    pub x: Tensor,
    pub y: Tensor,
}

/// Returns the digits for training and those for tests: the first 1500 and the last 297.
pub fn digits() -> Result<(Digits, Digits)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/train/data/digits.csv.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path)?).read_to_string(&mut text)?;
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let numbers = line.split(',').map(|field| field.trim().parse::<f32>().map_err(candle_core::Error::wrap));
        let numbers = numbers.collect::<Result<Vec<f32>>>()?;
        x.extend(numbers[..64].iter().map(|pixel| pixel / 16.0));
        y.push(numbers[64] as u32);
    }
    let (rows, device) = (y.len(), &Device::Cpu);
    let (x, y) = (Tensor::from_vec(x, (rows, 64), device)?, Tensor::from_vec(y, rows, device)?);
    let part =
        |from, rows| -> Result<Digits> { Ok(Digits { x: x.narrow(0, from, rows)?, y: y.narrow(0, from, rows)? }) };
    Ok((part(0, 1500)?, part(1500, rows - 1500)?))
}

impl Digits {
    /// Returns batches of 50 in an order that depends on the seed.
    pub fn batches(&self, seed: u64) -> Result<Vec<(Tensor, Tensor)>> {
        let mut order: Vec<u32> = (0..self.y.dim(0)? as u32).collect();
        let mut random = Random(seed);
        (1..order.len()).rev().for_each(|i| order.swap(i, (random.next() * (i + 1) as f64) as usize));
        let batch = |rows: &[u32]| -> Result<_> {
            let rows = Tensor::new(rows, &Device::Cpu)?;
            Ok((self.x.index_select(&rows, 0)?, self.y.index_select(&rows, 0)?))
        };
        order.chunks(50).map(batch).collect()
    }

    /// Returns the share of examples whose largest of 10 numbers is at their class, in percent.
    pub fn accuracy(&self, logits: &Tensor) -> Result<f64> {
        let right = logits.argmax(1)?.eq(&self.y)?.to_dtype(DType::F32)?.mean_all()?;
        Ok(100.0 * f64::from(right.to_scalar::<f32>()?))
    }
}
