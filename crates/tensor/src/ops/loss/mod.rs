//! Losses.

pub(in crate::ops) mod cross_entropy;
mod ctc;
pub(in crate::ops) mod elementwise;
pub(in crate::ops) mod heads;
pub(in crate::ops) mod margin;
pub(in crate::ops) mod reduction;
