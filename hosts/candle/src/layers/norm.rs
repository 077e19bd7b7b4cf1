//! Layer norm and RMS norm.

use candle_core::{D, Module, Result, Tensor};
use candle_nn::{Init, LayerNormConfig, VarBuilder};

use super::widen;
use crate::{border::Border, dtype::cast};

/// A layer norm with a backward pass: `(x - mean) / sqrt(variance + eps) * weight + bias` over the last axis, in f32.
#[derive(Clone, Debug)]
pub struct LayerNorm {
    weight: Tensor,
    bias: Option<Tensor>,
    remove_mean: bool,
    eps: f64,
    border: Border,
}

/// An RMS norm with a backward pass: `x / sqrt(mean of squares + eps) * weight` over the last axis, in f32.
#[derive(Clone, Debug)]
pub struct RmsNorm(LayerNorm);

impl LayerNorm {
    /// Creates a layer norm from its weight and bias, of shape (size).
    pub fn new(weight: Tensor, bias: Tensor, eps: f64) -> Self {
        LayerNorm { weight, bias: Some(bias), remove_mean: true, eps, border: Border::default() }
    }

    /// Creates a layer norm without a bias.
    pub fn new_no_bias(weight: Tensor, eps: f64) -> Self {
        LayerNorm { weight, bias: None, remove_mean: true, eps, border: Border::default() }
    }

    /// Returns the weight, in its planned dtype.
    pub fn weight(&self) -> &Tensor {
        &self.weight
    }

    /// Returns the bias, in its planned dtype.
    pub fn bias(&self) -> Option<&Tensor> {
        self.bias.as_ref()
    }

    /// Returns the number that is added to the variance.
    pub fn eps(&self) -> f64 {
        self.eps
    }
}

impl Module for LayerNorm {
    /// Normalizes the last axis. Shape: (.., size), kept.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let dtype = self.border.outward.unwrap_or(x.dtype());
        let x = widen(x)?;
        let x = if self.remove_mean { x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)? } else { x };
        let variance = x.sqr()?.mean_keepdim(D::Minus1)?;
        let y = x.broadcast_div(&(variance + self.eps)?.sqrt()?)?.broadcast_mul(&widen(&self.weight)?)?;
        let y = match &self.bias {
            Some(bias) => y.broadcast_add(&widen(bias)?)?,
            None => y,
        };
        cast(&y, Some(dtype))
    }
}

impl RmsNorm {
    /// Creates an RMS norm from its weight, of shape (size).
    pub fn new(weight: Tensor, eps: f64) -> Self {
        RmsNorm(LayerNorm { remove_mean: false, ..LayerNorm::new_no_bias(weight, eps) })
    }

    /// Returns the weight, in its planned dtype.
    pub fn weight(&self) -> &Tensor {
        self.0.weight()
    }

    /// Returns the number that is added to the mean of squares.
    pub fn eps(&self) -> f64 {
        self.0.eps()
    }
}

impl Module for RmsNorm {
    /// Normalizes the last axis. Shape: (.., size), kept.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.0.forward(x)
    }
}

/// Creates a layer norm of a size, from a number `eps` or candle's configuration, as `candle_nn::layer_norm`.
///
/// # Errors
/// Those of the builder.
pub fn layer_norm<C: Into<LayerNormConfig>>(size: usize, config: C, vb: VarBuilder) -> Result<LayerNorm> {
    norm::<LayerNorm>(size, config.into(), vb)
}

/// Creates a layer norm without a bias, as `candle_nn::layer_norm_no_bias`.
///
/// # Errors
/// Those of the builder.
pub fn layer_norm_no_bias(size: usize, eps: f64, vb: VarBuilder) -> Result<LayerNorm> {
    norm::<LayerNorm>(size, LayerNormConfig { eps, remove_mean: true, affine: false }, vb)
}

/// Creates an RMS norm, as `candle_nn::rms_norm`.
///
/// # Errors
/// Those of the builder.
pub fn rms_norm(size: usize, eps: f64, vb: VarBuilder) -> Result<RmsNorm> {
    norm::<RmsNorm>(size, LayerNormConfig { eps, remove_mean: false, affine: false }, vb).map(RmsNorm)
}

/// Reads the parameters, also under the names of old files of torch: `gamma` and `beta`.
fn norm<K>(size: usize, config: LayerNormConfig, vb: VarBuilder) -> Result<LayerNorm> {
    let LayerNormConfig { eps, remove_mean, affine } = config;
    let border = Border::at::<K>(&vb);
    let get = |names: [&str; 2], init| {
        let name = if !vb.contains_tensor(names[0]) && vb.contains_tensor(names[1]) { names[1] } else { names[0] };
        vb.get_with_hints(size, name, Init::Const(init))
    };
    let weight = get(["weight", "gamma"], 1.)?;
    let bias = if affine { Some(get(["bias", "beta"], 0.)?) } else { None };
    Ok(LayerNorm { weight, bias, remove_mean, eps, border })
}
