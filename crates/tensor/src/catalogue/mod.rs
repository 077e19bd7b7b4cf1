//! The catalogue of primitive operations: the ops of the package `precast-policy`, and their arguments in this library
//! besides tensors.

mod attributes;

pub(crate) use attributes::as_serde_has_them;
pub use attributes::{Attribute, Attributes};
#[doc(inline)]
pub use precast_policy::catalogue::{Custom, Family, Foreign, Op, Precision, System};
