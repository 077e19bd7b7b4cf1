//! Precision of running code: frames, and the pure function that turns a frame into casts.

mod frame;
mod resolve;

pub use frame::{Frame, OpRules, Treatment};
pub use resolve::{Casts, resolve};
