//! Elementwise ops, reductions, softmax, dropout and losses: their values and refusals.

mod accuracy;
mod bad_input;
mod elementwise;
mod extremes;
mod index_and_resample;
mod inputs;
mod legal_points;
mod limits;
mod long_sums;
mod loss;
mod margin;
mod no_elements;
mod order;
mod products;
mod rearrange;
mod reduce;
mod sizes;
mod squares;
mod vectors;
mod views;
