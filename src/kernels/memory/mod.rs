//! Memory of kernels and tensors: buffers from one arena, arrays that share them, and aligned scratch memory that each
//! thread keeps.

mod arena;
mod array;
mod pool;
mod scratch;

pub(crate) use array::SharedArray;
pub use pool::MAX_KEPT_BYTES;
pub(crate) use pool::{Elements, Item, Pooled, copied, uninit_vec, with_capacity, zeros};
pub(crate) use scratch::{Line, Scratch, with_scratch};

/// What the bytes of unwritten memory are with debug assertions, where each floating type reads NaN: a kernel that leaves out an
/// element shows in its result. Without them, memory holds what an earlier use left.
const UNWRITTEN: Option<u8> = if cfg!(debug_assertions) { Some(0xff) } else { None };
