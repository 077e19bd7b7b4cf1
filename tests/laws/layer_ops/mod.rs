//! The layer ops: products, convolutions, pools, norms, shapes and indexing.

mod attention;
mod errors;
mod index;
mod products;
mod random;
mod recurrent;
mod sampling;
mod values;
