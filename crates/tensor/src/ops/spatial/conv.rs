//! Convolutions and transposed convolutions over one, two or three spatial axes, channels first.

use precast_kernels::{
    conv,
    conv::{Convolve, Geometry},
    memory::Pooled,
};
use serde::{Deserialize, Serialize};

use crate::{
    Op, Tensor,
    error::{Error, Result},
    ops::{
        by_float, call, dispatch, elements,
        linear::{dense::channel_sums, quantized::Quantized},
        one_float_dtype,
        spatial::windows::{Padding, checked_shape, extents, per_axis, positive_per_axis, spatial_axes, three},
    },
    tensor::{Array, Forward, Stored},
};

/// Movement of a convolution's window. Lists have one number per spatial axis; a list of one applies to all axes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ConvOptions {
    /// Stride of the window, at least 1.
    pub stride: Vec<usize>,
    /// Padding around the input.
    pub padding: Padding,
    /// Dilation: distances between the taps of the window, at least 1.
    pub dilation: Vec<usize>,
    /// Number of independent groups of channels, at least 1.
    pub groups: usize,
}

precast_base::setters! {
    ConvOptions: stride stride: Vec<usize>, padding padding: Padding, dilation dilation: Vec<usize>, groups groups: usize
}

impl Default for ConvOptions {
    /// Returns stride 1, no padding, dilation 1 and one group.
    fn default() -> Self {
        ConvOptions { stride: vec![1], padding: Padding::Valid, dilation: vec![1], groups: 1 }
    }
}

/// Movement of a transposed convolution's window, as the [`ConvOptions`] of the convolution it transposes.
///
/// The length of an output axis is, with `reach = dilation * (kernel - 1) + 1`:
/// - valid: `(input - 1) * stride + max(reach, stride)` (as in MindSpore),
/// - same: `input * stride`,
/// - explicit: `(input - 1) * stride + reach - padding`.
///
/// `output_padding` is added to each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ConvTransposeOptions {
    /// Stride: distances between the input's elements in the output, at least 1.
    pub stride: Vec<usize>,
    /// Elements cropped from the sides of the output.
    pub padding: Padding,
    /// Elements added to the end of the output's axes, fewer than the stride or the dilation.
    pub output_padding: Vec<usize>,
    /// Dilation: distances between the taps of the window, at least 1.
    pub dilation: Vec<usize>,
    /// Number of independent groups of channels, at least 1.
    pub groups: usize,
}

precast_base::setters! {
    ConvTransposeOptions: stride stride: Vec<usize>, padding padding: Padding, output_padding output_padding: Vec<usize>,
        dilation dilation: Vec<usize>, groups groups: usize
}

impl Default for ConvTransposeOptions {
    /// Returns stride 1, nothing cropped or added, dilation 1 and one group.
    fn default() -> Self {
        let ConvOptions { stride, padding, dilation, groups } = ConvOptions::default();
        ConvTransposeOptions { stride, padding, output_padding: vec![0], dilation, groups }
    }
}

/// Checked settings shared by a convolution and its transpose.
struct Window {
    kernel: Vec<usize>,
    stride: Vec<usize>,
    dilation: Vec<usize>,
    /// Extents of the dilated kernel.
    extent: Vec<usize>,
}

impl Window {
    fn new(weight: &[usize], stride: &[usize], dilation: &[usize]) -> Result<Window> {
        let axes = weight.len() - 2;
        let kernel = positive_per_axis("kernel", &weight[2..], axes)?;
        let stride = positive_per_axis("stride", stride, axes)?;
        let dilation = positive_per_axis("dilation", dilation, axes)?;
        let extent = extents(&kernel, &dilation);
        Ok(Window { kernel, stride, dilation, extent })
    }
}

/// Returns the input and output channels of one group, from those of input and weight.
fn grouped(x: &[usize], weight: &[usize], groups: usize, of_input: usize, of_output: usize) -> Result<(usize, usize)> {
    let misfit = |why: String| Error::shape(format!("{x:?} and the weight {weight:?} do not fit: {why}"));
    let divides = |channels: usize| channels.is_multiple_of(groups) && groups <= channels.max(1);
    if groups == 0 || !divides(of_input) || !divides(of_output) {
        return Err(misfit(format!("{of_input} and {of_output} channels do not divide into {groups} groups")));
    }
    Ok((of_input / groups, of_output / groups))
}

