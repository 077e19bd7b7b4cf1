//! Reductions along axes: sums, norms, softmax, distances.

pub(in crate::ops) mod axes;
pub(in crate::ops) mod distance;
pub(in crate::ops) mod norm;
pub(in crate::ops) mod softmax;
pub(in crate::ops) mod sums;
