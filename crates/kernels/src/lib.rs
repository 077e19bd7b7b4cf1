//! The kernels of precast: numbers in, numbers out, on the vectors and threads of a CPU.
//!
//! They know no tensors, policies or op names. Their invariants:
//!
//! - 16-bit storage is widened to f32 (f64 stays f64), arithmetic and accumulation happen in the wide type, and the result is
//!   rounded **once** on the way out.
//! - The order of a sum is part of a kernel's contract. No bit depends on the number of threads.
//! - `unsafe` is in this package alone, each block with its reason, and each path with vectors has the bits of the plain one.
//! - A request for more memory than the system has unwinds to [`within_memory`](memory::within_memory), which returns an error.
#![deny(missing_docs)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![allow(rustdoc::private_intra_doc_links, reason = "pages of kernels name the files that they are made of")]
#![allow(clippy::len_without_is_empty, reason = "nobody asks whether a parameter or a shape is empty")]
#![allow(clippy::needless_range_loop, reason = "iterators are calls where codegen units are optimized one by one")]
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "pairs of bf16 are for x86-64 so far"))]

pub mod amx;
mod array;
pub mod arrays;
pub mod attention;
pub mod bench;
pub mod cast;
pub mod codes;
pub mod conv;
pub mod counted;
pub mod elementwise;
pub mod float;
pub mod gemm;
pub mod limits;
pub mod memory;
pub mod recurrent;
pub mod reduce;
pub mod sample;
pub mod simd;
pub mod strides;
pub mod threads;
pub mod update;

pub use array::{Array, Renewed, Storage, Stored, alone_mut};
use precast_base::DType;

/// `true` when this package was built with optimization. Without, it is about 70 times slower.
pub const OPTIMIZED: bool = !cfg!(unoptimized);

/// Panics for a dtype that these packages do not know. They are built with the `precast-base` of their own version, so there is
/// none.
pub fn unknown(dtype: DType) -> ! {
    unreachable!("the dtype {dtype} has no arrays")
}
