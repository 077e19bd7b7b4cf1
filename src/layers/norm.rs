//! Normalisation of each sample by its own statistics.

use serde::{Deserialize, Serialize};

use super::{init::constant, spec::written_as_spec};
use crate::{
    Param, Tensor,
    cell::{Cell, Forward},
    error::{Error, Result},
    options::{Options, options},
};

/// Creates weight 1 and bias 0 of the given shape, or neither.
pub(super) fn affine_params(affine: bool, shape: &[usize]) -> Result<(Option<Param>, Option<Param>)> {
    if !affine {
        return Ok((None, None));
    }
    let param = |value| constant(shape, value).map(Param::new).map(Some);
    Ok((param(1.0)?, param(0.0)?))
}

/// Options of a [`LayerNorm`].
#[options(of_cell)]
#[derive(Clone, Debug, PartialEq)]
pub struct LayerNormSpec {
    /// The last axes of the input, over which the statistics are computed.
    pub normalized_shape: Vec<usize>,
    /// Number added to the variance for numerical stability.
    #[option(default = 1e-5, at_least = 0, note = "as in torch (MindSpore's default is 1e-7)")]
    pub eps: f64,
    /// `true` when each element is scaled and shifted by trained parameters.
    #[option(default = true)]
    pub affine: bool,
    /// `true` when that includes a shift; without `affine` there is none.
    #[option(default = true)]
    pub bias: bool,
}

impl LayerNormSpec {
    /// Builds the cell: weight 1, bias 0.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when `eps` is negative or the shape has no axis.
    pub fn build(self) -> Result<LayerNorm> {
        self.check()?;
        if self.normalized_shape.is_empty() {
            return Err(Error::value("normalized_shape has no axis; at least 1 is needed"));
        }
        self.make()
    }

    fn make(self) -> Result<LayerNorm> {
        let (weight, bias) = affine_params(self.affine, &self.normalized_shape)?;
        Ok(LayerNorm { weight, bias: bias.filter(|_| self.bias), spec: self })
    }
}

/// Layer normalisation (Ba et al. 2016): brings the last axes to mean 0 and variance 1, times weight plus bias.
///
/// `[..., normalized_shape]`. In files: `{kind: LayerNorm, normalized_shape: [64]}`, and `eps`, `affine`,
/// `bias: false`.
#[derive(Cell, Clone, Debug, Serialize, Deserialize)]
#[cell(saved)]
#[serde(try_from = "LayerNormSpec", into = "LayerNormSpec")]
pub struct LayerNorm {
    /// `normalized_shape`.
    pub weight: Option<Param>,
    /// `normalized_shape`.
    pub bias: Option<Param>,
    spec: LayerNormSpec,
}

impl LayerNorm {
    /// Creates a cell with `eps` 1e-5, affine with a bias.
    ///
    /// # Panics
    /// When the parameters do not fit into memory, as with `Vec`.
    pub fn new(normalized_shape: &[usize]) -> Self {
        LayerNormSpec::new(normalized_shape).make().expect("parameters that fit into memory")
    }
}

written_as_spec!(nothing random: LayerNorm, LayerNormSpec);

impl Forward for LayerNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (weight, bias) = (self.weight.as_ref().map(Param::tensor), self.bias.as_ref().map(Param::tensor));
        x.layer_norm(&self.spec.normalized_shape, weight.as_ref(), bias.as_ref(), self.spec.eps)
    }
}

/// Options of a [`GroupNorm`].
#[options(of_cell)]
#[derive(Clone, Debug, PartialEq)]
pub struct GroupNormSpec {
    /// Number of groups of channels that share their statistics.
    pub num_groups: usize,
    /// Number of channels: the length of axis 1.
    pub num_channels: usize,
    /// Number added to the variance for numerical stability.
    #[option(default = 1e-5, at_least = 0)]
    pub eps: f64,
    /// `true` when each channel is scaled and shifted by trained parameters.
    #[option(default = true)]
    pub affine: bool,
}

