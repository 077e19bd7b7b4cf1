//! Numbers of 8, 6 and 4 bits in training: codes, scales, and the recipes that say which operand of which product is
//! quantized how.
//!
//! - [`Format`] converts between f32 and codes: FP8, FP6, FP4, the scales of MX, INT8 and INT4.
//! - [`Operand`] quantizes a [`Matrix`] to a [`Quantized`] one: scales of a tensor, rows or blocks, in f32, MX or NVFP4.
//!   [`Delayed`] takes the scale of a tensor from the steps before.
//! - [`Recipe`] has the operands of the three products of a linear layer.
//! - [`Stream`] has the random bits of stochastic rounding.
//!
//! It rehearses the numbers of a GPU, and stores them; it is no faster than f32. It knows no tensor, layer or policy. Its
//! invariants:
//!
//! - Codes and scales are those of torchao and Transformer Engine, bit for bit. Products are not those of a GPU, whose sums
//!   have fewer digits.
//! - Every number of a format but [`Format::E8M0`] is exact in bf16, and a product of two is exact in f32.
//! - A code depends on its group, the recipe and its random bits alone, never on threads, vectors or the order of work.
//! - A number that is not finite is an error with its place, and so is a block that does not divide a matrix.
//!
//! ```
//! use precast_lowbit::{Matrix, Recipe, Scales, Stream};
//!
//! let weight: Vec<f32> = (0..256).map(|i| (i as f32 * 0.1).sin()).collect();
//! let operand = Recipe::TENSORWISE.output.right;
//! let quantized = operand.quantize(Matrix::new(&weight, 4, 64)?, Stream::new(0, "fc.weight", 0))?;
//! assert_eq!(quantized.codes().len(), 256);
//! assert!(matches!(quantized.scales(), Scales::F32(scales) if scales.len() == 1));
//! let error = weight.iter().zip(quantized.decode()).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
//! assert!(error <= 1.0 / 28.0); // half a unit of 448, times the scale
//! # Ok::<(), precast_base::Error>(())
//! ```
#![deny(missing_docs)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![warn(missing_debug_implementations)]
#![forbid(unsafe_code)]

mod codec;
mod delayed;
mod format;
mod hadamard;
mod matrix;
mod nibbles;
mod operand;
mod quantized;
mod recipe;
mod scale;
mod stream;

pub use codec::Overflow;
pub use delayed::{AmaxOf, Delayed, DelayedRule};
pub use format::Format;
pub use matrix::{Matrix, magnitude};
pub use nibbles::{pack_nibbles, unpack_nibbles};
pub use operand::{Operand, Rounding};
pub use quantized::{Quantized, Scales};
pub use recipe::{Product, Recipe, Scaling};
pub use scale::{Granularity, MxMode, Nvfp4, ScaleRule, amax_to_scale};
pub use stream::Stream;
