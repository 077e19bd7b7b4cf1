//! Stacks of transformer layers with torch's names.

use serde::Deserialize;

use super::{
    init::Rng,
    norm::LayerNorm,
    spec::written_as_spec,
    transformer::{
        TransformerDecoderLayer, TransformerEncoderLayer, TransformerLayerSpec, decoder_inputs, encoder_inputs,
    },
};
use crate::{
    Tensor,
    cell::{Cell, Child, Forward},
    error::Result,
    options::{Options, options},
};

/// Options of a stack of transformer layers: an encoder ([`TransformerEncoderSpec`]) or a decoder
/// ([`TransformerDecoderSpec`]).
#[options(of_cell)]
#[derive(Clone, Debug, PartialEq)]
pub struct TransformerSpec<const DECODER: bool> {
    /// Options of each layer.
    pub layer: TransformerLayerSpec<DECODER>,
    /// Number of layers, each reading the output of the previous one.
    // The bound keeps a few words in a file from exhausting memory.
    #[option(at_least = 1, at_most = 4096)]
    pub num_layers: usize,
    /// `true` when the output of the last layer is normalised, as recommended for pre-norm layers.
    #[option(default = false)]
    pub norm: bool,
}

/// Options of a [`TransformerEncoder`].
pub type TransformerEncoderSpec = TransformerSpec<false>;
/// Options of a [`TransformerDecoder`].
pub type TransformerDecoderSpec = TransformerSpec<true>;

impl<const DECODER: bool> TransformerSpec<DECODER> {
    fn layers<L: Cell>(
        &self,
        mut layer: impl FnMut(TransformerLayerSpec<DECODER>) -> Result<L>,
    ) -> Result<Vec<Child<L>>> {
        self.check()?;
        (0..self.num_layers).map(|_| layer(self.layer.clone()).map(Child::new)).collect()
    }

    fn last_norm(&self) -> Result<Option<Child<LayerNorm>>> {
        self.norm.then(|| self.layer.norm()).transpose()
    }
}

impl TransformerSpec<false> {
    /// Builds the cell. Each layer draws its own initial values.
    ///
    /// # Errors
    /// Those of [`TransformerEncoderLayerSpec::build`](super::TransformerEncoderLayerSpec::build), and [`ErrorKind::Value`](crate::ErrorKind::Value) for a number
    /// of layers outside 1 to 4096.
    pub fn build(self, rng: &mut Rng) -> Result<TransformerEncoder> {
        Ok(TransformerEncoder { layers: self.layers(|layer| layer.build(rng))?, norm: self.last_norm()?, spec: self })
    }
}

impl TransformerSpec<true> {
    /// Builds the cell. Each layer draws its own initial values.
    ///
    /// # Errors
    /// Those of [`TransformerDecoderLayerSpec::build`](super::TransformerDecoderLayerSpec::build), and [`ErrorKind::Value`](crate::ErrorKind::Value) for a number
    /// of layers outside 1 to 4096.
    pub fn build(self, rng: &mut Rng) -> Result<TransformerDecoder> {
        Ok(TransformerDecoder { layers: self.layers(|layer| layer.build(rng))?, norm: self.last_norm()?, spec: self })
    }
}

/// A stack of [`TransformerEncoderLayer`]s with an optional final norm: torch's `nn.TransformerEncoder`.
///
/// `[..., length, d_model]` to the same shape, with [`encode`](Child::encode) as for one layer; the mask applies to
/// every layer. The paths are torch's: `layers.0.self_attn`, `norm`. In files:
/// `{kind: TransformerEncoder, layer: {d_model: 512, nhead: 8}, num_layers: 6}`, and `norm: true`.
///
/// ```
/// use precast::prelude::*;
/// let rng = &mut Rng::seed(0);
/// let layer = TransformerEncoderLayerSpec::new(8, 2).dim_feedforward(16).norm_first(true);
/// let encoder = Child::new(TransformerEncoderSpec::new(layer, 2).norm(true).build(rng)?);
/// assert_eq!(encoder.encode(&Tensor::randn(&[4, 3, 8], rng)?, None)?.shape(), [4, 3, 8]);
/// # Ok::<(), precast::Error>(())
/// ```
#[derive(Cell, Debug, Deserialize)]
#[cell(saved)]
#[serde(try_from = "TransformerEncoderSpec")]
pub struct TransformerEncoder {
    /// The layers, from first to last.
    pub layers: Vec<Child<TransformerEncoderLayer>>,
    /// Norm of the output.
    pub norm: Option<Child<LayerNorm>>,
    spec: TransformerEncoderSpec,
}

