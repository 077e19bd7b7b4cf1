//! The outcome of a training step in a library with tensors of its own.

use std::fmt;

use precast_base::printable::{number, printable};
use serde::{Deserialize, Serialize};

/// The outcome of a training step: the caller updates the parameters, or must leave them as they are. A library with
/// further causes has a type of its own for them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[must_use = "a step may have been skipped"]
#[non_exhaustive]
pub enum Outcome<C = Cause> {
    /// Loss and gradients are finite: the parameters are updated.
    Stepped,
    /// Nothing is updated, because the loss or a gradient is not finite.
    Skipped {
        /// The cause.
        cause: C,
    },
    /// As [`Skipped`](Outcome::Skipped), for the 20th consecutive time or more, with a scale that cannot fall any
    /// further: training will not recover by itself.
    Stalled {
        /// The cause.
        cause: C,
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

impl<C> Outcome<C> {
    /// Returns whether the parameters are updated.
    pub fn is_step(&self) -> bool {
        matches!(self, Outcome::Stepped)
    }

    /// Returns the cause; `None` for a step that was taken.
    pub fn cause(&self) -> Option<&C> {
        match self {
            Outcome::Stepped => None,
            Outcome::Skipped { cause } | Outcome::Stalled { cause, .. } => Some(cause),
        }
    }

    /// Returns the outcome with another cause, computed from this one.
    pub fn map<D>(self, f: impl FnOnce(C) -> D) -> Outcome<D> {
        match self {
            Outcome::Stepped => Outcome::Stepped,
            Outcome::Skipped { cause } => Outcome::Skipped { cause: f(cause) },
            Outcome::Stalled { cause, skipped } => Outcome::Stalled { cause: f(cause), skipped },
        }
    }
}

impl<C: fmt::Display> fmt::Display for Outcome<C> {
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
