//! A table of vectors that sums its gradient in f32.

use candle_core::{Module, Result, Tensor};
use candle_nn::{Init, VarBuilder};

use super::widen;
use crate::{border::Border, dtype::cast};

/// A table of vectors, as candle's, that casts by its plan and sums the gradient of each row in f32.
///
/// candle adds that gradient for each use of a row in the dtype of the table. In bf16 a sum of ones ends at 256, in f16 at
/// 2048, so the rows of padding and of frequent words have gradients that are too small.
#[derive(Clone, Debug)]
pub struct Embedding {
    table: Tensor,
    border: Border,
}

impl Embedding {
    /// Returns the vectors, of shape (rows, size), in their planned dtype.
    pub fn embeddings(&self) -> &Tensor {
        &self.table
    }

    /// Returns the size of a vector.
    ///
    /// # Errors
    /// Those of candle.
    pub fn hidden_size(&self) -> Result<usize> {
        self.table.dim(1)
    }
}

impl Module for Embedding {
    /// Returns the vectors of the indices. Shapes: (..) to (.., size).
    fn forward(&self, indexes: &Tensor) -> Result<Tensor> {
        let shape = [indexes.dims(), &[self.table.dim(1)?]].concat();
        // The gradient of the f32 view is summed in f32.
        let rows = widen(&self.table)?.index_select(&indexes.flatten_all()?, 0)?;
        cast(&rows.to_dtype(self.table.dtype())?.reshape(shape)?, self.border.outward)
    }
}

/// Creates a table with the initial values of `candle_nn::embedding`.
///
/// # Errors
/// Those of the builder.
pub fn embedding(rows: usize, size: usize, vb: VarBuilder) -> Result<Embedding> {
    let border = Border::at::<Embedding>(&vb);
    let table = vb.get_with_hints((rows, size), "weight", Init::Randn { mean: 0., stdev: 1. })?;
    Ok(Embedding { table, border })
}
