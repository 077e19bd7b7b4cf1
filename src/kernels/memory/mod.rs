//! Memory of kernels and tensors: buffers from one arena, arrays that share them, and aligned scratch memory kept by
//! each thread.

mod arena;
mod array;
mod pool;
mod scratch;

pub(crate) use array::SharedArray;
pub use pool::MAX_KEPT_BYTES;
pub(crate) use pool::{Elements, Item, Pooled, copied, uninit_vec, with_capacity, zeros};
pub(crate) use scratch::{Line, Scratch, with_scratch};
