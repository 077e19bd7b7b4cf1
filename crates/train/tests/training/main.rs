//! The loop: data, losses, scores, shards and ranks.

mod accumulated;
mod accuracy;
#[path = "../../../../tests/common/mod.rs"]
mod common;
mod curve;
mod datasets;
mod evaluation;
mod first_step;
mod lint;
mod losses;
mod messages;
mod ranks;
mod regression;
mod rewritten;
mod shards;
mod skipped_steps;
mod training;
mod tuned;
mod underflow;
