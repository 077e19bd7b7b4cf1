//! The Rust types of the elements of a [`Tensor`](crate::Tensor). The dtypes that name them are in the package `precast-policy`;
//! what is computed with them, in the kernels.

use std::fmt;

use half::{bf16, f16};
pub use precast_policy::DType;

/// The arm for a dtype that this library does not know. There is none: it is built with the `precast-policy` of its own version.
pub(crate) fn unknown(dtype: DType) -> ! {
    unreachable!("the dtype {dtype} has no tensors")
}

/// A Rust type that can be an element of a tensor.
pub trait Element: Copy + PartialEq + PartialOrd + Default + fmt::Debug + Send + Sync + 'static {
    /// The run-time name of this type.
    const DTYPE: DType;
}

macro_rules! element {
    ($($t:ty => $d:ident),*) => { $(impl Element for $t { const DTYPE: DType = DType::$d; })* };
}
element!(f64 => F64, f32 => F32, f16 => F16, bf16 => Bf16, i64 => I64, bool => Bool);
