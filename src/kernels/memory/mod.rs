//! Memory of kernels and tensors: buffers from one arena, arrays that share them, and aligned scratch memory kept by
//! each thread.

mod arena;
mod array;
mod line;
mod pages;
mod pool;
mod scratch;
mod shortage;

pub(crate) use array::SharedArray;
pub(crate) use line::Line;
pub(crate) use pages::{constant, reserved, room};
pub use pool::KEPT_BYTES;
pub(crate) use pool::{Elements, Item, Pooled, copied, uninit_vec, with_capacity, zeros};
pub(crate) use scratch::{Scratch, with_scratch};
pub(crate) use shortage::within_memory;
