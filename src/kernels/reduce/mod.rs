//! Functions along axes: reductions, running sums and products, softmax, norms, and the loss of classes.

pub(crate) mod cross_entropy;
pub(crate) mod norm;
mod reductions;
mod slices;
pub(crate) mod softmax;
mod sum;

pub(crate) use reductions::{Deviation, Extreme, PNorm, Product, RunningProduct, RunningSum, Variance};
pub(crate) use slices::{AlongAxis, SliceFunction, over_slices, over_slices_backward};
pub(crate) use sum::{largest, sum, sum_middle, sum_of};