impl GroupNormSpec {
    /// Builds the cell: weight 1, bias 0.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when the groups do not divide the channels or `eps` is negative.
    pub fn build(self) -> Result<GroupNorm> {
        self.check()?;
        if self.num_groups == 0 || !self.num_channels.is_multiple_of(self.num_groups) {
            return Err(Error::value(format!(
                "{} groups do not divide {} channels",
                self.num_groups, self.num_channels
            )));
        }
        self.make()
    }

    fn make(self) -> Result<GroupNorm> {
        let (weight, bias) = affine_params(self.affine, &[self.num_channels])?;
        Ok(GroupNorm { weight, bias, spec: self })
    }
}

/// Group normalisation (Wu & He 2018): brings each group of channels of each sample to mean 0 and variance 1, then
/// multiplies each channel by weight and adds bias.
///
/// `[batch, num_channels, ...]`. In files: `{kind: GroupNorm, num_groups: 2, num_channels: 4}`, and `eps`, `affine`.
#[derive(Cell, Clone, Debug, Serialize, Deserialize)]
#[cell(saved)]
#[serde(try_from = "GroupNormSpec", into = "GroupNormSpec")]
pub struct GroupNorm {
    /// `[num_channels]`.
    pub weight: Option<Param>,
    /// `[num_channels]`.
    pub bias: Option<Param>,
    spec: GroupNormSpec,
}

impl GroupNorm {
    /// Creates a cell with `eps` 1e-5, affine. Groups that do not divide the channels are reported by the first call.
    ///
    /// # Panics
    /// When the parameters do not fit into memory, as with `Vec`.
    pub fn new(num_groups: usize, num_channels: usize) -> Self {
        GroupNormSpec::new(num_groups, num_channels).make().expect("parameters that fit into memory")
    }
}

written_as_spec!(nothing random: GroupNorm, GroupNormSpec);

impl Forward for GroupNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (weight, bias) = (self.weight.as_ref().map(Param::tensor), self.bias.as_ref().map(Param::tensor));
        x.group_norm(self.spec.num_groups, weight.as_ref(), bias.as_ref(), self.spec.eps)
    }
}

/// Options of an [`InstanceNorm`].
#[options(of_cell)]
#[derive(Clone, Debug, PartialEq)]
pub struct InstanceNormSpec<const N: usize> {
    /// Number of channels: the length of axis 1.
    pub num_features: usize,
    /// Number added to the variance for numerical stability.
    #[option(default = 1e-5, at_least = 0)]
    pub eps: f64,
    /// `true` when each channel is scaled and shifted by trained parameters.
    #[option(default = true, note = "as in MindSpore (torch: false)")]
    pub affine: bool,
}

impl<const N: usize> InstanceNormSpec<N> {
    /// Builds the cell: weight 1, bias 0.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when `eps` is negative.
    pub fn build(self) -> Result<InstanceNorm<N>> {
        self.check()?;
        self.make()
    }

    fn make(self) -> Result<InstanceNorm<N>> {
        let (weight, bias) = affine_params(self.affine, &[self.num_features])?;
        Ok(InstanceNorm { weight, bias, spec: self })
    }
}

/// Instance normalisation (Ulyanov et al. 2016) with `N` spatial axes: brings each channel of each sample to mean 0 and
/// variance 1 over its spatial axes, times weight plus bias. It keeps no running statistics.
///
/// `[batch, num_features, spatial...]`. In files: `{kind: InstanceNorm2d, num_features: 6}`, and `eps`, `affine`.
#[derive(Cell, Clone, Debug, Serialize, Deserialize)]
#[cell(saved, kinds(InstanceNorm1d, InstanceNorm2d, InstanceNorm3d))]
#[serde(try_from = "InstanceNormSpec<N>", into = "InstanceNormSpec<N>")]
pub struct InstanceNorm<const N: usize> {
    /// `[num_features]`.
    pub weight: Option<Param>,
    /// `[num_features]`.
    pub bias: Option<Param>,
    spec: InstanceNormSpec<N>,
}

