//! Files: read within limits, written whole or not at all, architectures of networks and the kinds that they name, weights.

pub(crate) mod document;
pub mod files;
pub mod kinds;
pub mod models;
pub mod weights;
