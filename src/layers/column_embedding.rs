//! Lookup tables for the columns of a table.

use serde::Deserialize;

use super::{
    embedding::{Embedding, EmbeddingSpec},
    init::Rng,
    spec::written_as_spec,
};
use crate::{
    Cell, Child, Tensor,
    cell::Forward,
    error::{Error, Result},
    options::options,
};

/// Options of a [`ColumnEmbedding`].
#[options(of_cell)]
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnEmbeddingSpec {
    /// Number of rows of each table: the indices of a column, with 0.
    pub vocab_sizes: Vec<usize>,
    /// Length of a row of each table. By default, `min(600, round(1.6 n^0.56))` for a table of `n` rows, as in fastai.
    #[option(default)]
    pub embedding_sizes: Option<Vec<usize>>,
}

impl ColumnEmbeddingSpec {
    /// Builds the cell. Its tables are normal with mean 0 and standard deviation 1, as those of an [`Embedding`], but for
    /// the first row, which is 0: index 0 is for words that no training example has, so that the row is not trained.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) without tables, for another number of lengths than of tables, and for
    /// a table that is empty or does not fit into memory.
    pub fn build(self, rng: &mut Rng) -> Result<ColumnEmbedding> {
        let rows = &self.vocab_sizes;
        let usual = || rows.iter().map(|&rows| usual_size(rows)).collect();
        let sizes = self.embedding_sizes.clone().unwrap_or_else(usual);
        if rows.is_empty() {
            return Err(Error::shape("`vocab_sizes` is empty; it has a number for each column of indices"));
        }
        if sizes.len() != rows.len() {
            let (tables, lengths) = (rows.len(), sizes.len());
            return Err(Error::shape(format!(
                "{lengths} `embedding_sizes` for {tables} tables; expected one for each"
            )));
        }
        if let Some((rows, size)) = rows.iter().zip(&sizes).find(|(rows, size)| **rows == 0 || **size == 0) {
            return Err(Error::shape(format!("a table of {rows} rows of {size} numbers; allowed: at least 1 of each")));
        }
        let table = |(&rows, size)| {
            let table = EmbeddingSpec::new(rows, size).build(rng)?;
            let mut values = table.weight.value().to_vec::<f32>()?;
            values[..size].fill(0.0);
            table.weight.set(&Tensor::from_vec(values, &[rows, size])?)?;
            Ok(table.into())
        };
        let tables = rows.iter().zip(sizes).map(table).collect::<Result<_>>()?;
        Ok(ColumnEmbedding { tables, spec: self })
    }
}

/// Returns the usual length of the rows of a table. The rule of fastai: `emb_sz_rule` in its `tabular/model.py`.
fn usual_size(rows: usize) -> usize {
    ((1.6 * (rows as f64).powf(0.56)).round() as usize).clamp(1, 600)
}

/// Numbers and indices of a table, joined: each column of indices has a lookup table, whose rows follow the numbers.
///
/// Takes the numbers, `[n, m]`, and the indices, i64 `[n, columns]`, and returns `[n, m + the sum of embedding_sizes]`;
/// the indices alone, if there are no numbers. As the first cell of a [`Sequential`](crate::layers::Sequential), it takes
/// both inputs of the network.
///
/// Row 0 of each table is 0 before training. In files: `{kind: ColumnEmbedding, vocab_sizes: [4, 13], embedding_sizes: [2, 5]}`.
///
/// ```
/// use precast::prelude::*;
/// let rng = &mut Rng::seed(0);
/// let columns = ColumnEmbedding::new(&[4, 13], &[2, 5], rng);
/// let net = Child::of(sequential![columns, Dense::new(10, 1, rng)]);
/// let numbers = Tensor::ones(&[2, 3], DType::F32);
/// let indices = Tensor::from_vec(vec![0i64, 12, 3, 1], &[2, 2])?;
/// assert_eq!(net.call_many(&[numbers, indices])?[0].shape(), [2, 1]);
/// # Ok::<(), precast::Error>(())
/// ```
#[derive(Cell, Debug, Deserialize)]
#[cell(saved)]
#[serde(try_from = "ColumnEmbeddingSpec")]
pub struct ColumnEmbedding {
    /// A table for each column.
    pub tables: Vec<Child<Embedding>>,
    spec: ColumnEmbeddingSpec,
}

written_as_spec!(open slots: ColumnEmbedding, ColumnEmbeddingSpec);

impl ColumnEmbedding {
    /// Creates tables of these sizes; see [`ColumnEmbeddingSpec::build`] for the initial values.
    ///
    /// # Panics
    /// Without tables, for another number of lengths than of tables, and when a table does not fit into memory, as with
    /// `Vec`.
    pub fn new(vocab_sizes: &[usize], embedding_sizes: &[usize], rng: &mut Rng) -> Self {
        let spec = ColumnEmbeddingSpec::new(vocab_sizes.to_vec()).embedding_sizes(embedding_sizes.to_vec());
        spec.build(rng).expect("as many lengths as tables, and tables that fit into memory")
    }

    /// Returns the rows of the tables for some indices.
    fn rows(&self, indices: &Tensor) -> Result<Vec<Tensor>> {
        let columns = self.tables.len();
        if indices.rank() != 2 || indices.shape()[1] != columns {
            let shape = indices.shape();
            return Err(Error::shape(format!(
                "indices of shape {shape:?}; expected [n, {columns}], a column for each table"
            )));
        }
        let row = |(i, table): (usize, &Child<Embedding>)| {
            let rows = table.call(&indices.at(1, i)?);
            rows.map_err(|error| error.context(format_args!("column {} of {columns} of the indices", i + 1)))
        };
        self.tables.iter().enumerate().map(row).collect()
    }
}

impl Forward for ColumnEmbedding {
    fn forward(&self, indices: &Tensor) -> Result<Tensor> {
        Tensor::concat(&self.rows(indices)?.iter().collect::<Vec<_>>(), -1)
    }

    fn forward_many(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        match inputs {
            [indices] => Ok(vec![self.forward(indices)?]),
            [numbers, indices] => {
                let rows = self.rows(indices)?;
                let all: Vec<&Tensor> = std::iter::once(numbers).chain(&rows).collect();
                Ok(vec![Tensor::concat(&all, -1)?])
            }
            _ => Err(Error::shape(format!("takes numbers and indices, or indices alone; got {} inputs", inputs.len()))),
        }
    }
}
