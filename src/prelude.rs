//! What programs that define and run networks need, in one `use precast::prelude::*`.
//!
//! A network of your own that is written to files is marked `#[derive(Serialize, Deserialize)]` and `#[typetag::serde]`. The
//! code that these generate names the crates `serde` and `typetag`, so your `Cargo.toml` must list both beside `precast`.

pub use serde::{Deserialize, Serialize};
pub use typetag;

pub use crate::{
    Adam, Autocast, Cell, Child, DType, Error, ErrorKind, Level, LossScale, Op, Optimizer, Outcome, Padding, Param,
    Plan, Policy, Precision, Result, Sgd, Tensor, autocast, children,
    layers::*,
    no_grad,
    policy::{Lists, black_list, white_list},
    rewrite::{Custom, Decorate, auto_mixed_precision, auto_mixed_precision_fn, custom_mixed_precision, decorate},
    sequential,
};
