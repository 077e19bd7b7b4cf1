//! The cells: layers, containers, activations, and how their parameters begin.
//!
//! A cell with options has a spec beside it: plain data that can be chained together in code, stands in architecture
//! files, and builds the cell:
//!
//! ```
//! use precast::prelude::*;
//! let mut rng = Rng::seed(0);
//! let common = Dense::new(64, 10, &mut rng);
//! let without_bias = DenseSpec::new(64, 10).bias(false).build(&mut rng)?;
//! # Result::Ok(())
//! ```

mod init;
mod kinds;
mod spec;

mod activation;
mod container;
mod dense;

pub use activation::*;
pub use container::{CellList, Sequential};
pub use dense::{Dense, DenseSpec};
pub use init::{Init, Rng};
pub use kinds::kinds;
