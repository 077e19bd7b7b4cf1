//! Files: limited reads, atomic writes, network architectures and the kinds they name.

pub mod files;
pub(crate) mod json;
pub mod kinds;
pub mod models;

pub(crate) use precast_policy::document;
