//! From a policy to a rewritten network: decide (pure), plan (a value), apply and undo, explain, op by op, and diff; and what
//! a plan is predicted to take.
//! Beside it, [`decorate`]: parameters themselves stored in 16 bit; [`Plan::convert`]: weights of other tools stored so; and
//! [`Plan::export`]: a plan in the words of other libraries.

mod apply;
mod check;
mod convert;
mod decide;
mod decision;
mod decorate;
mod diff;
mod display;
mod export;
mod fastest;
mod op_table;
mod plan;
mod predict;
mod save_weights;
mod settle;

pub use apply::{Applied, Custom, auto_mixed_precision, auto_mixed_precision_fn, custom_mixed_precision, undo};
pub(crate) use check::check_run;
pub use decision::{Decision, Reason, Recompute, Region, RuleRef};
pub use decorate::{Decorate, Decorated, KeptBecause, Stored, decorate};
pub use diff::{Change, Diff};
pub use display::Explanation;
#[cfg(feature = "cli")]
pub(crate) use display::cells;
pub(crate) use display::{bytes, said_once, time};
pub use export::{Exported, Exporter};
pub use fastest::Cost;
pub use op_table::{OpReason, OpRow, OpsTable};
pub use plan::{Plan, Summary};
pub use predict::{Predicted, Prediction};
pub use save_weights::SaveMode;
