//! Elementwise ops, reductions, softmax, dropout and losses: their values, gradients and refusals.

mod accuracy;
mod draw;
mod elementwise;
mod extremes;
mod gradients;
mod legal_points;
mod loss;
mod margin;
mod no_elements;
mod odd;
mod places;
mod products;
mod reduce;
mod vectors;
mod views;
