//! The dtypes of a [`Tensor`](crate::Tensor) and the Rust types of its elements, both of the package `precast-base`; what is
//! computed with them is in the kernels.

pub use precast_base::{DType, Element};
