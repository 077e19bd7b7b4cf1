//! What precision the code being run now is in: the stack of frames. The frames and the pure rule that turns one into casts are
//! those of the package `precast-policy`.
//!
//! This floor knows dtypes and op names, never a tensor.

#[doc(inline)]
pub use precast_policy::precision::{Casts, Frame, OpRules, Treatment, resolve};

pub use crate::tensor::context::{AutocastState, Carried, Scope, carry, current, enter, region};
pub(crate) use crate::tensor::context::{adapter, enter_region};
