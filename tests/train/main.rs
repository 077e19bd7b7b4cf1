//! Training: data, steps, the loss scale, optimizers, storage and checkpoints.

mod accumulated;
mod averages;
mod checker;
mod checkpoint;
mod choices;
#[path = "../common/mod.rs"]
mod common;
mod datasets;
mod decorate;
mod evaluation;
mod frozen;
mod in_backward;
mod lint;
mod lint_cures;
mod lint_far;
mod loss_scale;
mod losses;
mod low_copies;
mod optim;
mod ranks;
mod regression;
mod shards;
mod skipped_steps;
mod threads;
mod training;
mod trust;
mod tuned;
mod underflow;
