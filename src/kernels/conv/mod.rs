//! Convolutions over up to three spatial axes: the convolution and its two gradients. A transposed convolution is the
//! gradient of a convolution with respect to its input, so it needs no kernel of its own.
//!
//! With vectors there is no im2col matrix. Images are copied to a padded layout ([`padded`]), and the micro-kernel of matrix
//! products reads the elements of that matrix there. The lanes of a vector are channels of the result where there are many
//! ([`by_channels`]), and else neighbouring outputs ([`by_outputs`]); [`vector_axis`] chooses. Where a machine multiplies pairs
//! of bf16, they are packed from there for the loops of matrix products ([`by_products`]). Where there are no vectors, and for
//! f64, [`im2col`] makes the matrix and multiplies.

mod by_channels;
mod by_outputs;
mod by_products;
mod dispatch;
mod geometry;
mod im2col;
mod pack_weights;
mod padded;
mod task;
mod vector_axis;
mod weight_grad;
mod windows;

pub(crate) use dispatch::{Convolve, forward, input_gradient, weight_gradient};
pub(crate) use geometry::Geometry;

#[cfg(test)]
mod tests;
