//! Elementwise functions on slices of any float, with their derivatives; exponential and related functions.

mod derivatives;
pub(crate) mod distance;
pub(crate) mod finite;
mod function;
pub(crate) mod math;
pub(crate) mod peak;
mod stretched;

pub(crate) use derivatives::{Binary, Masked, PairSlope, PairValue, Saved, Slope, Sum, Times, Unary, Value, Zero};
pub(crate) use function::{BLOCK, Function, MapSlices, Pointwise, map, map_into};
pub(crate) use stretched::{Input, map_stretched};
