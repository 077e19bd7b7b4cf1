//! The loss scale compared with recordings of other systems, one file per system; and under load.
//!
//! A case is compared with the recording. Where COMPARE.md lists an intentional difference, the test computes the
//! required result by that rule, in plain arithmetic, and compares with that.

mod deepspeed;
mod mindspore;
mod model;
pub mod numbers;
mod paddle;
mod sequences;
mod storms;
mod tensorflow;
mod torch;
mod torch_events;
mod torch_rule;
