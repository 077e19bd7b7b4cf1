//! Transformer layers (Vaswani et al. 2017, section 3.1) with torch's names.

use serde::Deserialize;

use super::{
    attention::{MultiheadAttention, MultiheadAttentionSpec},
    dense::DenseSpec,
    dropout::{Dropout, DropoutSpec},
    init::Rng,
    norm::{LayerNorm, LayerNormSpec},
    recurrent::wrong_inputs,
    rotary::RotaryEmbedding,
    spec::written_as_spec,
};
use crate::{
    Tensor,
    cell::{Cell, Child, Forward},
    error::Result,
    options::{Options, options},
};

/// The activation between the two `Dense` layers of a transformer layer.
#[options]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransformerActivation {
    /// `max(x, 0)`.
    #[default]
    Relu,
    /// `x * Phi(x)` with the cumulative distribution function Phi of the normal distribution.
    Gelu,
}

/// Options of a transformer layer: an encoder's ([`TransformerEncoderLayerSpec`]) or a decoder's
/// ([`TransformerDecoderLayerSpec`]). The names and defaults are torch's.
#[options(called = "TransformerEncoderLayer", of_cell)]
#[derive(Clone, Debug, PartialEq)]
pub struct TransformerLayerSpec<const DECODER: bool> {
    /// Length of the last axis of input and output.
    pub d_model: usize,
    /// Number of attention heads, each attending to an equal part of the features.
    pub nhead: usize,
    /// Number of features between the two `Dense` layers.
    #[option(default = 2048)]
    pub dim_feedforward: usize,
    /// The probability of zeroing an element in training: between the two `Dense` layers, and in the terms added to the
    /// input.
    #[option(default = 0.1, at_least = 0, at_most = 1)]
    pub dropout: f64,
    /// The activation between the two `Dense` layers.
    #[option(default = TransformerActivation::Relu)]
    pub activation: TransformerActivation,
    /// Number added to the variance in the norms.
    #[option(default = 1e-5, at_least = 0)]
    pub layer_norm_eps: f64,
    /// `true` when each part of the layer normalises its input (pre-norm) instead of the sum after it (post-norm).
    #[option(default = false)]
    pub norm_first: bool,
    /// `true` when projections, `Dense` layers and norms add a bias.
    #[option(default = true)]
    pub bias: bool,
    /// `true` when position i of the input attends only to its positions 0 to i.
    #[option(default = false)]
    pub causal: bool,
    /// Rotary position embedding of the self-attention's queries and keys. torch has no such option.
    #[option(default)]
    pub rotary: Option<RotaryEmbedding>,
}

/// Options of a [`TransformerEncoderLayer`].
pub type TransformerEncoderLayerSpec = TransformerLayerSpec<false>;
/// Options of a [`TransformerDecoderLayer`].
pub type TransformerDecoderLayerSpec = TransformerLayerSpec<true>;

impl<const DECODER: bool> TransformerLayerSpec<DECODER> {
    fn attention(&self) -> MultiheadAttentionSpec {
        MultiheadAttentionSpec::new(self.d_model, self.nhead).bias(self.bias)
    }

    fn self_attention(&self) -> MultiheadAttentionSpec {
        MultiheadAttentionSpec { causal: self.causal, rotary: self.rotary, ..self.attention() }
    }

    pub(super) fn norm(&self) -> Result<Child<LayerNorm>> {
        LayerNormSpec::new([self.d_model]).eps(self.layer_norm_eps).bias(self.bias).build().map(Child::new)
    }

    fn dense(&self, inputs: usize, outputs: usize, rng: &mut Rng) -> Result<Child> {
        DenseSpec::new(inputs, outputs).bias(self.bias).build(rng).map(Child::of)
    }

    fn dropout_cell(&self, rng: &mut Rng) -> Result<Child<Dropout>> {
        DropoutSpec::new(self.dropout).build(rng).map(Child::new)
    }

