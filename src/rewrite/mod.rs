//! Rewriting networks by policies: applying and undoing the plans of the package `precast-policy`, and predicting their
//! cost from the [speeds](crate::cost::Speeds) of a machine. In addition, [`decorate`] stores parameters themselves in
//! 16 bits, [`Plan::convert`] does so with weights of other tools, and [`Plan::export`] exports a plan to other
//! libraries.

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
    Change, Cost, Decided, Decision, Diff, Explanation, Exported, Exporter, OpReason, OpRow, OpsTable, Plan, Predicted,
    Prediction, Reason, Recompute, Region, RuleRef, Summary,
};
pub(crate) use precast_policy::plan::{bytes, said_once, time};
pub use save_weights::SaveMode;
