//! Targets of examples.

use precast::{CrossEntropy, error::Result};

use super::elements::{all_finite, elements_in_memory, rows};

/// Class of an example or a position that counts neither for the loss nor for the accuracy, as in torch.
pub const IGNORED: i64 = CrossEntropy::IGNORED;

/// Targets of the examples.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Targets {
    /// Classes: classification.
    Classes {
        /// Shape of the target of one example; empty for a single class, `[length]` for one at each position of a
        /// sequence.
        shape: Vec<usize>,
        /// The classes, concatenated: from 0, [`IGNORED`], or the one that the loss ignores.
        values: Vec<i64>,
    },
    /// Numbers: regression.
    Numbers {
        /// Shape of the target of one example; empty for a single number.
        shape: Vec<usize>,
        /// The targets, concatenated.
        values: Vec<f32>,
    },
    /// No targets, as for predictions.
    None,
}

impl Targets {
    /// Checks that numbers are finite, in the targets of `n` examples.
    pub(super) fn check(&self, n: usize) -> Result<()> {
        match self {
            Targets::Numbers { values, .. } => all_finite("target", values, n),
            Targets::Classes { .. } | Targets::None => Ok(()),
        }
    }

    /// Returns the targets of some examples.
    pub(super) fn take(&self, order: &[usize]) -> Targets {
        match self {
            Targets::Classes { shape, values } => {
                Targets::Classes { shape: shape.clone(), values: rows(values, elements_in_memory(shape), order) }
            }
            Targets::Numbers { shape, values } => {
                Targets::Numbers { shape: shape.clone(), values: rows(values, elements_in_memory(shape), order) }
            }
            Targets::None => Targets::None,
        }
    }
}
