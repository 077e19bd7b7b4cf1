//! Elementwise functions on slices of any float, with their derivatives; exponential and related functions.

mod derivatives;
pub mod distance;
pub mod finite;
mod function;
pub mod math;
pub mod peak;
mod stretched;

pub use derivatives::{Binary, Masked, PairSlope, PairValue, Saved, Slope, Sum, Times, Unary, Value, Zero};
pub use function::{BLOCK, Function, MapSlices, Pointwise, map, map_into};
pub use stretched::{Input, map_stretched};
