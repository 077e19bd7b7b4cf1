//! Reductions of losses.

use serde::{Deserialize, Serialize};

/// Reduction of elementwise losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reduction {
    /// The mean, a scalar.
    #[default]
    Mean,
    /// The sum, a scalar.
    Sum,
    /// No reduction.
    None,
}

impl Reduction {
    /// Returns the divisor of the sum of `n` losses.
    pub(in crate::ops) fn divisor(self, n: usize) -> f64 {
        if self == Reduction::Mean { n as f64 } else { 1.0 }
    }
}
