//! Windows over spatial axes: convolutions, pooling, padding, resampling.

pub(in crate::ops) mod conv;
pub(in crate::ops) mod grid_sample;
pub(in crate::ops) mod interpolate;
pub(in crate::ops) mod pad_modes;
pub(in crate::ops) mod pool;
pub(in crate::ops) mod windows;
