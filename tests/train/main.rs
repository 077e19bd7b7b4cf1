//! Training in code: the loss scale, optimizers, storage and checkpoints.

mod averages;
mod checkpoint;
#[path = "../common/mod.rs"]
mod common;
mod decorate;
mod frozen;
mod in_backward;
mod loss_scale;
mod low_copies;
mod optim;
