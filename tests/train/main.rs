//! Training: data, steps, the loss scale, optimizers, storage, checkpoints and runs.

mod checkpoint;
#[path = "../common/mod.rs"]
mod common;
mod datasets;
mod decorate;
mod lint;
mod loss_scale;
mod optim;
#[cfg(feature = "data")]
mod readers;
mod regression;
#[cfg(feature = "data")]
mod runs;
mod skipped_steps;
mod training;
mod trust;
mod underflow;
