//! Layers and functions with a backward pass and f32 inside, with candle's names and arguments.
//!
//! All are composed of candle's differentiable ops. Inputs may be f32, f16 or bf16; the result has the dtype of the input,
//! or for a layer the one that the plan gives.

mod embedding;
mod linear;
mod norm;
mod rope;
mod softmax;

pub use embedding::{Embedding, embedding};
pub use linear::{Linear, linear, linear_no_bias};
pub use norm::{LayerNorm, RmsNorm, layer_norm, layer_norm_no_bias, rms_norm};
pub use rope::{rope, rope_i};
pub use softmax::{log_softmax, softmax};

use candle_core::{DType, Result, Tensor};

use crate::dtype::is_castable;

/// Returns the tensor in the dtype of arithmetic: f32, or f64 for f64.
fn widen(x: &Tensor) -> Result<Tensor> {
    if is_castable(x.dtype()) { x.to_dtype(DType::F32) } else { Ok(x.clone()) }
}
