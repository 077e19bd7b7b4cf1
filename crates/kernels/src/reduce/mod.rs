//! Functions along axes: reductions, running sums and products, softmax, norms, and the cross entropy loss.

pub mod channels;
pub mod cross_entropy;
mod indexed;
pub mod norm;
mod reductions;
mod running;
mod scatter;
mod slices;
pub mod softmax;
mod squares;
mod sum;

pub use indexed::Indexed;
pub use reductions::{Deviation, Extreme, PNorm, Variance};
pub use running::{Product, RunningProduct, RunningSum};
pub use scatter::{FEW, add_runs};
pub use slices::{AlongAxis, SliceFunction, over_slices, over_slices_backward};
pub use squares::{Squares, power_below};
pub use sum::{largest, replace, sum, sum_middle, sum_of};
