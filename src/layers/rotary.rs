//! Rotary position embedding (Su et al. 2021).

use crate::{
    Tensor,
    cell::{Cell, Child, Forward},
    error::Result,
    options::options,
};

/// Rotary position embedding: rotates pairs of features of queries or keys by angles proportional to the position (Su
/// et al. 2021, "RoFormer: enhanced transformer with rotary position embedding"), by [`Tensor::rotary_embedding`].
///
/// `[..., length, features]` to the same shape and dtype; the features are those of one head, and their number is even.
/// The length is unlimited: angles are computed on demand, in f64, and the rotation is f32 in every region. Run it
/// through its slot with [`rotate`](Child::rotate) if positions do not begin at 0.
/// [`MultiheadAttentionSpec::rotary`](super::MultiheadAttentionSpec) adds one to an attention. In files:
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
#[options(of_cell)]
#[derive(Cell, Clone, Copy, Debug, PartialEq)]
#[cell(saved)]
pub struct RotaryEmbedding {
    /// Base of the angles `position * base^(-2i / features)`; larger for longer inputs.
    #[option(default = 10_000.0)]
    pub base: f64,
    /// `true` when adjacent features form a pair, as in the paper; otherwise features i and i + features / 2 do, as in
    /// the weights of Llama and related models.
    #[option(default = false)]
    pub interleaved: bool,
}

impl Forward for RotaryEmbedding {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.rotary_embedding(self.base, 0, self.interleaved)
    }
}

impl Child<RotaryEmbedding> {
    /// Rotates `x [..., length, features]`, whose first position is `offset`.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) unless there are two axes, the last of even length;
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a base that is not positive and finite.
    pub fn rotate(&self, x: &Tensor, offset: usize) -> Result<Tensor> {
        self.with(x, |cell, x| x.rotary_embedding(cell.base, offset, cell.interleaved))
    }
}
