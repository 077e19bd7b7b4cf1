//! Memory of kernels and tensors: buffers from one arena, arrays that share them, and aligned scratch memory kept by
//! each thread.

mod arena;
mod array;
mod line;
mod pages;
mod pool;
mod scratch;
mod shortage;

pub use array::SharedArray;
pub use line::Line;
pub use pages::{constant, reserved, room};
pub use pool::KEPT_BYTES;
pub use pool::{Elements, Item, Pooled, copied, uninit_vec, with_capacity, zeros};
pub use scratch::{Scratch, with_scratch};
pub use shortage::within_memory;
