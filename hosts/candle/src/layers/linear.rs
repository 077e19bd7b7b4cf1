//! A dense layer that sums the gradient of its bias, and products with vectors, in f32.

use candle_core::{DType, Module, Result, Tensor};
use candle_nn::{Init, VarBuilder};

use super::widen;
use crate::{border::Border, dtype::cast};

/// A dense layer, as candle's, that casts by its plan, and sums the gradient of its bias and f16 products with vectors in f32.
///
/// candle sums that gradient over the batch in the dtype of the output. In bf16 a sum of ones ends at 256, so large batches
/// train biases with gradients that are too small. Its f16 products on a CPU are sums in f32, but for those with a vector,
/// such as the gradient of a layer with one output.
#[derive(Clone, Debug)]
pub struct Linear {
    inner: candle_nn::Linear,
    bias: Option<Tensor>,
    border: Border,
}

impl Linear {
    /// Returns the weight, of shape (outputs, inputs), in its planned dtype.
    pub fn weight(&self) -> &Tensor {
        self.inner.weight()
    }

    /// Returns the bias, in its planned dtype.
    pub fn bias(&self) -> Option<&Tensor> {
        self.bias.as_ref()
    }
}

impl Module for Linear {
    /// Returns `x * weight^T + bias`. Shapes: (.., inputs) to (.., outputs).
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = cast(x, self.border.inward)?;
        let weight = self.inner.weight();
        let sizes = [x.elem_count() / weight.dim(1)?.max(1), weight.dim(0)?, weight.dim(1)?];
        let y = match x.dtype() == DType::F16 && x.device().is_cpu() && sizes.contains(&1) {
            true => candle_nn::Linear::new(widen(weight)?, None).forward(&widen(&x)?)?.to_dtype(x.dtype())?,
            false => self.inner.forward(&x)?,
        };
        let y = match &self.bias {
            // The gradient of the f32 view is summed in f32.
            Some(bias) => (&y + widen(bias)?.broadcast_as(y.shape())?.to_dtype(y.dtype())?)?,
            None => y,
        };
        cast(&y, self.border.outward)
    }
}

/// Creates a dense layer with a bias, with the initial values of `candle_nn::linear`.
///
/// # Errors
/// Those of the builder.
pub fn linear(in_dim: usize, out_dim: usize, vb: VarBuilder) -> Result<Linear> {
    let bound = 1. / (in_dim as f64).sqrt();
    let init = Init::Uniform { lo: -bound, up: bound };
    let layer = linear_no_bias(in_dim, out_dim, vb.clone())?;
    Ok(Linear { bias: Some(vb.get_with_hints(out_dim, "bias", init)?), ..layer })
}

/// Creates a dense layer without a bias, with the initial values of `candle_nn::linear_no_bias`.
///
/// # Errors
/// Those of the builder.
pub fn linear_no_bias(in_dim: usize, out_dim: usize, vb: VarBuilder) -> Result<Linear> {
    let border = Border::at::<Linear>(&vb);
    Ok(Linear { inner: candle_nn::linear_no_bias(in_dim, out_dim, vb)?, bias: None, border })
}
