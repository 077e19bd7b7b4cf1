//! The fully connected layer.

use serde::{Deserialize, Serialize};

use super::{
    init::{Init, Rng},
    spec::written_as_spec,
};
use crate::{
    Cell, Param, Tensor,
    cell::Forward,
    error::Result,
    options::{Options, options},
};

/// Options of a [`Dense`].
#[options(of_cell)]
#[derive(Clone, Debug, PartialEq)]
pub struct DenseSpec {
    /// Length of the last axis of the input.
    #[option(at_least = 1)]
    pub in_features: usize,
    /// Length of the last axis of the output.
    #[option(at_least = 1)]
    pub out_features: usize,
    /// `true` when a bias is added.
    #[option(default = true)]
    pub bias: bool,
}

impl DenseSpec {
    /// Builds the cell. Its weight and bias are uniform within `1 / sqrt(in_features)`, as in torch and MindSpore.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a length of 0,
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the weight does not fit into memory.
    pub fn build(self, rng: &mut Rng) -> Result<Dense> {
        self.check()?;
        self.make(rng)
    }

    fn make(self, rng: &mut Rng) -> Result<Dense> {
        let weight = Init::weight().sample(&[self.out_features, self.in_features], rng)?;
        let bias = match self.bias {
            true => Some(Param::new(Init::uniform_of(self.in_features).sample(&[self.out_features], rng)?)),
            false => None,
        };
        Ok(Dense { weight: Param::new(weight), bias, spec: self })
    }
}

/// `x · weightᵀ + bias` over the last axis: `[..., in_features] -> [..., out_features]`.
///
/// In files: `{kind: Dense, in_features: 64, out_features: 10}`, and `bias: false`.
#[derive(Cell, Clone, Debug, Serialize, Deserialize)]
#[cell(saved)]
#[serde(try_from = "DenseSpec", into = "DenseSpec")]
#[doc(alias = "Linear")]
pub struct Dense {
    /// `[out_features, in_features]`.
    pub weight: Param,
    /// `[out_features]`.
    pub bias: Option<Param>,
    spec: DenseSpec,
}

impl Dense {
    /// Creates a layer with a bias; see [`DenseSpec::build`] for the initial values. A length of 0 is reported by the first call.
    ///
    /// # Panics
    /// When the weight does not fit into memory, as with `Vec`.
    pub fn new(in_features: usize, out_features: usize, rng: &mut Rng) -> Self {
        DenseSpec::new(in_features, out_features).make(rng).expect("a weight that fits into memory")
    }

    /// Returns the lengths of the last axes of input and output.
    pub(super) fn features(&self) -> (usize, usize) {
        (self.spec.in_features, self.spec.out_features)
    }

    /// Returns the same layer with parameters created by `make`.
    pub(super) fn with_params(&self, make: impl Fn(&Param) -> Param) -> Dense {
        Dense { weight: make(&self.weight), bias: self.bias.as_ref().map(make), spec: self.spec.clone() }
    }
}

written_as_spec!(Dense, DenseSpec);

impl Forward for Dense {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.spec.check()?;
        x.linear(&self.weight.tensor(), self.bias.as_ref().map(Param::tensor).as_ref())
    }
}
