//! Files: limited reads, atomic writes, network architectures and the kinds they name, weights, and models as other
//! tools store them.

pub mod files;
pub(crate) mod json;
pub mod kinds;
pub mod models;
pub mod stored;
pub mod weights;

pub(crate) use precast_policy::document;
