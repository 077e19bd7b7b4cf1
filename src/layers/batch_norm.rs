//! Batch normalisation.

use serde::{Deserialize, Serialize};

use super::{init::constant, norm::affine_params, spec::written_as_spec};
use crate::{
    Param, Tensor,
    cell::{Cell, Forward, ran_in_evaluation},
    error::{Error, Result},
    options::{Options, options},
};

/// Options of a [`BatchNorm`].
#[options(of_cell)]
#[derive(Clone, Debug, PartialEq)]
pub struct BatchNormSpec<const N: usize> {
    /// Number of channels: the length of axis 1.
    pub num_features: usize,
    /// Number added to the variance for numerical stability.
    #[option(default = 1e-5, at_least = 0)]
    pub eps: f64,
    /// Weight of a batch's statistics in the update of the running ones. This is torch's convention; MindSpore's
    /// `momentum` is 1 minus this, so that its default of 0.9 is the same.
    #[option(default = 0.1, at_least = 0, at_most = 1)]
    pub momentum: f64,
    /// `true` when each channel is scaled and shifted by trained parameters.
    #[option(default = true)]
    pub affine: bool,
}

impl<const N: usize> BatchNormSpec<N> {
    /// Builds the cell: weight 1, bias 0, running mean 0, running variance 1.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when `eps` is negative or `momentum` outside 0 to 1.
    pub fn build(self) -> Result<BatchNorm<N>> {
        self.check()?;
        self.make()
    }

    fn make(self) -> Result<BatchNorm<N>> {
        let shape = [self.num_features];
        let (weight, bias) = affine_params(self.affine, &shape)?;
        Ok(BatchNorm {
            weight,
            bias,
            running_mean: Param::buffer(constant(&shape, 0.0)?),
            running_var: Param::buffer(constant(&shape, 1.0)?),
            training: false,
            spec: self,
        })
    }
}

/// Batch normalisation (Ioffe & Szegedy 2015) of inputs with `N` spatial axes: [`BatchNorm1d`], [`BatchNorm2d`] and
/// [`BatchNorm3d`].
///
/// Normalises each channel of `[batch, num_features, spatial...]` to mean 0 and variance 1, then multiplies by weight
/// and adds bias. Training uses the mean and biased variance of the batch, and updates the running statistics (with the
/// unbiased variance, as in torch); evaluation uses the running statistics, and so does training when these are
/// [frozen](crate::Child::freeze). These are f32 buffers in whatever precision
/// the cell runs. `BatchNorm1d` also takes `[batch, num_features]`.
///
/// In files: `{kind: BatchNorm2d, num_features: 6}`, and `eps`, `momentum`, `affine`.
#[derive(Cell, Clone, Debug, Serialize, Deserialize)]
#[cell(saved, kinds(BatchNorm1d, BatchNorm2d, BatchNorm3d))]
#[serde(try_from = "BatchNormSpec<N>", into = "BatchNormSpec<N>")]
pub struct BatchNorm<const N: usize> {
    /// `[num_features]`.
    pub weight: Option<Param>,
    /// `[num_features]`.
    pub bias: Option<Param>,
    /// `[num_features]`, a buffer.
    pub running_mean: Param,
    /// `[num_features]`, a buffer.
    pub running_var: Param,
    training: bool,
    spec: BatchNormSpec<N>,
}

written_as_spec!(nothing random: BatchNorm<N>, BatchNormSpec<N>, const N);

impl<const N: usize> BatchNorm<N> {
    /// Creates a cell with `eps` 1e-5 and `momentum` 0.1, affine.
    ///
    /// # Panics
    /// When the parameters do not fit into memory, as with `Vec`.
    pub fn new(num_features: usize) -> Self {
        BatchNormSpec::new(num_features).make().expect("parameters that fit into memory")
    }

    fn normalise(&self, x: &Tensor) -> Result<Tensor> {
        let (rank, channels) = (x.rank(), self.spec.num_features);
        if !(rank == N + 2 || (N == 1 && rank == 2)) || x.shape()[1] != channels {
            let spatial = if N == 1 { "at most 1 spatial axis".to_string() } else { format!("{N} spatial axes") };
            return Err(Error::shape(format!("takes [batch, {channels}, ...] with {spatial}, got {:?}", x.shape())));
        }
        let weight = self.weight.as_ref().map(Param::tensor);
        let bias = self.bias.as_ref().map(Param::tensor);
        let (weight, bias, eps) = (weight.as_ref(), bias.as_ref(), self.spec.eps);
        let is_frozen = self.running_mean.is_frozen() && self.running_var.is_frozen();
        if !self.training || is_frozen {
            if !is_frozen {
                ran_in_evaluation();
            }
            return x.batch_norm(&self.running_mean.tensor(), &self.running_var.tensor(), weight, bias, eps);
        }
        let count = x.len() / channels.max(1);
        if count < 2 {
            return Err(Error::shape(format!(
                "a BatchNorm{N}d in training needs at least 2 values for each channel, got {:?}; allowed: a larger batch, or \
                 evaluation",
                x.shape()
            )));
        }
        let (y, mean, var) = x.batch_norm_train(weight, bias, eps)?;
        self.running_mean.blend(&mean, self.spec.momentum, None)?;
        self.running_var.blend(&var, self.spec.momentum, Some(count))?;
        Ok(y)
    }
}

macro_rules! kinds {
    ($($n:literal $cell:ident $spec:ident $name:literal;)*) => { $(
        #[doc = concat!("Batch normalisation with ", $n, " spatial axes.")]
        pub type $cell = BatchNorm<$n>;
        #[doc = concat!("Options of a [`", $name, "`](BatchNorm).")]
        pub type $spec = BatchNormSpec<$n>;

        impl Forward for BatchNorm<$n> {
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                self.normalise(x)
            }
            fn on_train(&mut self, training: bool) {
                self.training = training;
            }
        }
    )* };
}
kinds! {
    1 BatchNorm1d BatchNorm1dSpec "BatchNorm1d";
    2 BatchNorm2d BatchNorm2dSpec "BatchNorm2d";
    3 BatchNorm3d BatchNorm3dSpec "BatchNorm3d";
}
