//! Multi-head attention (Vaswani et al. 2017, section 3.2.2).

use serde::Deserialize;

use super::{dense::DenseSpec, init::Rng, rotary::RotaryEmbedding, spec::written_as_spec};
use crate::{
    Tensor,
    cell::{Cell, Child, Forward},
    error::{Error, Result},
    options::options,
};

/// Options of a [`MultiheadAttention`].
#[options(of_cell)]
#[derive(Clone, Debug, PartialEq)]
pub struct MultiheadAttentionSpec {
    /// Length of the last axis of queries, keys, values and result.
    pub embed_dim: usize,
    /// Number of heads, each attending to an equal part of the features.
    pub num_heads: usize,
    /// `true` when the four projections add a bias.
    #[option(default = true)]
    pub bias: bool,
    /// `true` when query i attends only to keys 0 to i.
    #[option(default = false)]
    pub causal: bool,
    /// Rotary position embedding of the queries and keys of each head.
    #[option(default)]
    pub rotary: Option<RotaryEmbedding>,
}

impl MultiheadAttentionSpec {
    /// Builds the cell. Its projections are initialised like `Dense` layers.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when the number of heads does not divide that of the features;
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the weights do not fit into memory.
    pub fn build(self, rng: &mut Rng) -> Result<MultiheadAttention> {
        self.check()?;
        self.make(rng)
    }

    fn check(&self) -> Result<()> {
        let (features, heads) = (self.embed_dim, self.num_heads);
        if heads == 0 || !features.is_multiple_of(heads) {
            return Err(Error::value(format!("{heads} heads do not divide {features} features into equal parts")));
        }
        if self.rotary.is_some() && !(features / heads).is_multiple_of(2) {
            let features = features / heads;
            return Err(Error::value(format!("a head has {features} features; rotary embedding takes an even number")));
        }
        Ok(())
    }

    fn make(self, rng: &mut Rng) -> Result<MultiheadAttention> {
        let features = self.embed_dim;
        let mut dense = || DenseSpec::new(features, features).bias(self.bias).build(rng).map(Child::of);
        Ok(MultiheadAttention {
            q_proj: dense()?,
            k_proj: dense()?,
            v_proj: dense()?,
            rotary: self.rotary.map(Child::new),
            out_proj: dense()?,
            spec: self,
        })
    }
}

/// Multi-head attention: projects queries, keys and values, attends with each head to its part of the features, and
/// projects the result.
///
/// Queries are `[..., l, embed_dim]`, keys and values `[..., s, embed_dim]`, the result `[..., l, embed_dim]`: batch
/// first. Each projection is a `Dense` layer, in a slot that takes any cell, such as a [`LoRA`](crate::layers::LoRA)
/// around that layer. Run it through its slot with [`attend`](Child::attend), or as `dyn Cell` with
/// [`Child::call_many`] on queries, keys, values and an optional mask. A single tensor attends to itself. In files:
/// `{kind: MultiheadAttention, embed_dim: 8, num_heads: 2}`, and `bias: false`, `causal: true`,
/// `rotary: {base: 10000}`.
///
/// ```
/// use precast::prelude::*;
/// let attention = Child::new(MultiheadAttention::new(8, 2, &mut Rng::seed(0)));
/// let (q, kv) = (Tensor::ones(&[4, 3, 8], DType::F32), Tensor::ones(&[4, 5, 8], DType::F32));
/// assert_eq!(attention.attend(&q, &kv, &kv, None)?.shape(), [4, 3, 8]);
/// # Ok::<(), precast::Error>(())
/// ```
#[derive(Cell, Debug, Deserialize)]
#[cell(saved)]
#[serde(try_from = "MultiheadAttentionSpec")]
pub struct MultiheadAttention {
    /// Projection of the queries.
    pub q_proj: Child,
    /// Projection of the keys.
    pub k_proj: Child,
    /// Projection of the values.
    pub v_proj: Child,
    /// Rotary embedding of the queries and keys of each head.
    pub rotary: Option<Child<RotaryEmbedding>>,
    /// Projection of the joined outputs of the heads.
    pub out_proj: Child,
    spec: MultiheadAttentionSpec,
}

written_as_spec!(open slots: MultiheadAttention, MultiheadAttentionSpec);

impl MultiheadAttention {
    /// Creates a layer with biases that is not causal; see [`MultiheadAttentionSpec::build`] for the initial values. A
    /// number of heads that does not divide that of the features is reported by the first call.
    ///
    /// # Panics
    /// When the weights do not fit into memory, as with `Vec`.
    pub fn new(embed_dim: usize, num_heads: usize, rng: &mut Rng) -> Self {
        MultiheadAttentionSpec::new(embed_dim, num_heads).make(rng).expect("weights that fit into memory")
    }

    fn attend(&self, q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        self.spec.check()?;
        let rotated = |x: Tensor| self.rotary.as_ref().map_or(Ok(x.clone()), |rotary| rotary.call(&x));
        let q = rotated(self.heads(&self.q_proj, q)?)?;
        let k = rotated(self.heads(&self.k_proj, k)?)?;
        let v = self.heads(&self.v_proj, v)?;
        let found = q.scaled_dot_product_attention(&k, &v, mask, self.spec.causal, None)?;
        // `[..., heads, l, features per head]` becomes `[..., l, features]`.
        let found = found.transpose(-3, -2)?;
        let joined = found.flatten(found.rank() - 2)?;
        self.out_proj.call(&joined)
    }

    /// Projects `[..., l, features]` and splits it into `[..., heads, l, features per head]`.
    fn heads(&self, projection: &Child, x: &Tensor) -> Result<Tensor> {
        let features = self.spec.embed_dim;
        if x.rank() < 2 || x.shape().last() != Some(&features) {
            return Err(Error::shape(format!("attention takes [..., length, {features}], got {:?}", x.shape())));
        }
        let mut shape = x.shape().to_vec();
        shape.pop();
        shape.extend([self.spec.num_heads, features / self.spec.num_heads]);
        projection.call(x)?.reshape(&shape)?.transpose(-3, -2)
    }
}

impl Forward for MultiheadAttention {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.attend(x, x, x, None)
    }

    fn forward_many(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let result = match inputs {
            [x] => self.forward(x),
            [q, k, v] => self.attend(q, k, v, None),
            [q, k, v, mask] => self.attend(q, k, v, Some(mask)),
            _ => {
                let wanted = "one tensor, or queries, keys, values and perhaps a mask";
                Err(Error::shape(format!("a MultiheadAttention takes {wanted}, got {} tensors", inputs.len())))
            }
        };
        Ok(vec![result?])
    }
}

impl Child<MultiheadAttention> {
    /// Computes attention: `q [..., l, embed_dim]` with `k` and `v [..., s, embed_dim]` gives `[..., l, embed_dim]`.
    ///
    /// The mask is broadcast to `[..., num_heads, l, s]`; a padding mask is `[batch, 1, 1, s]`. A boolean mask is true
    /// for keys that a query attends to (torch's `key_padding_mask` is true for keys it ignores); a floating one is
    /// added to the scores.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) for incompatible shapes.
    pub fn attend(&self, q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        self.with((q, k, v, mask), |cell, (q, k, v, mask)| cell.attend(&q, &k, &v, mask.as_ref()))
    }
}
