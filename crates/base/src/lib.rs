//! The base of the packages of precast: errors, dtypes, hand-written YAML, files, and text for people.
//!
//! It never computes with numbers, and it knows no tensor, no op and no policy. Its invariants:
//!
//! - Nothing that a user hands in causes a panic: no file, no name, no number.
//! - An [`Error`] has its place and its cause as data. Its words name the place, what is wrong, and what is allowed.
//! - A [document](document::read) is bounded in size, depth and number of values, and each mistake in it has a line and
//!   a column.
//! - A [file](files) is read within a limit, and written whole or not at all, even in a crash.
//! - Text from files is [printable()] in every message: it neither controls a terminal nor starts a line.
//! - [Promotion](DType::promote) is a semilattice: the order of operands changes no dtype.
#![deny(missing_docs)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![warn(missing_debug_implementations)]
#![forbid(unsafe_code)]

pub mod document;
mod dtype;
pub mod error;
pub mod files;
pub mod formats;
pub mod names;
pub mod path;
pub mod printable;
mod setters;
pub mod table;

pub use dtype::{DType, Element};
pub use error::{Error, ErrorKind, Result};
pub use printable::{printable, printable_lines, quoted};
