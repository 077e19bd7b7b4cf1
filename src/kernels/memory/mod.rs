//! Memory of kernels and tensors: a pool of vectors, and aligned scratch memory that each thread keeps.

mod pool;
mod scratch;

pub use pool::MAX_KEPT_BYTES;
pub(crate) use pool::{Elements, Item, Pooled, copied, recycle, uninit_vec, with_capacity, zeros};
pub(crate) use scratch::{Line, Scratch, with_scratch};
