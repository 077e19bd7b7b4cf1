//! What precision the code being run now is in: frames, the stack of them, and the pure rule that turns a frame into casts.
//!
//! This floor knows dtypes and op names, never a tensor.

mod frame;
mod resolve;

pub use crate::tensor::context::{AutocastState, Carried, Scope, carry, current, enter, region};
pub(crate) use crate::tensor::context::{adapter, enter_region};
pub use frame::{Frame, OpRules, Treatment};
pub use resolve::{Casts, resolve};
