//! Decisions of a policy for a network: deciding (pure), plans (values), explaining, ops, checking, comparing,
//! predicting, and exporting plans to other libraries.

mod check;
pub(crate) mod cost;
mod decide;
mod decision;
mod diff;
mod display;
mod export;
mod fastest;
mod fits;
mod idle;
mod network;
mod op_table;
#[allow(clippy::module_inception, reason = "the room and its main noun have one name")]
pub(crate) mod plan;
mod predict;
pub(crate) mod region;
mod settle;
mod words;

pub use check::{Claim, check_claims};
pub use cost::{Cost, Forecast, Predicted};
pub use decision::{ByRule, Decision, Later, Quantization, Reason, RuleRef};
pub use diff::{Change, Decided, Diff};
pub use display::Explanation;
pub use export::{Exported, Exporter};
pub use op_table::{OpReason, OpRow, OpsTable};
pub use plan::{Plan, Summary};
pub use region::Region;
