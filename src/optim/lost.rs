//! Updates that rounding swallows.

use crate::kernels::update::Count;

/// How many updates of a parameter were lost in the last step: the optimizer changed the number, and what is stored stayed the
/// same.
///
/// A number is lost only where it is stored low and has no master: bf16 has 8 significant bits, so an update of less than
/// 1/512 of a weight rounds away. With Kahan's compensation the pair of value and compensation is compared. With stochastic
/// rounding an update is lost at times and made up for at others, so a high share of these is no reason for concern.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LostUpdates {
    /// Path of the parameter.
    pub path: String,
    /// Elements with an update other than 0.
    pub updates: u64,
    /// Those of them that stayed the same.
    pub lost: u64,
    /// Whether the parameter is rounded at random, so that what is lost is made up for.
    pub is_stochastic: bool,
}

impl LostUpdates {
    /// The share of lost updates above which an optimizer warns, once, by an event of the feature `tracing`.
    pub const WARN_ABOVE: f64 = 0.5;

    pub(super) fn new(path: &str, count: Count, is_stochastic: bool) -> Self {
        LostUpdates { path: path.to_string(), updates: count.updates, lost: count.lost, is_stochastic }
    }

    /// The share of the updates that were lost, from 0 to 1.
    pub fn share(&self) -> f64 {
        self.lost as f64 / self.updates.max(1) as f64
    }

    /// Whether so many were lost that the parameter hardly learns: more than [`WARN_ABOVE`](LostUpdates::WARN_ABOVE), and not
    /// by stochastic rounding.
    pub fn is_high(&self) -> bool {
        !self.is_stochastic && self.share() > LostUpdates::WARN_ABOVE
    }
}
