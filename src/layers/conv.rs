//! Convolutions and transposed convolutions over 1, 2 and 3 spatial axes.

use serde::{Deserialize, Serialize};

use super::{
    axes::{PerAxis, padding},
    init::{Init, Rng},
    spec::written_as_spec,
};
use crate::{
    ConvOptions, ConvTransposeOptions, Padding, Param, Tensor,
    cell::{Cell, Forward},
    error::{Error, Result},
    options::{Options, options},
};

/// Options of a [`Conv`].
#[options(of_cell)]
#[derive(Clone, Debug, PartialEq)]
pub struct ConvSpec<const N: usize> {
    /// Number of input channels.
    pub in_channels: usize,
    /// Number of output channels.
    pub out_channels: usize,
    /// Size of the kernel.
    #[option(at_least = 1)]
    pub kernel_size: PerAxis<N>,
    /// Stride of the kernel.
    #[option(default = 1, at_least = 1)]
    pub stride: PerAxis<N>,
    /// Padding of the input.
    #[option(default = Padding::Valid, shown = "none", note = "as in torch (MindSpore's default is `same`)")]
    #[serde(with = "padding")]
    pub padding: Padding,
    /// Spacing of the kernel elements.
    #[option(default = 1, at_least = 1)]
    pub dilation: PerAxis<N>,
    /// Number of groups of channels that are convolved separately.
    #[option(default = 1, at_least = 1)]
    pub groups: usize,
    /// `true` when a bias is added.
    #[option(default = true)]
    pub bias: bool,
}

/// Options of a [`ConvTranspose`].
#[options(of_cell)]
#[derive(Clone, Debug, PartialEq)]
pub struct ConvTransposeSpec<const N: usize> {
    /// Number of input channels.
    pub in_channels: usize,
    /// Number of output channels.
    pub out_channels: usize,
    /// Size of the kernel.
    #[option(at_least = 1)]
    pub kernel_size: PerAxis<N>,
    /// Spacing of the input elements in the output.
    #[option(default = 1, at_least = 1)]
    pub stride: PerAxis<N>,
    /// Amount removed from the sides of the output.
    #[option(default = Padding::Valid, shown = "none", note = "as in torch (MindSpore's default is `same`)")]
    #[serde(with = "padding")]
    pub padding: Padding,
    /// Amount added to the end of the output's axes, less than the stride or the dilation.
    #[option(default = 0)]
    pub output_padding: PerAxis<N>,
    /// Spacing of the kernel elements.
    #[option(default = 1, at_least = 1)]
    pub dilation: PerAxis<N>,
    /// Number of groups of channels that are convolved separately.
    #[option(default = 1, at_least = 1)]
    pub groups: usize,
    /// `true` when a bias is added.
    #[option(default = true)]
    pub bias: bool,
}

impl<const N: usize> ConvSpec<N> {
    /// Builds the cell. Its weight and bias are uniform within `1 / sqrt(fan_in)`, as in torch and MindSpore.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a kernel, stride or dilation of zero, or a number of groups
    /// that does not divide the channels; [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the weight does not fit
    /// into memory.
    pub fn build(self, rng: &mut Rng) -> Result<Conv<N>> {
        self.check()?;
        check_groups(self.in_channels, self.out_channels, self.groups)?;
        self.make(rng)
    }

    fn make(self, rng: &mut Rng) -> Result<Conv<N>> {
        let groups = self.groups.max(1);
        let (weight, bias) = weights(
            [self.out_channels, self.in_channels / groups],
            self.kernel_size,
            self.bias.then_some(self.out_channels),
            rng,
        )?;
        Ok(Conv { weight, bias, spec: self })
    }
}

impl<const N: usize> ConvTransposeSpec<N> {
    /// Builds the cell. Its weight and bias are initialised as in [`ConvSpec::build`].
    ///
    /// # Errors
    /// As [`ConvSpec::build`].
    pub fn build(self, rng: &mut Rng) -> Result<ConvTranspose<N>> {
        self.check()?;
        check_groups(self.in_channels, self.out_channels, self.groups)?;
        self.make(rng)
    }

