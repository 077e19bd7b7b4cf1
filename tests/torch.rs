//! torch 2.15's recorded behaviour compared with ours, case by case.
//!
//! A folder may lack cases; a case that is present but not recognized fails.

#[path = "common/golden.rs"]
mod common;

#[path = "torch/custom.rs"]
mod custom;
#[path = "torch/forms.rs"]
mod forms;
#[path = "torch/nested.rs"]
mod nested;
#[path = "torch/on_purpose.rs"]
mod on_purpose;
#[path = "torch/ops.rs"]
mod ops;
#[path = "torch/probes.rs"]
mod probes;
#[path = "torch/rounding.rs"]
mod rounding;
#[path = "torch/rule.rs"]
mod rule;
#[path = "torch/steps.rs"]
mod steps;
#[path = "common/tally.rs"]
mod tally;
#[path = "torch/values.rs"]
mod values;