fn same_rank(x: &Tensor, weight: &Tensor, axes: usize) -> Result<()> {
    if weight.rank() == axes + 2 {
        return Ok(());
    }
    Err(Error::shape(format!(
        "{:?} and the weight {:?} do not fit: the weight has two channel axes and {axes} spatial ones",
        x.shape(),
        weight.shape()
    )))
}

fn check_bias(inputs: &[Tensor], channels: usize) -> Result<()> {
    match inputs.get(2) {
        Some(bias) if bias.shape() != [channels] => {
            Err(Error::shape(format!("the bias is {:?}; [{channels}] is allowed", bias.shape())))
        }
        _ => Ok(()),
    }
}

/// Returns the sizes of a convolution, and the shape of its output.
fn conv_geometry(x: &Tensor, weight: &Tensor, axes: usize, options: &ConvOptions) -> Result<(Geometry, Vec<usize>)> {
    let input = spatial_axes(x.shape(), axes)?;
    same_rank(x, weight, axes)?;
    let window = Window::new(weight.shape(), &options.stride, &options.dilation)?;
    let (batch, channels, out) = (x.shape()[0], x.shape()[1], weight.shape()[0]);
    let (in_channels, out_channels) = grouped(x.shape(), weight.shape(), options.groups, channels, out)?;
    if weight.shape()[1] != in_channels {
        return Err(Error::shape(format!(
            "{:?} and the weight {:?} do not fit: {channels} channels meet {}",
            x.shape(),
            weight.shape(),
            match options.groups {
                1 => weight.shape()[1].to_string(),
                groups => format!("{groups} groups of {}", weight.shape()[1]),
            }
        )));
    }
    let padding = options.padding.resolve(input, &window.extent, &window.stride)?;
    let mut output = Vec::new();
    for (i, &(before, after)) in padding.iter().enumerate() {
        let Some(room) = (input[i] + before + after).checked_sub(window.extent[i]) else {
            let dilated = match window.extent == window.kernel {
                true => String::new(),
                false => format!(" (dilated: {:?})", window.extent),
            };
            return Err(Error::shape(format!(
                "the window of {:?}{dilated} does not fit into {input:?} with the padding {padding:?}",
                window.kernel
            )));
        };
        output.push(room / window.stride[i] + 1);
    }
    let before: Vec<usize> = padding.iter().map(|pair| pair.0).collect();
    let geometry = geometry(batch, options.groups, (in_channels, out_channels), input, &output, &window, &before)?;
    Ok((geometry, checked_shape([&[batch, out], &output[..]].concat())?))
}

/// Returns the sizes of the convolution to transpose, and the shape of the transpose's output.
fn transpose_geometry(
    x: &Tensor,
    weight: &Tensor,
    axes: usize,
    options: &ConvTransposeOptions,
) -> Result<(Geometry, Vec<usize>)> {
    let input = spatial_axes(x.shape(), axes)?;
    same_rank(x, weight, axes)?;
    let window = Window::new(weight.shape(), &options.stride, &options.dilation)?;
    let (batch, channels) = (x.shape()[0], x.shape()[1]);
    if weight.shape()[0] != channels {
        return Err(Error::shape(format!(
            "{:?} and the weight {:?} do not fit: {channels} channels meet {}",
            x.shape(),
            weight.shape(),
            weight.shape()[0]
        )));
    }
    let out_channels = weight.shape()[1];
    let (in_channels, _) = grouped(x.shape(), weight.shape(), options.groups, channels, channels)?;
    let added = per_axis("output_padding", &options.output_padding, axes)?;
    let full: Vec<usize> = (0..axes).map(|i| (input[i] - 1) * window.stride[i] + window.extent[i]).collect();
    let padding = match &options.padding {
        Padding::Same => {
            let output: Vec<usize> = (0..axes).map(|i| input[i] * window.stride[i]).collect();
            let cut: Vec<usize> = (0..axes).map(|i| full[i].saturating_sub(output[i])).collect();
            cut.iter().map(|cut| (cut / 2, cut - cut / 2)).collect()
        }
        other => other.resolve(input, &window.extent, &window.stride)?,
    };
    let mut output = Vec::new();
    for (i, &(before, after)) in padding.iter().enumerate() {
        if added[i] >= window.stride[i].max(window.dilation[i]) && added[i] > 0 {
            return Err(Error::value(format!(
                "output_padding {} must be below the stride {} or the dilation {}",
                added[i], window.stride[i], window.dilation[i]
            )));
        }
        let length = match options.padding {
            Padding::Same => Some(input[i] * window.stride[i]),
            Padding::Valid => Some(full[i].max(input[i] * window.stride[i])),
            Padding::Explicit(_) => full[i].checked_sub(before + after),
        };
        match length.map(|length| length + added[i]) {
            Some(length) if length > 0 => output.push(length),
            _ => {
                return Err(Error::shape(format!(
                    "the padding {padding:?} cuts off the whole output: without it, it has the lengths {full:?}"
                )));
            }
        }
    }
    let before: Vec<usize> = padding.iter().map(|pair| pair.0).collect();
    let groups = options.groups;
    let geometry = geometry(batch, groups, (out_channels, in_channels), &output, input, &window, &before)?;
    Ok((geometry, checked_shape([&[batch, out_channels * groups], &output[..]].concat())?))
}

