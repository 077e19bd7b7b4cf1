//! Convolutions, pools, and images sampled between their pixels.

use precast::{
    ConvOptions, ConvTransposeOptions, GridPadding, Interpolation, Op, Padding, PoolOptions, Resize, Result, Tensor,
};
use serde_json::json;

use crate::draw::{Case, Draw};

/// Returns the number of spatial axes of the op.
fn axes(op: Op) -> usize {
    match op.name() {
        name if name.contains("1d") || name.contains("1D") => 1,
        name if name.contains("3d") || name.contains("3D") => 3,
        _ => 2,
    }
}

pub fn convolutions(op: Op, d: &mut Draw) -> Result<Option<Case>> {
    let axes = axes(op);
    let most = [0, 24, 9, 6][axes];
    let each =
        |d: &mut Draw, least: usize, most: usize| -> Vec<usize> { (0..axes).map(|_| d.size(least..=most)).collect() };
    let case = match op {
        Op::Conv1d | Op::Conv2d | Op::Conv3d => {
            let (groups, kernel) = (d.size(1..=3), each(d, 1, 3));
            let (inward, outward) = (d.size(1..=3), d.size(1..=4));
            let (stride, dilation, padding) = (each(d, 1, 2), each(d, 1, 2), each(d, 0, 2));
            let lengths: Vec<usize> =
                (0..axes).map(|i| (dilation[i] * (kernel[i] - 1) + 1 + d.size(0..=most)).min(most + 3)).collect();
            let n = d.size(1..=2);
            let x = d.float(&[&[n, groups * inward], &lengths[..]].concat())?;
            let weight = d.float(&[&[groups * outward, inward], &kernel[..]].concat())?;
            let mut inputs = vec![x, weight];
            if d.flag() {
                inputs.push(d.float(&[groups * outward])?);
            }
            let pairs = padding.iter().map(|&p| (p, p)).collect();
            let options = ConvOptions::default()
                .stride(stride.clone())
                .padding(Padding::Explicit(pairs))
                .dilation(dilation.clone())
                .groups(groups);
            let call = move |x: &[Tensor]| match op {
                Op::Conv1d => x[0].conv1d(&x[1], x.get(2), &options),
                Op::Conv2d => x[0].conv2d(&x[1], x.get(2), &options),
                _ => x[0].conv3d(&x[1], x.get(2), &options),
            };
            Case::new(inputs, call)
                .option("stride", stride)
                .option("padding", padding)
                .option("dilation", dilation)
                .option("groups", groups)
        }
        Op::ConvTranspose1d | Op::ConvTranspose2d | Op::ConvTranspose3d => {
            let (groups, kernel) = (d.size(1..=2), each(d, 2, 3));
            let (inward, outward) = (d.size(1..=3), d.size(1..=3));
            let (stride, dilation, padding) = (each(d, 1, 3), each(d, 1, 2), each(d, 0, 1));
            let output: Vec<usize> = (0..axes).map(|i| d.size(0..=stride[i].max(dilation[i]) - 1)).collect();
            let lengths = each(d, 2, most.min(5));
            let n = d.size(1..=2);
            let x = d.float(&[&[n, groups * inward], &lengths[..]].concat())?;
            let weight = d.float(&[&[groups * inward, outward], &kernel[..]].concat())?;
            let mut inputs = vec![x, weight];
            if d.flag() {
                inputs.push(d.float(&[groups * outward])?);
            }
            let options = ConvTransposeOptions::default()
                .stride(stride.clone())
                .padding(Padding::Explicit(padding.iter().map(|&p| (p, p)).collect()))
                .output_padding(output.clone())
                .dilation(dilation.clone())
                .groups(groups);
            let call = move |x: &[Tensor]| match op {
                Op::ConvTranspose1d => x[0].conv_transpose1d(&x[1], x.get(2), &options),
                Op::ConvTranspose2d => x[0].conv_transpose2d(&x[1], x.get(2), &options),
                _ => x[0].conv_transpose3d(&x[1], x.get(2), &options),
            };
            Case::new(inputs, call)
                .option("stride", stride)
                .option("padding", padding)
                .option("output_padding", output)
                .option("dilation", dilation)
                .option("groups", groups)
        }
        _ => return Ok(None),
    };
    Ok(Some(case))
}

