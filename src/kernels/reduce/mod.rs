//! Functions along axes: reductions, running sums and products, softmax, norms, and the cross entropy loss.

pub(crate) mod channels;
pub(crate) mod cross_entropy;
pub(crate) mod norm;
mod reductions;
mod running;
mod scatter;
mod slices;
pub(crate) mod softmax;
mod squares;
mod sum;

pub(crate) use reductions::{Deviation, Extreme, PNorm, Variance};
pub(crate) use running::{Product, RunningProduct, RunningSum};
pub(crate) use scatter::{FEW, add_runs};
pub(crate) use slices::{AlongAxis, SliceFunction, over_slices, over_slices_backward};
pub(crate) use squares::{Squares, power_below};
pub(crate) use sum::{largest, replace, sum, sum_middle, sum_of};
