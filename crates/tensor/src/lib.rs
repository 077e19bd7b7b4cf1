//! The tensors of precast, and what computes with them.
//!
//! They know no cells, layers or plans. Their invariants:
//!
//! - Every op runs through one `dispatch`: it casts the inputs as the running [frame](precision::Frame) says, runs a kernel,
//!   records the result on the tape, and informs listeners.
//! - A tensor is never changed in place.
//! - The running [context] of a thread is restored on return, error and panic alike.
//! - A backward pass runs in the dtypes of its forward pass, and its bits depend on no number of threads.
#![deny(missing_docs)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![warn(missing_debug_implementations)]
#![forbid(unsafe_code)]

pub mod catalogue;
pub mod formula;
pub mod gradcheck;
pub mod internals;
pub mod logging;
pub mod observe;
pub mod ops;
pub mod precision;
pub mod random;
mod tensor;
pub mod words;

pub use ops::{
    ConvOptions, ConvTransposeOptions, CrossEntropy, CustomOp, GridPadding, Interpolation, Padding, PoolOptions,
    RecurrentWeights, Reduction, Resize, run, run_with, twice_differentiable,
};
pub use precast_base::{DType, Element, Error, ErrorKind, Result, error, printable};
pub use precast_policy::catalogue::{Op, Precision};
pub use tensor::*;
