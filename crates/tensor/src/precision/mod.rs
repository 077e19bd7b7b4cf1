//! The precision of the code being run: the stack of frames. The frames and the pure rule that turns one into casts
//! come from the package `precast-policy`.
//!
//! This layer knows dtypes and op names, but no tensors.

#[doc(inline)]
pub use precast_policy::precision::{Casts, Frame, OpRules, Treatment, resolve};

pub use crate::tensor::context::{
    AutocastState, Carried, Scope, all_in_f32, carry, current, enter, quantize_operands, region,
};