pub fn pools(op: Op, d: &mut Draw) -> Result<Option<Case>> {
    let axes = axes(op);
    let most = [0, 24, 9, 6][axes];
    let each =
        |d: &mut Draw, least: usize, most: usize| -> Vec<usize> { (0..axes).map(|_| d.size(least..=most)).collect() };
    let case = match op {
        Op::MaxPool1d | Op::MaxPool2d | Op::MaxPool3d | Op::AvgPool1d | Op::AvgPool2d | Op::AvgPool3d => {
            let (kernel, stride, ceil, include) = (each(d, 1, 3), each(d, 1, 3), d.flag(), d.flag());
            let padding: Vec<usize> = kernel.iter().map(|&k| d.size(0..=k / 2)).collect();
            let lengths = each(d, 3, most);
            let options = PoolOptions::default()
                .kernel(kernel.clone())
                .stride(stride.clone())
                .padding(Padding::Explicit(padding.iter().map(|&p| (p, p)).collect()))
                .ceil(ceil)
                .count_include_pad(include);
            let c = d.size(1..=3);
            let x = d.float(&[&[2, c], &lengths[..]].concat())?;
            let call = move |x: &[Tensor]| match op {
                Op::MaxPool1d => x[0].max_pool1d_with(&options),
                Op::MaxPool2d => x[0].max_pool2d_with(&options),
                Op::MaxPool3d => x[0].max_pool3d_with(&options),
                Op::AvgPool1d => x[0].avg_pool1d_with(&options),
                Op::AvgPool2d => x[0].avg_pool2d_with(&options),
                _ => x[0].avg_pool3d_with(&options),
            };
            Case::new(vec![x], call)
                .option("kernel", kernel)
                .option("stride", stride)
                .option("padding", padding)
                .option("ceil", ceil)
                .option("include", include)
        }
        Op::AdaptiveAvgPool1d
        | Op::AdaptiveAvgPool2d
        | Op::AdaptiveAvgPool3d
        | Op::AdaptiveMaxPool1d
        | Op::AdaptiveMaxPool2d
        | Op::AdaptiveMaxPool3d => {
            let (lengths, output) = (each(d, 1, most), each(d, 1, 5));
            let c = d.size(1..=3);
            let x = d.float(&[&[2, c], &lengths[..]].concat())?;
            let sizes = output.clone();
            let call = move |x: &[Tensor]| match op {
                Op::AdaptiveAvgPool1d => x[0].adaptive_avg_pool1d(&sizes),
                Op::AdaptiveAvgPool2d => x[0].adaptive_avg_pool2d(&sizes),
                Op::AdaptiveAvgPool3d => x[0].adaptive_avg_pool3d(&sizes),
                Op::AdaptiveMaxPool1d => x[0].adaptive_max_pool1d(&sizes),
                Op::AdaptiveMaxPool2d => x[0].adaptive_max_pool2d(&sizes),
                _ => x[0].adaptive_max_pool3d(&sizes),
            };
            Case::new(vec![x], call).option("output", output)
        }
        _ => return Ok(None),
    };
    Ok(Some(case))
}

/// Draws ops that sample an image between its pixels.
pub fn sampled(op: Op, d: &mut Draw) -> Result<Option<Case>> {
    let case = match op {
        Op::Interpolate => {
            let axes = d.size(1..=3);
            let lengths: Vec<usize> = (0..axes).map(|_| d.size(1..=6)).collect();
            let (mode, word) = match axes {
                2 => d.one_of(&[
                    (Interpolation::Nearest, "nearest"),
                    (Interpolation::Linear, "bilinear"),
                    (Interpolation::Cubic, "bicubic"),
                ]),
                1 => d.one_of(&[(Interpolation::Nearest, "nearest"), (Interpolation::Linear, "linear")]),
                _ => d.one_of(&[(Interpolation::Nearest, "nearest"), (Interpolation::Linear, "trilinear")]),
            };
            let corners = mode != Interpolation::Nearest && d.flag();
            let to: Vec<usize> = (0..axes).map(|_| d.size(1..=9)).collect();
            let by = d.flag();
            let size = if by { Resize::By(vec![2.0; axes]) } else { Resize::To(to.clone()) };
            let c = d.size(1..=3);
            let x = d.float(&[&[2, c], &lengths[..]].concat())?;
            Case::new(vec![x], move |x| x[0].interpolate(&size, mode, corners))
                .option("mode", word)
                .option("corners", corners)
                .option("size", if by { json!(null) } else { json!(to) })
        }
        Op::GridSampler2d | Op::GridSampler3d => {
            let axes = axes(op);
            let lengths: Vec<usize> = (0..axes).map(|_| d.size(2..=5)).collect();
            let places: Vec<usize> = (0..axes).map(|_| d.size(1..=4)).collect();
            let mode = d.one_of(&[(Interpolation::Nearest, "nearest"), (Interpolation::Linear, "bilinear")]);
            let padding = d.one_of(&[(GridPadding::Zeros, "zeros"), (GridPadding::Border, "border")]);
            let corners = d.flag();
            let c = d.size(1..=3);
            let x = d.float(&[&[2, c], &lengths[..]].concat())?;
            let grid = d.between(&[&[2], &places[..], &[axes]].concat(), -1.3..1.3)?;
            Case::new(vec![x, grid], move |x| x[0].grid_sample(&x[1], mode.0, padding.0, corners))
                .option("mode", mode.1)
                .option("padding", padding.1)
                .option("corners", corners)
        }
        Op::AffineGrid => {
            let axes = d.size(2..=3);
            let size = [&[2, 3][..], &(0..axes).map(|_| d.size(1..=5)).collect::<Vec<_>>()].concat();
            let corners = d.flag();
            let sizes = size.clone();
            Case::new(vec![d.float(&[2, axes, axes + 1])?], move |x| x[0].affine_grid(&sizes, corners))
                .option("size", size)
                .option("corners", corners)
        }
        _ => return Ok(None),
    };
    Ok(Some(case))
}
