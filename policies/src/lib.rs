//! precast's policies.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(missing_docs)]
#![warn(missing_debug_implementations)]
#![forbid(unsafe_code)]

mod adapter;
pub mod catalogue;
#[doc(hidden)]
pub mod document;
mod dtype;
pub mod error;
#[doc(hidden)]
pub mod files;
pub mod host;
pub mod kinds;
mod logging;
mod outline;
#[doc(hidden)]
pub mod path;
pub mod plan;
pub mod policy;
pub mod precision;
#[doc(hidden)]
pub mod printable;
pub mod scale;
#[doc(hidden)]
pub mod table;
#[doc(hidden)]
pub mod weights;

pub use adapter::{Adapter, Cast, Planned};
pub use catalogue::{Op, Precision};
pub use dtype::DType;
pub use error::{Error, ErrorKind, Result};
pub use outline::{Outline, OutlinedCell};
pub use plan::Plan;
pub use policy::{Level, Policy};
pub use printable::{printable, printable_lines};
