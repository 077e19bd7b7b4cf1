//! From a policy to a rewritten network: apply and undo what the package `precast-policy` decides; what a plan is predicted to
//! take, by the [speeds](crate::cost::Speeds) of a machine.
//! Beside it, [`decorate`]: parameters themselves stored in 16 bit; [`Plan::convert`]: weights of other tools stored so; and
//! [`Plan::export`]: a plan in the words of other libraries.

mod apply;
mod check;
mod convert;
mod decorate;
mod predict;
mod save_weights;

pub use apply::{Applied, Custom, auto_mixed_precision, auto_mixed_precision_fn, custom_mixed_precision, undo};
pub(crate) use check::check_run;
pub use decorate::{Decorate, Decorated, KeptBecause, Stored, decorate};
#[cfg(feature = "cli")]
pub(crate) use precast_policy::plan::cells;
#[doc(inline)]
pub use precast_policy::plan::{
    Change, Cost, Decision, Diff, Explanation, Exported, Exporter, OpReason, OpRow, OpsTable, Plan, Predicted,
    Prediction, Reason, Recompute, Region, RuleRef, Summary,
};
pub(crate) use precast_policy::plan::{bytes, said_once, time};
pub use save_weights::SaveMode;