    /// Computes `x + inner(x)`, with the norm before or after.
    fn residual(
        &self,
        x: &Tensor,
        norm: &Child<LayerNorm>,
        dropout: &Child<Dropout>,
        inner: impl FnOnce(&Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        if self.norm_first {
            return x.add(&dropout.call(&inner(&norm.call(x)?)?)?);
        }
        norm.call(&x.add(&dropout.call(&inner(x)?)?)?)
    }

    fn feed_forward(&self, x: &Tensor, layers: [&Child; 2], dropout: &Child<Dropout>) -> Result<Tensor> {
        let x = layers[0].call(x)?;
        let x = match self.activation {
            TransformerActivation::Relu => x.relu()?,
            TransformerActivation::Gelu => x.gelu()?,
        };
        layers[1].call(&dropout.call(&x)?)
    }
}

impl TransformerLayerSpec<false> {
    /// Builds the cell. Its parts are initialised like [`MultiheadAttention`], `Dense` and [`LayerNorm`].
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when the heads do not divide the features, or the dropout or `eps`
    /// is out of range; [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the weights do not fit into memory.
    pub fn build(self, rng: &mut Rng) -> Result<TransformerEncoderLayer> {
        self.check()?;
        Ok(TransformerEncoderLayer {
            self_attn: self.self_attention().build(rng).map(Child::new)?,
            linear1: self.dense(self.d_model, self.dim_feedforward, rng)?,
            dropout: self.dropout_cell(rng)?,
            linear2: self.dense(self.dim_feedforward, self.d_model, rng)?,
            norm1: self.norm()?,
            norm2: self.norm()?,
            dropout1: self.dropout_cell(rng)?,
            dropout2: self.dropout_cell(rng)?,
            spec: self,
        })
    }
}

impl TransformerLayerSpec<true> {
    /// Builds the cell. Its parts are initialised like [`MultiheadAttention`], `Dense` and [`LayerNorm`].
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when the heads do not divide the features, or the dropout or `eps`
    /// is out of range; [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the weights do not fit into memory.
    pub fn build(self, rng: &mut Rng) -> Result<TransformerDecoderLayer> {
        self.check()?;
        Ok(TransformerDecoderLayer {
            self_attn: self.self_attention().build(rng).map(Child::new)?,
            multihead_attn: self.attention().build(rng).map(Child::new)?,
            linear1: self.dense(self.d_model, self.dim_feedforward, rng)?,
            dropout: self.dropout_cell(rng)?,
            linear2: self.dense(self.dim_feedforward, self.d_model, rng)?,
            norm1: self.norm()?,
            norm2: self.norm()?,
            norm3: self.norm()?,
            dropout1: self.dropout_cell(rng)?,
            dropout2: self.dropout_cell(rng)?,
            dropout3: self.dropout_cell(rng)?,
            spec: self,
        })
    }
}

/// Self-attention and two `Dense` layers, each added to its input and normalised: torch's
/// `nn.TransformerEncoderLayer` with `batch_first`.
///
/// `[..., length, d_model]` to the same shape. Run it through its slot with [`encode`](Child::encode), or as `dyn Cell`
/// with [`Child::call_many`] on the input and an optional mask. torch also applies dropout to the attention weights in
/// training; here `dropout` applies in the other three places. In files:
/// `{kind: TransformerEncoderLayer, d_model: 512, nhead: 8}`, and `dim_feedforward: 2048`, `dropout: 0.1`,
/// `activation: gelu`, `layer_norm_eps`, `norm_first: true`, `bias: false`, `causal: true`, `rotary: {base: 10000}`.
///
/// ```
/// use precast::prelude::*;
/// let rng = &mut Rng::seed(0);
/// let layer = TransformerEncoderLayerSpec::new(8, 2).dim_feedforward(16).norm_first(true).build(rng)?;
/// let layer = Child::new(layer);
/// let x = Tensor::randn(&[4, 3, 8], rng)?;
/// // The last position of each sample is padding: no query sees it. A mask stretches to [batch, heads, length, length].
/// let seen = Tensor::from_vec(vec![true, true, false], &[1, 1, 1, 3])?;
/// assert_eq!(layer.encode(&x, Some(&seen))?.shape(), [4, 3, 8]);
/// # Ok::<(), precast::Error>(())
/// ```
#[derive(Cell, Debug, Deserialize)]
#[cell(saved)]
#[serde(try_from = "TransformerEncoderLayerSpec")]
pub struct TransformerEncoderLayer {
    /// Attention of the input to itself.
    pub self_attn: Child<MultiheadAttention>,
    /// Projection to `dim_feedforward` features.
    pub linear1: Child,
    /// Dropout after the activation.
    pub dropout: Child<Dropout>,
    /// Projection back to `d_model` features.
    pub linear2: Child,
    /// Norm of the attention.
    pub norm1: Child<LayerNorm>,
    /// Norm of the `Dense` layers.
    pub norm2: Child<LayerNorm>,
    /// Dropout after the attention.
    pub dropout1: Child<Dropout>,
    /// Dropout after the `Dense` layers.
    pub dropout2: Child<Dropout>,
    spec: TransformerEncoderLayerSpec,
}

written_as_spec!(open slots: TransformerEncoderLayer, TransformerEncoderLayerSpec);

impl TransformerEncoderLayer {
    fn encode(&self, x: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        let spec = &self.spec;
        let x = spec.residual(x, &self.norm1, &self.dropout1, |x| self.self_attn.attend(x, x, x, mask))?;
        spec.residual(&x, &self.norm2, &self.dropout2, |x| {
            spec.feed_forward(x, [&self.linear1, &self.linear2], &self.dropout)
        })
    }
}

/// Splits the inputs of an encoder called as `dyn Cell`: its input, and an optional mask.
pub(super) fn encoder_inputs<'a>(kind: &str, inputs: &'a [Tensor]) -> Result<(&'a Tensor, Option<&'a Tensor>)> {
    match inputs {
        [x] => Ok((x, None)),
        [x, mask] => Ok((x, Some(mask))),
        _ => Err(wrong_inputs(kind, "x, or x and a mask", inputs.len())),
    }
}

