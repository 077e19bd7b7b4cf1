//! precast's policies.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(missing_docs)]
#![warn(missing_debug_implementations)]
#![forbid(unsafe_code)]

pub mod catalogue;
mod dtype;
pub mod error;
mod logging;
#[doc(hidden)]
pub mod printable;
#[doc(hidden)]
pub mod table;

pub use catalogue::{Op, Precision};
pub use dtype::DType;
pub use error::{Error, ErrorKind, Result};
pub use printable::{printable, printable_lines};
