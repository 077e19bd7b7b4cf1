//! Matrix products with f32 accumulation (f64 for f64), rounded once together with the addend.
//!
//! [`products`] is the entry point; [`Packed`] is a right operand for many products. With vectors, a product is the
//! five loops of BLIS ([`loops`]) over packed operands ([`pack`]) around a [`micro_kernel`] and an [`epilogue`]. 16-bit
//! operands are widened during packing.
//!
//! Every element is the same sum in the same order, whatever the tile, the width of vectors or the number of threads:
//! products are fused and added in order within blocks of [`KC`](blocking::KC) terms, and then the sums of blocks are
//! added in order. Products of few rows with rows ([`dot`]) have a different order. Without vectors, and for f64,
//! `matrixmultiply` multiplies widened copies ([`portable`]). On machines that multiply pairs of bf16 faster, so do the
//! loops ([`pairs`]). If a program allows AMX, packed products of bf16 have an order of their own ([`tiles`]), and what
//! is said here and in other modules of their order holds for the other dtypes.

pub(super) mod blocking;
mod dispatch;
pub(super) mod dot;
mod epilogue;
pub(super) mod factors;
mod few_rows;
pub(super) mod loops;
pub(super) mod micro_kernel;
pub(super) mod pack;
mod packed;
pub(super) mod pairs;
mod panels;
pub(super) mod portable;
pub(super) mod product;
mod tiles;

pub use dispatch::{Gemm, products, unrounded};
pub use packed::Packed;
pub use product::{Added, Layout, Products};

#[cfg(test)]
mod tests;