impl Forward for TransformerEncoderLayer {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.encode(x, None)
    }

    fn forward_many(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let (x, mask) = encoder_inputs("a TransformerEncoderLayer", inputs)?;
        Ok(vec![self.encode(x, mask)?])
    }
}

impl Child<TransformerEncoderLayer> {
    /// Encodes `x [..., length, d_model]` to the same shape. The mask is that of [`attend`](Child::attend), broadcast
    /// to `[..., nhead, length, length]`.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) for incompatible shapes.
    pub fn encode(&self, x: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        self.with((x, mask), |cell, (x, mask)| cell.encode(&x, mask.as_ref()))
    }
}

/// Self-attention, attention to the output of an encoder, and two `Dense` layers, each added to its input and
/// normalised: torch's `nn.TransformerDecoderLayer` with `batch_first`.
///
/// The target is `[..., length, d_model]`, the memory `[..., memory length, d_model]`; the result has the shape of the
/// target. Run it through its slot with [`decode`](Child::decode), or as `dyn Cell` with [`Child::call_many`] on the
/// target, the memory, and an optional mask of each attention. `causal` applies only to the self-attention. Dropout is
/// as in [`TransformerEncoderLayer`]. In files: `{kind: TransformerDecoderLayer, d_model: 512, nhead: 8}`, with the
/// same options.
///
/// ```
/// use precast::prelude::*;
/// let rng = &mut Rng::seed(0);
/// let spec = TransformerDecoderLayerSpec::new(8, 2).dim_feedforward(16).causal(true);
/// let layer = Child::new(spec.build(rng)?);
/// let (target, memory) = (Tensor::randn(&[4, 3, 8], rng)?, Tensor::randn(&[4, 5, 8], rng)?);
/// assert_eq!(layer.decode(&target, &memory, None, None)?.shape(), [4, 3, 8]);
/// # Ok::<(), precast::Error>(())
/// ```
#[derive(Cell, Debug, Deserialize)]
#[cell(saved)]
#[serde(try_from = "TransformerDecoderLayerSpec")]
pub struct TransformerDecoderLayer {
    /// Attention of the target to itself.
    pub self_attn: Child<MultiheadAttention>,
    /// Attention of the target to the memory.
    pub multihead_attn: Child<MultiheadAttention>,
    /// Projection to `dim_feedforward` features.
    pub linear1: Child,
    /// Dropout after the activation.
    pub dropout: Child<Dropout>,
    /// Projection back to `d_model` features.
    pub linear2: Child,
    /// Norm of the self-attention.
    pub norm1: Child<LayerNorm>,
    /// Norm of the attention to the memory.
    pub norm2: Child<LayerNorm>,
    /// Norm of the `Dense` layers.
    pub norm3: Child<LayerNorm>,
    /// Dropout after the self-attention.
    pub dropout1: Child<Dropout>,
    /// Dropout after the attention to the memory.
    pub dropout2: Child<Dropout>,
    /// Dropout after the `Dense` layers.
    pub dropout3: Child<Dropout>,
    spec: TransformerDecoderLayerSpec,
}

