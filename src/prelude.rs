//! What programs that define and run networks need, in one `use precast::prelude::*`.
//!
//! Networks of your own that stand in files are marked `#[derive(Serialize, Deserialize)]` and `#[typetag::serde]`. What
//! these write names the crates `serde` and `typetag`, so your `Cargo.toml` lists both beside `precast`.

pub use serde::{Deserialize, Serialize};
pub use typetag;

pub use crate::{Cell, Child, DType, Error, Param, Result, Tensor, cells::*, children, sequential};
