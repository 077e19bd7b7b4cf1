#![doc = include_str!("../README.md")]
#![deny(missing_docs)]
#![warn(missing_debug_implementations)]
#![forbid(unsafe_code)]

mod amp;
mod border;
mod device;
mod dtype;
mod error;
mod files;
mod grads;
mod layers;
mod learned;
mod network;
mod planning;
mod step;

pub use amp::Amp;
pub use error::{Error, Result};
pub use grads::{Grads, ScaledGrads};
pub use layers::{
    Embedding, LayerNorm, Linear, RmsNorm, embedding, layer_norm, layer_norm_no_bias, linear, linear_no_bias,
    log_softmax, rms_norm, rope, rope_i, softmax,
};
pub use network::Network;
pub use precast_policy::{
    self, ErrorKind, Plan, Policy,
    scale::{Cause, Outcome, ScaleMachine},
};

/// Runs the examples of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/candle.md")]
struct Guide;
