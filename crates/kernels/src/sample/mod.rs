//! Weighted means and extrema of adjacent elements: pooling, grid sampling, resizing.

mod even_windows;
pub mod grid_sample;
pub mod pool;
pub mod resample;
pub mod windows;
