//! What programs that define and run networks need, in one `use precast::prelude::*`.
//!
//! A network of your own that is written to architecture files is marked `#[derive(Serialize, Deserialize)]` and
//! `#[cell(saved)]`. The code that `Serialize` generates names the crate `serde`, so your `Cargo.toml` must list it
//! beside `precast`.

pub use serde::{Deserialize, Serialize};

pub use crate::{
    Adam, Autocast, Cell, Checkpoint, Child, DType, Error, ErrorKind, Forward, Level, LossScale, Op, Optimizer,
    Outcome, Padding, Param, Plan, Policy, Precision, Result, Sgd, Tensor, autocast, cell_list,
    layers::*,
    no_grad,
    policy::{Lists, black_list, white_list},
    rewrite::{Custom, Decorate, auto_mixed_precision, auto_mixed_precision_fn, custom_mixed_precision, decorate},
    sequential,
};
