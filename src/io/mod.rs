//! Files: written whole or not at all, architectures of networks, weights.

pub mod files;
pub mod models;
pub mod weights;