written_as_spec!(open slots: TransformerEncoder, TransformerEncoderSpec);

impl TransformerEncoder {
    fn encode(&self, x: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        let x = self.layers.iter().try_fold(x.clone(), |x, layer| layer.encode(&x, mask))?;
        self.norm.as_ref().map_or(Ok(x.clone()), |norm| norm.call(&x))
    }
}

impl Forward for TransformerEncoder {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.encode(x, None)
    }

    fn forward_many(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let (x, mask) = encoder_inputs("a TransformerEncoder", inputs)?;
        Ok(vec![self.encode(x, mask)?])
    }
}

impl Child<TransformerEncoder> {
    /// Encodes with each layer in turn, as `encode` of a [`TransformerEncoderLayer`]; the mask applies to every layer.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) for incompatible shapes.
    pub fn encode(&self, x: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        self.with((x, mask), |cell, (x, mask)| cell.encode(&x, mask.as_ref()))
    }
}

/// A stack of [`TransformerDecoderLayer`]s with an optional final norm: torch's `nn.TransformerDecoder`.
///
/// The target passes through all layers, each reading the same memory; see [`TransformerDecoderLayer`] for
/// shapes and masks. The paths are torch's: `layers.0.multihead_attn`, `norm`. In files:
/// `{kind: TransformerDecoder, layer: {d_model: 512, nhead: 8}, num_layers: 6}`, and `norm: true`.
///
/// ```
/// use precast::prelude::*;
/// let rng = &mut Rng::seed(0);
/// let layer = TransformerDecoderLayerSpec::new(8, 2).dim_feedforward(16).causal(true);
/// let decoder = Child::new(TransformerDecoderSpec::new(layer, 2).build(rng)?);
/// let (target, memory) = (Tensor::randn(&[4, 3, 8], rng)?, Tensor::randn(&[4, 5, 8], rng)?);
/// assert_eq!(decoder.decode(&target, &memory, None, None)?.shape(), [4, 3, 8]);
/// # Ok::<(), precast::Error>(())
/// ```
#[derive(Cell, Debug, Deserialize)]
#[cell(saved)]
#[serde(try_from = "TransformerDecoderSpec")]
pub struct TransformerDecoder {
    /// The layers, from first to last.
    pub layers: Vec<Child<TransformerDecoderLayer>>,
    /// Norm of the output.
    pub norm: Option<Child<LayerNorm>>,
    spec: TransformerDecoderSpec,
}

written_as_spec!(open slots: TransformerDecoder, TransformerDecoderSpec);

impl TransformerDecoder {
    fn decode(&self, target: &Tensor, memory: &Tensor, masks: [Option<&Tensor>; 2]) -> Result<Tensor> {
        let one = |x: Tensor, layer: &Child<TransformerDecoderLayer>| layer.decode(&x, memory, masks[0], masks[1]);
        let x = self.layers.iter().try_fold(target.clone(), one)?;
        self.norm.as_ref().map_or(Ok(x.clone()), |norm| norm.call(&x))
    }
}

impl Forward for TransformerDecoder {
    fn forward_many(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let (target, memory, masks) = decoder_inputs("a TransformerDecoder", inputs)?;
        Ok(vec![self.decode(target, memory, masks)?])
    }
}

impl Child<TransformerDecoder> {
    /// Decodes with each layer in turn, as `decode` of a [`TransformerDecoderLayer`]; memory and masks apply to every
    /// layer.
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
