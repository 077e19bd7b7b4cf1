//! Targets of examples.

use super::elements::{all_finite, elements_in_memory, rows};
use crate::error::{Error, Result};

/// Class of a position that counts neither for the loss nor for the accuracy, as in torch.
pub const IGNORED: i64 = -100;

/// Targets of the examples.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Targets {
    /// Classes: classification.
    Classes {
        /// Shape of the target of one example; empty for a single class, `[length]` for one at each position of a
        /// sequence.
        shape: Vec<usize>,
        /// The classes, concatenated: from 0, or [`IGNORED`].
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
    /// Checks the targets of `n` examples: numbers are finite, and classes count from 0.
    pub(super) fn check(&self, n: usize) -> Result<()> {
        match self {
            Targets::Classes { shape, values } => {
                let wrong = |label: i64| label < 0 && (label != IGNORED || shape.is_empty());
                let Some((i, label)) = values.iter().enumerate().find(|(_, label)| wrong(**label)) else {
                    return Ok(());
                };
                Err(Error::data(format!("label {i} is {label}; classes count from 0, also one for `ignore_index`")))
            }
            Targets::Numbers { values, .. } => all_finite("target", values, n),
            Targets::None => Ok(()),
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
