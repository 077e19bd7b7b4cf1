//! What precision the code being run now is in: frames, the stack of them, and the pure rule that turns a frame into casts.
//!
//! This floor knows dtypes and op names, never a tensor.

mod frame;
mod place;
mod resolve;
mod scope;

pub use frame::{Frame, OpRules, Treatment};
pub(crate) use place::{enter_backward, enter_slot, enter_weight_grads, in_backward, slot, wide_weight_grads};
pub use resolve::{Casts, resolve};
pub use scope::{AutocastState, Carried, Scope, carry, current, enter, region};
pub(crate) use scope::{adapter, dtype_of_all, enter_adapter, enter_region, in_code, with_current};
