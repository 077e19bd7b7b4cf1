//! Rotary position embedding (Su et al. 2021).

use serde::{Deserialize, Serialize};

use crate::{
    Tensor,
    cell::{Cell, Child, Forward},
    error::Result,
};

/// Rotates pairs of features of queries or keys by angles that grow with the position (Su et al. 2021, "RoFormer:
/// enhanced transformer with rotary position embedding"), by [`Tensor::rotary_embedding`].
///
/// `[..., length, features]` to the same shape and dtype; the features are those of one head, and their number is even.
/// There is no largest length: angles are computed when they are needed, in f64, and the rotation is f32 in every
/// region. Run it through its slot with [`rotate`](Child::rotate) where positions do not begin at 0.
/// [`MultiheadAttentionSpec::rotary`](super::MultiheadAttentionSpec) puts one into an attention. In files:
/// `{kind: RotaryEmbedding}`, and `base: 500000`, `interleaved: true`.
///
/// ```
/// use precast::prelude::*;
/// let rotary = Child::new(RotaryEmbedding::default());
/// let keys = Tensor::randn(&[2, 8, 5, 64], &mut Rng::seed(0))?;    // [batch, heads, length, features]
/// let (all, later) = (rotary.call(&keys)?, rotary.rotate(&keys.slice(2, 3..5)?, 3)?);
/// assert_eq!(all.slice(2, 3..5)?.to_f64(), later.to_f64());        // the positions 3 and 4
/// # Ok::<(), precast::Error>(())
/// ```
#[derive(Cell, Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cell(saved)]
#[serde(default, deny_unknown_fields)]
pub struct RotaryEmbedding {
    /// Of the angles `position * base^(-2i / features)`: by default 10000. A larger one is for longer inputs.
    pub base: f64,
    /// Whether a pair are neighbours, as in the paper, and not the features i and i + features / 2, as by default and
    /// in the weights of Llama and its kin.
    pub interleaved: bool,
}

impl Default for RotaryEmbedding {
    fn default() -> Self {
        RotaryEmbedding { base: 10_000.0, interleaved: false }
    }
}

impl Forward for RotaryEmbedding {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.rotary_embedding(self.base, 0, self.interleaved)
    }
}

impl Child<RotaryEmbedding> {
    /// `x [..., length, features]` at the positions from `offset` on.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) unless there are two axes, the last of even length,
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a base that is not positive and finite.
    pub fn rotate(&self, x: &Tensor, offset: usize) -> Result<Tensor> {
        self.with(x, |cell, x| x.rotary_embedding(cell.base, offset, cell.interleaved))
    }
}
