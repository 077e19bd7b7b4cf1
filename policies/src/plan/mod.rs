//! Decisions of a policy for a network: deciding (pure), plans (values), explaining, ops, checking, comparing,
//! predicting, and exporting plans to other libraries.

mod check;
mod decide;
mod decision;
mod diff;
mod display;
mod export;
mod fastest;
mod op_table;
#[allow(clippy::module_inception, reason = "the room and its main noun have one name")]
mod plan;
mod predict;
mod settle;

#[doc(hidden)]
pub use check::{Claim, check_claims};
pub use decision::{Decision, Reason, Recompute, Region, RuleRef};
pub use diff::{Change, Decided, Diff};
pub use display::Explanation;
#[doc(hidden)]
pub use display::{bytes, cells, said_once, time};
pub use export::{Exported, Exporter};
pub use fastest::Cost;
pub use op_table::{OpReason, OpRow, OpsTable};
pub use plan::{Plan, Summary};
pub use predict::{Forecast, Predicted};
