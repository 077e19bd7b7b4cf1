//! Softmax and its logarithm.

use candle_core::{Result, Tensor, shape::Dim};

use super::widen;

/// Returns `exp(x) / sum(exp(x))` along an axis, computed in f32, with a backward pass. Shape and dtype of the result are
/// those of `x`.
///
/// It takes the place of `candle_nn::ops::softmax_last_dim`, which cuts gradients, and of `candle_nn::ops::softmax`, which
/// sums in 16 bits: in bf16, 1000 equal numbers have weights that sum to 4.
///
/// # Errors
/// Those of candle.
pub fn softmax<D: Dim>(x: &Tensor, dim: D) -> Result<Tensor> {
    let dim = dim.to_index(x.shape(), "softmax")?;
    let exp = shifted(x, dim)?.exp()?;
    exp.broadcast_div(&exp.sum_keepdim(dim)?)?.to_dtype(x.dtype())
}

/// Returns `x - log(sum(exp(x)))` along an axis, computed in f32, with a backward pass. Shape and dtype of the result are
/// those of `x`.
///
/// # Errors
/// Those of candle.
pub fn log_softmax<D: Dim>(x: &Tensor, dim: D) -> Result<Tensor> {
    let dim = dim.to_index(x.shape(), "log-softmax")?;
    let shifted = shifted(x, dim)?;
    let sum = shifted.exp()?.sum_keepdim(dim)?;
    shifted.broadcast_sub(&sum.log()?)?.to_dtype(x.dtype())
}

/// Subtracts the largest number of each row, so that no `exp` overflows. It cancels, and needs no gradient.
fn shifted(x: &Tensor, dim: usize) -> Result<Tensor> {
    let x = widen(x)?;
    x.broadcast_sub(&x.max_keepdim(dim)?.detach())
}