    fn make(self, rng: &mut Rng) -> Result<ConvTranspose<N>> {
        let groups = self.groups.max(1);
        let (weight, bias) = weights(
            [self.in_channels, self.out_channels / groups],
            self.kernel_size,
            self.bias.then_some(self.out_channels),
            rng,
        )?;
        Ok(ConvTranspose { weight, bias, spec: self })
    }
}

fn check_groups(inputs: usize, outputs: usize, groups: usize) -> Result<()> {
    if !inputs.is_multiple_of(groups) || !outputs.is_multiple_of(groups) {
        return Err(Error::value(format!(
            "{groups} groups do not divide {inputs} input and {outputs} output channels"
        )));
    }
    Ok(())
}

/// Creates a weight `[first, second, kernel...]` and a bias of the given length.
fn weights<const N: usize>(
    channels: [usize; 2],
    kernel: PerAxis<N>,
    bias: Option<usize>,
    rng: &mut Rng,
) -> Result<(Param, Option<Param>)> {
    let shape = [&channels[..], &kernel.0].concat();
    let weight = Param::new(Init::weight().sample(&shape, rng)?);
    let fan_in = shape[1..].iter().product();
    let bias = match bias {
        Some(len) => Some(Param::new(Init::uniform_of(fan_in).sample(&[len], rng)?)),
        None => None,
    };
    Ok((weight, bias))
}

/// A convolution over `N` spatial axes: [`Conv1d`], [`Conv2d`] and [`Conv3d`].
///
/// `[n, in_channels, spatial...] -> [n, out_channels, spatial...]`. In files:
/// `{kind: Conv2d, in_channels: 1, out_channels: 6, kernel_size: 5}`, and `stride`, `padding` (`valid`, `same`, a number,
/// or a list with, per axis, a number or a pair `[before, after]`), `dilation`, `groups`, `bias`.
#[derive(Cell, Clone, Debug, Serialize, Deserialize)]
#[cell(saved, kinds(Conv1d, Conv2d, Conv3d))]
#[serde(try_from = "ConvSpec<N>", into = "ConvSpec<N>")]
pub struct Conv<const N: usize> {
    /// `[out_channels, in_channels / groups, kernel...]`.
    pub weight: Param,
    /// `[out_channels]`.
    pub bias: Option<Param>,
    spec: ConvSpec<N>,
}

/// A transposed convolution over `N` spatial axes: [`Conv1dTranspose`], [`Conv2dTranspose`] and [`Conv3dTranspose`].
///
/// `[n, in_channels, spatial...] -> [n, out_channels, spatial...]`: the gradient of a [`Conv`] with respect to its
/// input. In files: `{kind: Conv2dTranspose, in_channels: 6, out_channels: 1, kernel_size: 5}`, and the options of a `Conv`
/// and `output_padding`.
#[derive(Cell, Clone, Debug, Serialize, Deserialize)]
#[cell(saved, kinds(Conv1dTranspose, Conv2dTranspose, Conv3dTranspose))]
#[serde(try_from = "ConvTransposeSpec<N>", into = "ConvTransposeSpec<N>")]
pub struct ConvTranspose<const N: usize> {
    /// `[in_channels, out_channels / groups, kernel...]`.
    pub weight: Param,
    /// `[out_channels]`.
    pub bias: Option<Param>,
    spec: ConvTransposeSpec<N>,
}

impl<const N: usize> Conv<N> {
    /// Creates a cell with stride 1, no padding, dilation 1, one group, and a bias; see [`ConvSpec`] for more options.
    ///
    /// # Panics
    /// When the weight does not fit into memory, as with `Vec`.
    pub fn new(in_channels: usize, out_channels: usize, kernel_size: impl Into<PerAxis<N>>, rng: &mut Rng) -> Self {
        ConvSpec::new(in_channels, out_channels, kernel_size).make(rng).expect("a weight that fits into memory")
    }
}

