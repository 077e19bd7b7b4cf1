//! A lookup table indexed by integers.

use serde::{Deserialize, Serialize};

use super::{
    init::{Init, Rng},
    spec::written_as_spec,
};
use crate::{Cell, Param, Tensor, cell::Forward, error::Result, options::options};

/// Options of an [`Embedding`].
#[options(of_cell)]
#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddingSpec {
    /// Number of rows of the table.
    pub vocab_size: usize,
    /// Length of a row.
    pub embedding_size: usize,
}

impl EmbeddingSpec {
    /// Builds the cell. Its table is normal with mean 0 and standard deviation 1, as in torch (MindSpore: 0.01).
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the table does not fit into memory.
    pub fn build(self, rng: &mut Rng) -> Result<Embedding> {
        let table = Init::Normal { std: 1.0 }.sample(&[self.vocab_size, self.embedding_size], rng)?;
        Ok(Embedding { weight: Param::new(table), spec: self })
    }
}

/// A lookup table indexed by integers: `i64 [...] -> [..., embedding_size]`.
///
/// In files: `{kind: Embedding, vocab_size: 1000, embedding_size: 64}`.
#[derive(Cell, Clone, Debug, Serialize, Deserialize)]
#[cell(saved)]
#[serde(try_from = "EmbeddingSpec", into = "EmbeddingSpec")]
pub struct Embedding {
    /// `[vocab_size, embedding_size]`.
    pub weight: Param,
    spec: EmbeddingSpec,
}

impl Embedding {
    /// Creates a table of this size; see [`EmbeddingSpec::build`] for the initial values.
    ///
    /// # Panics
    /// When the table does not fit into memory, as with `Vec`.
    pub fn new(vocab_size: usize, embedding_size: usize, rng: &mut Rng) -> Self {
        EmbeddingSpec::new(vocab_size, embedding_size).build(rng).expect("a table that fits into memory")
    }
}

written_as_spec!(Embedding, EmbeddingSpec);

impl Forward for Embedding {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.embedding(&self.weight.tensor())
    }
}
