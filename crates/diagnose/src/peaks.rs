//! Largest magnitudes of one result.

use precast::{
    DType,
    observe::{EdgeOp, Phase, Subject},
};
use serde::{Deserialize, Serialize};

use super::measure::largest;

/// Largest magnitudes of one result in the last steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Peaks {
    /// Phase in which it is written.
    pub phase: Phase,
    /// Path of the cell; empty for the root, and outside every cell.
    pub cell: String,
    /// Operation that writes it.
    pub op: EdgeOp,
    /// Tensor that it holds.
    pub subject: Subject,
    /// Call of the operation in its cell, from 0.
    pub call: usize,
    /// Dtype of its numbers.
    pub dtype: DType,
    /// Largest magnitude in each step, the last step at the end.
    pub peaks: Vec<f32>,
    /// Share of the numbers that were 0 in the last step that counted them, which is every 16th.
    pub zero: f32,
    /// Share of the numbers that were subnormal in that step, and so had fewer digits.
    pub subnormal: f32,
}

impl Peaks {
    /// Returns the number of times that its largest magnitude can be doubled within its dtype; `None` where all numbers
    /// were 0.
    pub fn headroom(&self) -> Option<f64> {
        let most =
            self.peaks.iter().fold(0f32, |most, peak| if peak.is_nan() { f32::INFINITY } else { most.max(*peak) });
        (most > 0.0).then(|| (largest(self.dtype) / f64::from(most)).log2())
    }
}
