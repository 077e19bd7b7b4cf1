//! Origins of faults: the first result of a step that went wrong.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Edge;

/// Kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FaultKind {
    /// Finite numbers became infinite.
    Inf,
    /// A number is not a number.
    Nan,
    /// At least half of the numbers other than 0 became 0.
    Flush,
    /// The result has less than about four correct bits although its inputs were good.
    Lost,
}

/// The first fault of a step: the cause of a skipped step, or of a step taken with a number that was not
/// finite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// Kind of the fault.
    pub kind: FaultKind,
    /// First edge that went wrong. It names no edges that it was computed [from](Edge::from).
    pub edge: Edge,
}

impl FaultKind {
    /// Returns whether numbers are infinite or NaN.
    pub fn is_overflow(self) -> bool {
        matches!(self, FaultKind::Inf | FaultKind::Nan)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Origin { kind, edge } = self;
        let numbers = &edge.numbers;
        let came = if edge.good_inputs { "by rounding: they are finite in f32" } else { "in f32, too" };
        match kind {
            FaultKind::Inf => {
                write!(f, "{edge}: {} of {} numbers are infinite, {came}", numbers.inf + numbers.neg_inf, numbers.n)
            }
            FaultKind::Nan => write!(f, "{edge}: {} of {} numbers are NaN, {came}", numbers.nan, numbers.n),
            FaultKind::Flush => {
                write!(f, "{edge}: {:.0} % of the numbers became 0", 100.0 * numbers.flushed_share())
            }
            FaultKind::Lost => {
                write!(f, "{edge}: wrong by {:.0} %, from good numbers", 100.0 * edge.error.unwrap_or_default())
            }
        }
    }
}
