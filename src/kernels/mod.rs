//! Numeric kernels: slices in, slices out.
//!
//! Contract of every kernel: 16-bit storage is widened to f32 (f64 stays f64), arithmetic and accumulation happen in
//! the wide type, and the result is rounded **once** on the way out. Kernels know no tensors, policies or op names.
#![allow(clippy::needless_range_loop, reason = "iterators are calls where codegen units are optimized one by one")]
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "pairs of bf16 are for x86-64 so far"))]

pub(crate) mod amx;
pub(crate) mod arrays;
pub(crate) mod attention;
#[doc(hidden)]
#[allow(missing_docs)]
pub mod bench;
pub(crate) mod cast;
pub(crate) mod conv;
pub(crate) mod counted;
pub(crate) mod elementwise;
pub(crate) mod float;
pub(crate) mod gemm;
pub(crate) mod limits;
pub(crate) mod memory;
pub(crate) mod recurrent;
pub(crate) mod reduce;
pub(crate) mod sample;
pub(crate) mod simd;
pub(crate) mod strides;
pub(crate) mod threads;
pub(crate) mod update;
