//! What programs that define and run networks need, in one `use precast::prelude::*`.
//!
//! Networks of your own that stand in files are marked `#[derive(Serialize, Deserialize)]` and `#[typetag::serde]`. What
//! these write names the crates `serde` and `typetag`, so your `Cargo.toml` lists both beside `precast`.

pub use serde::{Deserialize, Serialize};
pub use typetag;

pub use crate::{
    Adam, Autocast, Cell, Child, DType, Error, ErrorKind, Level, LossScale, Op, Optimizer, Outcome, Padding, Param,
    Policy, Result, Sgd, Tensor, autocast, children,
    layers::*,
    policy::{Lists, black_list, white_list},
    rewrite::{Custom, Decorate, auto_mixed_precision, auto_mixed_precision_fn, custom_mixed_precision, decorate},
    sequential,
};