fn geometry(
    batch: usize,
    groups: usize,
    (in_channels, out_channels): (usize, usize),
    input: &[usize],
    output: &[usize],
    window: &Window,
    before: &[usize],
) -> Result<Geometry> {
    // The column matrix is the largest intermediate of a convolution.
    checked_shape([&[in_channels], &window.kernel[..], output].concat())?;
    // The stride of a single output has no effect.
    let stride: Vec<usize> =
        window.stride.iter().zip(output).map(|(&stride, &n)| if n == 1 { 1 } else { stride }).collect();
    Ok(Geometry {
        batch,
        groups,
        in_channels,
        out_channels,
        input: three(input, 1),
        output: three(output, 1),
        kernel: three(&window.kernel, 1),
        stride: three(&stride, 1),
        dilation: three(&window.dilation, 1),
        before: three(before, 0),
    })
}

/// The three products of a convolution.
#[derive(Clone, Copy)]
enum Product {
    Forward,
    InputGradient,
    WeightGradient,
}

/// Computes one of the three products of two tensors of one floating dtype.
fn run(which: Product, g: &Geometry, a: &Tensor, b: &Tensor, bias: Option<&Tensor>, shape: &[usize]) -> Result<Array> {
    fn go<T: Stored + Convolve>(
        which: Product,
        g: &Geometry,
        a: &Tensor,
        b: &Tensor,
        bias: Option<&Tensor>,
    ) -> Pooled<T> {
        let (a, b, bias) = (elements::<T>(a), elements::<T>(b), bias.map(elements::<T>));
        match which {
            Product::Forward => conv::forward(g, &a, &b, bias.as_deref()),
            Product::InputGradient => conv::input_gradient(g, &a, &b, bias.as_deref()),
            Product::WeightGradient => conv::weight_gradient(g, &a, &b),
        }
    }
    by_float!(a, T => Array::from_vec(go::<T>(which, g, a, b, bias), shape))
}

impl Tensor {
    fn conv(
        &self,
        op: Op,
        axes: usize,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: &ConvOptions,
    ) -> Result<Tensor> {
        let inputs: Vec<&Tensor> = [Some(self), Some(weight), bias].into_iter().flatten().collect();
        dispatch(call!(op, &inputs; options), |inputs| {
            one_float_dtype(inputs)?;
            let (x, weight) = (&inputs[0], &inputs[1]);
            let (g, shape) = conv_geometry(x, weight, axes, options)?;
            check_bias(inputs, weight.shape()[0])?;
            if let Some(quantized) = Quantized::next(inputs)? {
                return quantized.conv(g, false, inputs, &shape);
            }
            let value = run(Product::Forward, &g, x, weight, inputs.get(2), &shape)?;
            Ok(convolved(value, inputs, move |grad, x, weight, wanted| match wanted {
                0 => run(Product::InputGradient, &g, grad, weight, None, x.shape()),
                _ => run(Product::WeightGradient, &g, x, grad, None, weight.shape()),
            }))
        })
    }

