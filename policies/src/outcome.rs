//! The outcome of a training step in a library with tensors of its own.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::printable::{number, printable};

/// The outcome of a training step: the caller updates the parameters, or must leave them as they are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[must_use = "a step may have been skipped"]
#[non_exhaustive]
pub enum Outcome {
    /// Loss and gradients are finite: the parameters are updated.
    Stepped,
    /// Nothing is updated, because the loss or a gradient is not finite.
    Skipped {
        /// The cause.
        cause: Cause,
    },
    /// As [`Skipped`](Outcome::Skipped), for the 20th consecutive time or more, with a scale that cannot fall any
    /// further: training will not recover by itself.
    Stalled {
        /// The cause.
        cause: Cause,
        /// Consecutive skipped steps.
        skipped: u32,
    },
}

/// The cause of a skipped step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Cause {
    /// The loss was not finite before it was scaled. The scale is not the cause and stays the same.
    Loss,
    /// The loss was finite, but a gradient was not, at this scale.
    Overflow {
        /// The loss scale of the step.
        scale: f32,
        /// Path of the first parameter with a non-finite gradient.
        first: String,
    },
}

impl Outcome {
    /// Returns whether the parameters are updated.
    pub fn is_step(&self) -> bool {
        matches!(self, Outcome::Stepped)
    }

    /// Returns the cause; `None` for a step that was taken.
    pub fn cause(&self) -> Option<&Cause> {
        match self {
            Outcome::Stepped => None,
            Outcome::Skipped { cause } | Outcome::Stalled { cause, .. } => Some(cause),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Stepped => f.write_str("the parameters were updated"),
            Outcome::Skipped { cause } => write!(f, "skipped: {cause}"),
            Outcome::Stalled { cause, skipped } => write!(f, "stalled after {skipped} skipped steps: {cause}"),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Loss => f.write_str("the loss itself was not finite"),
            Cause::Overflow { scale, first } => {
                let (scale, first) = (number(*scale), printable(first));
                write!(f, "a gradient was not finite at loss scale {scale}, first seen in `{first}`")
            }
        }
    }
}
