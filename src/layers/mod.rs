//! The cells: layers, containers, activations, and the initialisation of their parameters.
//!
//! A cell with options has a spec: plain data with chainable setters in code, which is part of architecture files and
//! builds the cell:
//!
//! ```
//! use precast::prelude::*;
//! let mut rng = Rng::seed(0);
//! let common = Dense::new(64, 10, &mut rng);
//! let without_bias = DenseSpec::new(64, 10).bias(false).build(&mut rng)?;
//! let strided = Conv2dSpec::new(1, 6, 5).stride(2).padding((2, 1)).build(&mut rng)?;
//! let norm = GroupNormSpec::new(2, 6).eps(1e-3).build()?; // nothing random
//! # Ok::<(), precast::Error>(())
//! ```
//!
//! `new` returns the cell; an invalid option is reported by its first call. `build` of a spec checks options at once.

mod axes;
mod init;
mod spec;

mod activation;
mod attention;
mod batch_norm;
mod column_embedding;
mod container;
mod conv;
mod dense;
mod dropout;
mod embedding;
mod lora;
mod norm;
mod pool;
mod prelu;
mod recurrent;
mod rotary;
mod sequence;
mod transformer;
mod transformer_stack;

pub use crate::cell::kinds;
pub use activation::*;
pub use attention::{MultiheadAttention, MultiheadAttentionSpec};
pub use axes::PerAxis;
pub use batch_norm::*;
pub use column_embedding::{ColumnEmbedding, ColumnEmbeddingSpec};
pub use container::{CellList, Identity, Sequential};
pub use conv::*;
pub use dense::{Dense, DenseSpec};
pub use dropout::{Dropout, DropoutSpec};
pub use embedding::{Embedding, EmbeddingSpec};
pub use init::Init;
pub use lora::{LoRA, LoRASpec};
pub use norm::{
    GroupNorm, GroupNormSpec, InstanceNorm, InstanceNorm1d, InstanceNorm1dSpec, InstanceNorm2d, InstanceNorm2dSpec,
    InstanceNorm3d, InstanceNorm3dSpec, InstanceNormSpec, LayerNorm, LayerNormSpec, RmsNorm, RmsNormSpec,
};
pub use pool::*;
pub use precast_tensor::context::drawing_in_shard;
pub use precast_tensor::random::Rng;
pub use prelu::{PReLU, PReLUSpec};
pub use recurrent::*;
pub use rotary::RotaryEmbedding;
pub use sequence::*;
pub use transformer::*;
pub use transformer_stack::*;
