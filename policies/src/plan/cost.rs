//! Costs of cells: those that a library gives, and what a plan makes of them.

use serde::{Deserialize, Serialize};

use super::region::Region;

/// The costs of the cells of a network in a call, forward and backward. A cell is identified by its index in the
/// [outline](crate::host::Outlined::outline).
pub trait Costs {
    /// Returns the name of the machine.
    fn host(&self) -> &str;

    /// Returns the cost of a cell without those inside it, when it runs in region `run` surrounded by region `around`.
    fn own(&self, cell: usize, run: Region, around: Region) -> Takes;

    /// Returns the additional nanoseconds for computing the gradients of its weights in f32.
    fn wide_weight_grads(&self, cell: usize, run: Region) -> u64;

    /// Returns the number of input elements of a cell that a cast would touch.
    fn inputs(&self, cell: usize) -> usize;
}

/// A cost in time and memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Takes {
    /// Nanoseconds.
    pub nanos: f64,
    /// Bytes of activations kept for the backward pass.
    pub kept: f64,
}

impl std::ops::AddAssign for Takes {
    fn add_assign(&mut self, other: Self) {
        self.nanos += other.nanos;
        self.kept += other.kept;
    }
}

/// The two predicted times behind a choice; the lower one won.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// The region that the level would give to the cell.
    pub region: Region,
    /// Nanoseconds of the cell and all inside it in that region, including casts at its border.
    pub lowered: u64,
    /// Nanoseconds of the same in f32.
    pub full: u64,
}

/// A predicted cost of a forward and a backward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Predicted {
    /// Nanoseconds, excluding the update of parameters.
    pub nanos: u64,
    /// Bytes of activations kept for the backward pass.
    pub kept: u64,
}

/// The predicted cost of a plan, compared with alternatives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Forecast {
    /// The machine whose speeds were used.
    pub host: String,
    /// This plan.
    pub planned: Predicted,
    /// The same level without regard to time.
    pub lowered: Predicted,
    /// Everything in f32.
    pub full: Predicted,
}

impl From<Takes> for Predicted {
    fn from(takes: Takes) -> Self {
        Predicted { nanos: takes.nanos.round() as u64, kept: takes.kept.round() as u64 }
    }
}
