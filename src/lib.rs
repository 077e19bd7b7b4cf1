//! Mixed-precision training.
#![deny(missing_docs)]
#![warn(missing_debug_implementations)]
#![deny(unsafe_code)]

pub mod cell;
pub mod cells;
pub mod check;
mod dtype;
pub mod error;
mod files;
#[allow(unsafe_code)]
mod kernels;
pub mod models;
pub mod observe;
mod op;
mod ops;
pub mod optim;
pub mod policy;
pub mod precision;
pub mod prelude;
pub mod report;
pub mod rewrite;
pub mod scale;
mod tensor;
pub mod train;
pub mod weights;

pub use cell::{Cell, Child, Param};
pub use dtype::{DType, Element};
pub use error::{Error, ErrorKind, Result};
pub use op::Op;
pub use ops::{ConvOptions, ConvTransposeOptions, CrossEntropy, Padding, PoolOptions, Reduction};
pub use optim::{Adam, Optimizer, Sgd};
pub use policy::{Level, Policy};
pub use rewrite::Plan;
pub use scale::{LossScale, Outcome};
pub use tensor::{Grads, Tensor, TensorElement, no_grad};
pub use train::data;
