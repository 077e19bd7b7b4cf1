//! The layer ops: products, convolutions, pools, norms, places and indexing.

mod errors;
#[path = "../common/golden.rs"]
mod goldens;
mod gradients;
mod random;
mod values;
