//! Update of a parameter by an optimizer, in one pass over memory.
//!
//! A gradient is read once. It is widened block by block in the nearest cache. The running averages and the value are
//! updated there, and the value is written back in its storage format. There are no formulas here: an optimizer's
//! formula is called through a pointer, so that the code compiled for each format is independent of optimizers. The
//! formula multiplies the gradient by its factors.

pub mod eight_bit;
mod gradient;
mod pass;
mod stochastic;
mod storage;
mod sums;
mod values;

pub use gradient::{Gradient, Multiplied, each};
pub use pass::{MOMENTS, Moment, Pass, load_all};
pub use precast_lowbit::Stream;
pub use storage::{Count, Kahan, Place, Rounded, Stochastic, Storage, Wide, WithMaster};
pub use sums::{square_sums_of_columns, squares_by_parts};
pub use values::Values;
