//! Files: limited reads, atomic writes, network architectures and the kinds they name.

pub mod files;
pub mod json;
pub mod kinds;
pub mod models;

pub(crate) use precast_base::document;