written_as_spec!(nothing random: InstanceNorm<N>, InstanceNormSpec<N>, const N);

impl<const N: usize> InstanceNorm<N> {
    /// Creates a cell with `eps` 1e-5, affine.
    ///
    /// # Panics
    /// When the parameters do not fit into memory, as with `Vec`.
    pub fn new(num_features: usize) -> Self {
        InstanceNormSpec::new(num_features).make().expect("parameters that fit into memory")
    }

    fn normalise(&self, x: &Tensor) -> Result<Tensor> {
        let channels = self.spec.num_features;
        if x.rank() != N + 2 || x.shape()[1] != channels {
            let shape = x.shape();
            return Err(Error::shape(format!("takes [batch, {channels}, ...] with {N} spatial axes, got {shape:?}")));
        }
        let (weight, bias) = (self.weight.as_ref().map(Param::tensor), self.bias.as_ref().map(Param::tensor));
        x.instance_norm(weight.as_ref(), bias.as_ref(), self.spec.eps)
    }
}

macro_rules! instance_kinds {
    ($($n:literal $cell:ident $spec:ident $name:literal;)*) => { $(
        #[doc = concat!("Instance normalisation with ", $n, " spatial axes.")]
        pub type $cell = InstanceNorm<$n>;
        #[doc = concat!("Options of an [`", $name, "`](InstanceNorm).")]
        pub type $spec = InstanceNormSpec<$n>;

        impl Forward for InstanceNorm<$n> {
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                self.normalise(x)
            }
        }
    )* };
}
instance_kinds! {
    1 InstanceNorm1d InstanceNorm1dSpec "InstanceNorm1d";
    2 InstanceNorm2d InstanceNorm2dSpec "InstanceNorm2d";
    3 InstanceNorm3d InstanceNorm3dSpec "InstanceNorm3d";
}

/// Options of an [`RmsNorm`].
#[options(of_cell)]
#[derive(Clone, Debug, PartialEq)]
pub struct RmsNormSpec {
    /// Length of the last axis.
    pub num_features: usize,
    /// Number added to the mean square for numerical stability.
    #[option(default = 1e-6, at_least = 0, note = "as in MindSpore")]
    pub eps: f64,
}

impl RmsNormSpec {
    /// Builds the cell: weight 1.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when `eps` is negative.
    pub fn build(self) -> Result<RmsNorm> {
        self.check()?;
        self.make()
    }

    fn make(self) -> Result<RmsNorm> {
        Ok(RmsNorm { weight: Param::new(constant(&[self.num_features], 1.0)?), spec: self })
    }
}

/// Root mean square normalisation (Zhang & Sennrich 2019): `x / sqrt(mean(x^2) + eps) * weight` over the last axis.
///
/// It is `nn.RMSNorm` of torch over one axis. Without an `eps`, torch uses `f32::EPSILON` (1.19e-7) for f32; the
/// default here is MindSpore's. `[..., num_features]`. In files: `{kind: RmsNorm, num_features: 64}`, and `eps`.
#[derive(Cell, Clone, Debug, Serialize, Deserialize)]
#[cell(saved)]
#[serde(try_from = "RmsNormSpec", into = "RmsNormSpec")]
pub struct RmsNorm {
    /// `[num_features]`.
    pub weight: Param,
    spec: RmsNormSpec,
}

impl RmsNorm {
    /// Creates a cell with `eps` 1e-6.
    ///
    /// # Panics
    /// When the weight does not fit into memory, as with `Vec`.
    pub fn new(num_features: usize) -> Self {
        RmsNormSpec::new(num_features).make().expect("a weight that fits into memory")
    }
}

written_as_spec!(nothing random: RmsNorm, RmsNormSpec);

impl Forward for RmsNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.rms_norm(Some(&self.weight.tensor()), self.spec.eps)
    }
}
