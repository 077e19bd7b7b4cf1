//! Pools, resampling, and grid sampling.

use precast::{GridPadding, Interpolation, Op, PoolOptions, Resize, Result, Tensor};

use crate::gradients::{
    conv::padding,
    inputs::Draw,
    row::{Case, Row, check_all},
};

type Pool = fn(&Tensor, &PoolOptions) -> Result<Tensor>;
type Adaptive = fn(&Tensor, &[usize]) -> Result<Tensor>;

fn pool(op: Op, axes: usize, f: Pool, max: bool) -> Row {
    Row::new(op, move |d| {
        let kernel = d.sizes(axes, 1..=3);
        let most = kernel.iter().min().expect("an axis") - 1;
        let options = PoolOptions::default()
            .stride(if d.flag() { vec![] } else { (0..axes).map(|_| d.number(1..=3)).collect() })
            .padding(padding(d, axes, most))
            .ceil(d.flag())
            .count_include_pad(d.flag())
            .kernel(kernel);
        let more = if axes == 1 { 0..=6 } else { 0..=2 };
        let input: Vec<usize> = options.kernel.iter().map(|k| k + d.size(more.clone())).collect();
        let shape = [vec![d.samples(3), d.size(1..=3)], input].concat();
        let x = if max { d.apart(&shape) } else { d.tensor(&shape, -1.0..1.0) };
        Case::new([x], move |x| f(&x[0], &options))
    })
}

fn adaptive(op: Op, axes: usize, f: Adaptive, max: bool) -> Row {
    Row::new(op, move |d| {
        let input = d.sizes(axes, 1..=if axes == 1 { 9 } else { 4 });
        let output: Vec<usize> = input.iter().map(|&len| d.size(1..=len + 1)).collect();
        let shape = [vec![d.samples(3), d.size(1..=3)], input].concat();
        let x = if max { d.apart(&shape) } else { d.tensor(&shape, -1.0..1.0) };
        Case::new([x], move |x| f(&x[0], &output))
    })
}

fn interpolate(mode: Interpolation, axes: std::ops::RangeInclusive<usize>) -> Row {
    Row::new(Op::Interpolate, move |d| {
        let axes = d.number(axes.clone());
        let (samples, channels) = (d.samples(2), d.size(1..=2));
        let shape = [vec![samples, channels], d.sizes(axes, 1..=4)].concat();
        let size = if d.flag() { Resize::To(d.sizes(axes, 1..=5)) } else { Resize::By(vec![1.75]) };
        let corners = mode != Interpolation::Nearest && d.flag();
        Case::new([d.tensor(&shape, -1.0..1.0)], move |x| x[0].interpolate(&size, mode, corners))
    })
}

fn grid_sample(op: Op, axes: usize, mode: Interpolation) -> Row {
    Row::new(op, move |d| {
        let (n, channels) = (d.samples(2), d.size(1..=2));
        let x = [vec![n, channels], d.sizes(axes, 1..=4)].concat();
        let grid = [vec![n], d.sizes(axes, 1..=3), vec![axes]].concat();
        let (padding, corners) = (d.pick(&[GridPadding::Zeros, GridPadding::Border]), d.flag());
        let inputs = [d.tensor(&x, -1.0..1.0), places(d, &grid, &x[2..], corners)];
        Case::new(inputs, move |x| x[0].grid_sample(&x[1], mode, padding, corners))
    })
}

/// Draws coordinates inside and outside of an image, at least 0.05 elements away from the jumps of the slope: at an
/// element, and halfway between two.
fn places(d: &mut Draw, grid: &[usize], lens: &[usize], corners: bool) -> Tensor {
    let kinks: Vec<f64> = (-8..=16).map(|i| f64::from(i) / 2.0).collect();
    let count: usize = grid.iter().product();
    let data: Vec<f64> = (0..count)
        .map(|i| {
            // The first coordinate is that of the last axis.
            let len = lens[lens.len() - 1 - i % lens.len()] as f64;
            let place = d.away(&[1], -1.4..len + 0.4, &kinks).to_f64()[0];
            match corners {
                true if len == 1.0 => place,
                true => place / (len - 1.0) * 2.0 - 1.0,
                false => (place + 0.5) / len * 2.0 - 1.0,
            }
        })
        .collect();
    Tensor::from_vec(data, grid).expect("one number for each coordinate")
}

pub fn rows() -> Vec<Row> {
    vec![
        pool(Op::MaxPool1d, 1, Tensor::max_pool1d_with, true),
        pool(Op::MaxPool2d, 2, Tensor::max_pool2d_with, true),
        pool(Op::MaxPool3d, 3, Tensor::max_pool3d_with, true),
        pool(Op::AvgPool1d, 1, Tensor::avg_pool1d_with, false),
        pool(Op::AvgPool2d, 2, Tensor::avg_pool2d_with, false),
        pool(Op::AvgPool3d, 3, Tensor::avg_pool3d_with, false),
        adaptive(Op::AdaptiveAvgPool1d, 1, Tensor::adaptive_avg_pool1d, false),
        adaptive(Op::AdaptiveAvgPool2d, 2, Tensor::adaptive_avg_pool2d, false),
        adaptive(Op::AdaptiveAvgPool3d, 3, Tensor::adaptive_avg_pool3d, false),
        adaptive(Op::AdaptiveMaxPool1d, 1, Tensor::adaptive_max_pool1d, true),
        adaptive(Op::AdaptiveMaxPool2d, 2, Tensor::adaptive_max_pool2d, true),
        adaptive(Op::AdaptiveMaxPool3d, 3, Tensor::adaptive_max_pool3d, true),
        interpolate(Interpolation::Nearest, 1..=3).named("nearest"),
        interpolate(Interpolation::Linear, 1..=3).named("linear"),
        interpolate(Interpolation::Cubic, 2..=2).named("cubic"),
        grid_sample(Op::GridSampler2d, 2, Interpolation::Nearest).named("nearest"),
        grid_sample(Op::GridSampler2d, 2, Interpolation::Linear).named("linear"),
        grid_sample(Op::GridSampler3d, 3, Interpolation::Nearest).named("nearest"),
        grid_sample(Op::GridSampler3d, 3, Interpolation::Linear).named("linear"),
        Row::new(Op::AffineGrid, |d| {
            let (n, [c, h, w], corners) = (d.length(), [(); 3].map(|()| d.size(1..=4)), d.flag());
            Case::new([d.tensor(&[n, 2, 3], -1.0..1.0)], move |x| x[0].affine_grid(&[n, c, h, w], corners))
        }),
    ]
}

#[test]
fn gradients() {
    check_all(rows());
}
