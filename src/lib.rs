//! Mixed-precision training.
#![deny(missing_docs)]
#![warn(missing_debug_implementations)]
#![deny(unsafe_code)]

pub mod cell;
pub mod check;
mod dtype;
pub mod error;
#[allow(unsafe_code)]
mod kernels;
pub mod observe;
mod op;
mod ops;
pub mod precision;
mod tensor;

pub use cell::{Cell, Child, Param};
pub use dtype::{DType, Element};
pub use error::{Error, ErrorKind, Result};
pub use op::Op;
pub use ops::{ConvOptions, ConvTransposeOptions, Padding, PoolOptions};
pub use tensor::{Grads, Tensor, TensorElement, no_grad};
