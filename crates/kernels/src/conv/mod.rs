//! Convolutions over up to three spatial axes: the convolution and its two gradients. A transposed convolution is the
//! gradient of a convolution with respect to its input, so it needs no separate kernel.
//!
//! With vectors, no im2col matrix is built. Images are copied to a padded layout ([`padded`]), from which the
//! micro-kernel of matrix products reads the elements of that matrix. The lanes of a vector are channels of the result
//! if there are many ([`by_channels`]), otherwise adjacent outputs ([`by_outputs`]); [`vector_axis`] chooses. On a
//! machine that multiplies pairs of bf16, they are packed from the padded layout for the loops of matrix products
//! ([`by_products`]). Convolutions of one tap are products of the images themselves ([`pointwise`]), and depthwise ones
//! are computed plane by plane ([`depthwise`], [`depthwise_weight`]). Without vectors, and for f64, [`im2col`] builds the
//! matrix and multiplies.

mod by_channels;
mod by_outputs;
mod by_products;
mod depthwise;
mod depthwise_weight;
mod dispatch;
mod geometry;
mod im2col;
mod image_terms;
mod pack_weights;
mod padded;
mod patch_terms;
mod pointwise;
mod task;
mod vector_axis;
mod weight_grad;
mod windows;

pub use dispatch::{Convolve, forward, input_gradient, weight_gradient};
pub use geometry::Geometry;
pub use im2col::{add_patches, patches};

#[cfg(test)]
mod tests;
