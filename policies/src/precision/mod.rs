//! What the precision of running code is: frames, and the pure rule that turns a frame into casts.

mod frame;
mod resolve;

pub use frame::{Frame, OpRules, Treatment};
pub use resolve::{Casts, resolve};
