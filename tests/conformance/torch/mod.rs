//! torch 2.15's recorded behaviour compared with ours, case by case.
//!
//! A folder may lack cases; a case that is present but not recognized fails.

mod custom;
pub mod forms;
mod nested;
mod on_purpose;
mod ops;
mod optimizers;
mod probes;
mod rounding;
mod rule;
mod steps;
mod training;
mod values;
mod weights;
