//! Elementwise ops, reductions, softmax, dropout and losses: their values and refusals.

mod accuracy;
mod draw;
mod elementwise;
mod extremes;
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