impl<const N: usize> ConvTranspose<N> {
    /// Creates a cell with stride 1, no padding, dilation 1, one group, and a bias; see [`ConvTransposeSpec`] for more
    /// options.
    ///
    /// # Panics
    /// When the weight does not fit into memory, as with `Vec`.
    pub fn new(in_channels: usize, out_channels: usize, kernel_size: impl Into<PerAxis<N>>, rng: &mut Rng) -> Self {
        ConvTransposeSpec::new(in_channels, out_channels, kernel_size)
            .make(rng)
            .expect("a weight that fits into memory")
    }
}

written_as_spec!(Conv<N>, ConvSpec<N>, const N);
written_as_spec!(ConvTranspose<N>, ConvTransposeSpec<N>, const N);

/// Never holds; because of the lifetime in the bound, the compiler checks it where an option is set.
#[diagnostic::on_unimplemented(
    message = "the options of a convolution are chosen before it is built",
    label = "is built already",
    note = "`Conv2dSpec::new(1, 8, 3).padding(1).stride(2).build(rng)?`"
)]
pub trait IsNotBuilt {}

impl<const N: usize> Conv<N> {
    /// Does not compile: set it on a [`ConvSpec`].
    pub fn padding<P>(self, _padding: P) -> Self
    where
        for<'never> &'never Self: IsNotBuilt,
    {
        self
    }

    /// Does not compile: set it on a [`ConvSpec`].
    pub fn stride<S>(self, _stride: S) -> Self
    where
        for<'never> &'never Self: IsNotBuilt,
    {
        self
    }
}

macro_rules! kinds {
    ($n:literal: $conv:ident $conv_spec:ident $conv_name:literal $conv_op:ident, $transpose:ident $transpose_spec:ident $transpose_name:literal $transpose_op:ident) => {
        #[doc = concat!("A convolution over ", $n, " spatial axes.")]
        pub type $conv = Conv<$n>;
        #[doc = concat!("Options of a [`", $conv_name, "`](Conv).")]
        pub type $conv_spec = ConvSpec<$n>;
        #[doc = concat!("A transposed convolution over ", $n, " spatial axes.")]
        pub type $transpose = ConvTranspose<$n>;
        #[doc = concat!("Options of a [`", $transpose_name, "`](ConvTranspose).")]
        pub type $transpose_spec = ConvTransposeSpec<$n>;

        impl Forward for Conv<$n> {
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                self.spec.check()?;
                let ConvSpec { stride, padding, dilation, groups, .. } = &self.spec;
                let options = ConvOptions::default().stride(stride.to_vec()).padding(padding.clone());
                let options = options.dilation(dilation.to_vec()).groups(*groups);
                x.$conv_op(&self.weight.tensor(), self.bias.as_ref().map(Param::tensor).as_ref(), &options)
            }
        }

        impl Forward for ConvTranspose<$n> {
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                self.spec.check()?;
                let ConvTransposeSpec { stride, padding, output_padding, dilation, groups, .. } = &self.spec;
                let options = ConvTransposeOptions::default().stride(stride.to_vec()).padding(padding.clone());
                let options =
                    options.output_padding(output_padding.to_vec()).dilation(dilation.to_vec()).groups(*groups);
                x.$transpose_op(&self.weight.tensor(), self.bias.as_ref().map(Param::tensor).as_ref(), &options)
            }
        }
    };
}
kinds!(1: Conv1d Conv1dSpec "Conv1d" conv1d, Conv1dTranspose Conv1dTransposeSpec "Conv1dTranspose" conv_transpose1d);
kinds!(2: Conv2d Conv2dSpec "Conv2d" conv2d, Conv2dTranspose Conv2dTransposeSpec "Conv2dTranspose" conv_transpose2d);
kinds!(3: Conv3d Conv3dSpec "Conv3d" conv3d, Conv3dTranspose Conv3dTransposeSpec "Conv3dTranspose" conv_transpose3d);
