//! Weighted means and extremes of neighbouring elements: pools, sampling by a grid, resizing.

pub(crate) mod grid_sample;
pub(crate) mod pool;
pub(crate) mod resample;
