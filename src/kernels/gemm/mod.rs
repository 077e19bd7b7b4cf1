//! Matrix products with f32 accumulation (f64 for f64), rounded once together with what is added to them.
//!
//! [`products`] is the entry; [`Packed`] is a right operand for many products. With vectors a product is the five loops of
//! BLIS ([`loops`]) over packed operands ([`pack`]) around a [`micro_kernel`] and an [`epilogue`]. 16-bit operands are widened
//! while they are packed.
//!
//! Every element is the same sum in the same order, whatever the tile, the width of vectors or the number of threads:
//! products are fused and added one after the other within blocks of [`KC`](blocking::KC) terms, and then the sums of blocks
//! one after the other. Products of few rows with rows ([`dot`]) take another order. Where there are no vectors, and for f64,
//! `matrixmultiply` multiplies widened copies ([`portable`]). Where a machine multiplies pairs of bf16 faster, so do the loops
//! ([`pairs`]).

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

pub(crate) use dispatch::{Gemm, products, unrounded};
pub(crate) use packed::Packed;
pub(crate) use product::{Added, Layout, Products};

#[cfg(test)]
mod tests;
