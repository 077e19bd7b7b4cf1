//! Elementwise ops, reductions, softmax, dropout and losses: their values, gradients and refusals.

mod draw;
mod elementwise;
mod gradients;
mod loss;
mod margin;
mod odd;
mod places;
mod products;
mod reduce;
mod vectors;
