//! What precision the code being run now is in: the stack of frames. The frames and the pure rule that turns one into casts are
//! those of the package `precast-policy`.
//!
//! This floor knows dtypes and op names, never a tensor.

mod place;
mod scope;

pub(crate) use place::{enter_backward, enter_slot, enter_weight_grads, in_backward, slot, wide_weight_grads};
#[doc(inline)]
pub use precast_policy::precision::{Casts, Frame, OpRules, Treatment, resolve};
pub use scope::{AutocastState, Carried, Scope, carry, current, enter, region};
pub(crate) use scope::{adapter, dtype_of_all, enter_adapter, enter_region, in_code, with_current};
