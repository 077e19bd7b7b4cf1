//! Files: read within limits, written whole or not at all, architectures of networks and the kinds that they name, weights,
//! and models as other tools store them.

pub mod files;
pub(crate) mod json;
pub mod kinds;
pub mod models;
pub mod stored;
pub mod weights;

pub(crate) use precast_policy::document;
