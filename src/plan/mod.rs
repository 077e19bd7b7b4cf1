//! The plans of the package `precast-policy` for networks of this library: applying and undoing them, and predicting
//! their cost from the [speeds](crate::cost::Speeds) of a machine. In addition, [`Plan::convert`] writes weights of
//! other tools in the planned dtypes, and [`Plan::export`] exports a plan to other libraries.

mod apply;
mod check;
mod model_summary;
mod predict;

pub use apply::{Applied, undo};
pub use check::check_run;
pub use model_summary::{CellSummary, ModelSummary};
#[doc(inline)]
pub use precast_policy::plan::{
    Change, Cost, Decided, Decision, Diff, Explanation, Exported, Exporter, Forecast, Later, OpReason, OpRow, OpsTable,
    Plan, Predicted, Reason, Region, RuleRef, Summary,
};
