//! Updates lost to rounding.

use precast_kernels::update::Count;

/// The number of updates of a parameter lost to rounding in the last step: the optimizer computed a change, but the
/// stored value stayed the same.
///
/// Updates are lost only where a parameter is stored in 16 bits without a master copy: bf16 has 8 significant bits, so
/// an update of less than 1/512 of a weight rounds away. With Kahan compensation, the pair of value and compensation is
/// compared. With stochastic rounding, lost updates are made up for by others, so a high share is not a cause for concern.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LostUpdates {
    /// Path of the parameter.
    pub path: String,
    /// Elements with a non-zero update.
    pub updates: u64,
    /// Elements among these that stayed the same.
    pub lost: u64,
    /// `true` when the parameter is rounded stochastically, which makes up for lost updates.
    pub is_stochastic: bool,
}

impl LostUpdates {
    /// The share of lost updates above which an optimizer warns, once, through an event.
    pub const WARN_ABOVE: f64 = 0.5;

    pub(super) fn new(path: &str, count: Count, is_stochastic: bool) -> Self {
        LostUpdates { path: path.to_string(), updates: count.updates, lost: count.lost, is_stochastic }
    }

    /// Returns the share of updates that were lost, from 0 to 1.
    pub fn share(&self) -> f64 {
        self.lost as f64 / self.updates.max(1) as f64
    }

    /// Returns whether so many updates were lost that the parameter hardly learns: more than
    /// [`WARN_ABOVE`](LostUpdates::WARN_ABOVE), without stochastic rounding.
    pub fn is_high(&self) -> bool {
        !self.is_stochastic && self.share() > LostUpdates::WARN_ABOVE
    }
}
