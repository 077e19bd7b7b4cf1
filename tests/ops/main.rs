//! Elementwise ops, reductions, softmax, dropout and losses: their values and refusals.

mod draw;
mod elementwise;
mod loss;
mod margin;
mod odd;
mod places;
mod products;
mod reduce;
mod vectors;