written_as_spec!(open slots: TransformerDecoderLayer, TransformerDecoderLayerSpec);

impl TransformerDecoderLayer {
    fn decode(&self, x: &Tensor, memory: &Tensor, masks: [Option<&Tensor>; 2]) -> Result<Tensor> {
        let spec = &self.spec;
        let x = spec.residual(x, &self.norm1, &self.dropout1, |x| self.self_attn.attend(x, x, x, masks[0]))?;
        let x = spec
            .residual(&x, &self.norm2, &self.dropout2, |x| self.multihead_attn.attend(x, memory, memory, masks[1]))?;
        spec.residual(&x, &self.norm3, &self.dropout3, |x| {
            spec.feed_forward(x, [&self.linear1, &self.linear2], &self.dropout)
        })
    }
}

/// Splits the inputs of a decoder called as `dyn Cell`: the target, the memory, and an optional mask of each attention.
pub(super) fn decoder_inputs<'a>(
    kind: &str,
    inputs: &'a [Tensor],
) -> Result<(&'a Tensor, &'a Tensor, [Option<&'a Tensor>; 2])> {
    match inputs {
        [target, memory, masks @ ..] if masks.len() <= 2 => Ok((target, memory, [masks.first(), masks.get(1)])),
        _ => Err(wrong_inputs(kind, "the target, the memory, and perhaps a mask of each", inputs.len())),
    }
}

impl Forward for TransformerDecoderLayer {
    fn forward_many(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let (target, memory, masks) = decoder_inputs("a TransformerDecoderLayer", inputs)?;
        Ok(vec![self.decode(target, memory, masks)?])
    }
}

impl Child<TransformerDecoderLayer> {
    /// Decodes `target [..., length, d_model]` with `memory [..., memory length, d_model]` to the shape of the target.
    /// The masks are those of [`attend`](Child::attend): for the self-attention `[..., nhead, length, length]`, and for
    /// the attention to the memory `[..., nhead, length, memory length]`.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) for incompatible shapes.
    pub fn decode(
        &self,
        target: &Tensor,
        memory: &Tensor,
        target_mask: Option<&Tensor>,
        memory_mask: Option<&Tensor>,
    ) -> Result<Tensor> {
        self.with((target, memory, target_mask, memory_mask), |cell, (target, memory, target_mask, memory_mask)| {
            cell.decode(&target, &memory, [target_mask.as_ref(), memory_mask.as_ref()])
        })
    }
}
