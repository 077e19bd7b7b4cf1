//! The dtypes of a [`Tensor`](crate::Tensor) and the Rust types of its elements, both of the package `precast-base`; what is
//! computed with them is in the kernels.

pub use precast_base::{DType, Element};

/// The arm for a dtype that this library does not know. There is none: it is built with the `precast-base` of its own version.
pub(crate) fn unknown(dtype: DType) -> ! {
    unreachable!("the dtype {dtype} has no tensors")
}
