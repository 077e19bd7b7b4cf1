//! The layer ops: products, convolutions, pools, norms, shapes and indexing.

mod attention;
mod errors;
#[path = "../common/golden.rs"]
mod goldens;
mod index;
mod products;
mod random;
mod recurrent;
mod sampling;
mod values;