    fn conv_transpose(
        &self,
        op: Op,
        axes: usize,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: &ConvTransposeOptions,
    ) -> Result<Tensor> {
        let inputs: Vec<&Tensor> = [Some(self), Some(weight), bias].into_iter().flatten().collect();
        dispatch(call!(op, &inputs; options), |inputs| {
            one_float_dtype(inputs)?;
            let (x, weight) = (&inputs[0], &inputs[1]);
            let (g, shape) = transpose_geometry(x, weight, axes, options)?;
            check_bias(inputs, shape[1])?;
            if let Some(quantized) = Quantized::next(inputs)? {
                return quantized.conv(g, true, inputs, &shape);
            }
            let value = run(Product::InputGradient, &g, x, weight, inputs.get(2), &shape)?;
            Ok(convolved(value, inputs, move |grad, x, weight, wanted| match wanted {
                0 => run(Product::Forward, &g, grad, weight, None, x.shape()),
                _ => run(Product::WeightGradient, &g, grad, x, None, weight.shape()),
            }))
        })
    }
}

/// Returns the result of a convolution or its transpose; `product(grad, x, weight, i)` is the gradient of input `i`, x
/// or weight.
fn convolved(
    value: Array,
    inputs: &[Tensor],
    product: impl Fn(&Tensor, &Tensor, &Tensor, usize) -> Result<Array> + Send + Sync + 'static,
) -> Forward {
    let count = inputs.len();
    Forward::new(value, inputs[..2].to_vec(), move |b| {
        let gradient = |i: usize| match i {
            0 | 1 => product(b.grad, &b.restored(0), &b.restored(1), i),
            _ => {
                let shape = b.grad.shape();
                channel_sums(b.grad, (shape[0], shape[1], shape[2..].iter().product()))
            }
        };
        (0..count).map(|i| b.needs[i].then(|| gradient(i).map(Tensor::from_array)).transpose()).collect()
    })
}

macro_rules! convolutions {
    ($($conv:ident $op:ident, $transpose:ident $transpose_op:ident, $axes:literal: $spatial:literal, $kernel:literal;)*) => {
        impl Tensor { $(
            #[doc = concat!("Convolution of `[n, in, ", $spatial, "]` with a weight `[out, in / groups, ", $kernel,
                "]` and a bias `[out]`, accumulated in f32; product and bias are rounded together, once.")]
            ///
            /// # Errors
            /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not fit,
            /// [`ErrorKind::Value`](crate::ErrorKind::Value) for options out of range,
            /// [`ErrorKind::DType`](crate::ErrorKind::DType) when dtypes differ and no policy casts them.
            pub fn $conv(&self, weight: &Tensor, bias: Option<&Tensor>, options: &ConvOptions) -> Result<Tensor> {
                self.conv(Op::$op, $axes, weight, bias, options)
            }

            #[doc = concat!("Transposed convolution of `[n, in, ", $spatial, "]` with a weight `[in, out / groups, ", $kernel,
                "]` and a bias `[out]`: the input's gradient of a convolution; rounded once.")]
            ///
            /// # Errors
            /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not fit,
            /// [`ErrorKind::Value`](crate::ErrorKind::Value) for options out of range,
            /// [`ErrorKind::DType`](crate::ErrorKind::DType) when dtypes differ and no policy casts them.
            pub fn $transpose(
                &self,
                weight: &Tensor,
                bias: Option<&Tensor>,
                options: &ConvTransposeOptions,
            ) -> Result<Tensor> {
                self.conv_transpose(Op::$transpose_op, $axes, weight, bias, options)
            }
        )* }
    };
}

convolutions! {
    conv1d Conv1d, conv_transpose1d ConvTranspose1d, 1: "w", "kw";
    conv2d Conv2d, conv_transpose2d ConvTranspose2d, 2: "h, w", "kh, kw";
    conv3d Conv3d, conv_transpose3d ConvTranspose3d, 3: "d, h, w", "kd, kh, kw";
}
