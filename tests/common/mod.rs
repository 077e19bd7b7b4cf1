//! Tools of the tests, of which each target includes this module once.
#![allow(dead_code, reason = "no target uses all of it")]

pub mod contradicting;
pub mod f32_runs;
pub mod folder;
pub mod golden;
pub mod json_schema;
#[cfg(unix)]
pub mod killed;
pub mod metrics;
pub mod npy;
pub mod speeds;
pub mod tensors;
