//! Weighted means and extrema of adjacent elements: pooling, grid sampling, resizing.

mod even_windows;
pub(crate) mod grid_sample;
pub(crate) mod pool;
pub(crate) mod resample;
pub(crate) mod windows;
