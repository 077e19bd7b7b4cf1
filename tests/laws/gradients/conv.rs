//! Convolutions and transposed convolutions over one to three axes.

use precast::{ConvOptions, ConvTransposeOptions, Op, Padding};

use crate::gradients::{
    inputs::Draw,
    row::{Case, Row, check_all},
};

/// Draws padding or cropping.
pub fn padding(d: &mut Draw, axes: usize, most: usize) -> Padding {
    match d.number(0..=3) {
        0 => Padding::Valid,
        1 => Padding::Same,
        2 => Padding::all(d.number(0..=most)),
        _ => Padding::Explicit((0..axes).map(|_| (d.number(0..=most), d.number(0..=most))).collect()),
    }
}

/// Returns the maximum size along an axis, smaller for more axes.
fn most(axes: usize) -> usize {
    if axes == 3 { 2 } else { 3 }
}

fn numbers(d: &mut Draw, count: usize, low: usize, high: usize) -> Vec<usize> {
    (0..count).map(|_| d.number(low..=high)).collect()
}

fn conv(op: Op, axes: usize) -> Row {
    Row::new(op, move |d| {
        let groups = d.size(1..=2);
        let (ins, outs) = (groups * d.size(1..=2), groups * d.size(1..=2));
        let kernel = d.sizes(axes, 1..=most(axes));
        let options = ConvOptions::default()
            .stride(numbers(d, axes, 1, 3))
            .padding(padding(d, axes, 2))
            .dilation(numbers(d, axes, 1, 2))
            .groups(groups);
        let reach = |i: usize| options.dilation[i] * (kernel[i] - 1) + 1;
        let input: Vec<usize> = (0..axes).map(|i| reach(i) + d.size(0..=most(axes))).collect();
        let x = [vec![d.samples(2), ins], input].concat();
        let weight = [vec![outs, ins / groups], kernel.clone()].concat();
        let mut inputs = vec![d.tensor(&x, -1.0..1.0), d.tensor(&weight, -1.0..1.0)];
        if d.flag() {
            inputs.push(d.tensor(&[outs], -1.0..1.0));
        }
        Case::new(inputs, move |x| match axes {
            1 => x[0].conv1d(&x[1], x.get(2), &options),
            2 => x[0].conv2d(&x[1], x.get(2), &options),
            _ => x[0].conv3d(&x[1], x.get(2), &options),
        })
    })
}

fn transposed(op: Op, axes: usize) -> Row {
    Row::new(op, move |d| {
        let groups = d.size(1..=2);
        let (ins, outs) = (groups * d.size(1..=2), groups * d.size(1..=2));
        let kernel = d.sizes(axes, 1..=most(axes));
        let options = ConvTransposeOptions::default()
            .stride(numbers(d, axes, 2, 3))
            .padding(padding(d, axes, 1))
            .output_padding(numbers(d, axes, 0, 1))
            .dilation(numbers(d, axes, 1, 2))
            .groups(groups);
        // At least two positions along each axis, so that some remain after a padding of one on either side.
        let x = [vec![d.samples(2), ins], numbers(d, axes, 2, most(axes))].concat();
        let weight = [vec![ins, outs / groups], kernel].concat();
        let mut inputs = vec![d.tensor(&x, -1.0..1.0), d.tensor(&weight, -1.0..1.0)];
        if d.flag() {
            inputs.push(d.tensor(&[outs], -1.0..1.0));
        }
        Case::new(inputs, move |x| match axes {
            1 => x[0].conv_transpose1d(&x[1], x.get(2), &options),
            2 => x[0].conv_transpose2d(&x[1], x.get(2), &options),
            _ => x[0].conv_transpose3d(&x[1], x.get(2), &options),
        })
    })
}

pub fn rows() -> Vec<Row> {
    vec![
        conv(Op::Conv1d, 1),
        conv(Op::Conv2d, 2),
        conv(Op::Conv3d, 3),
        transposed(Op::ConvTranspose1d, 1),
        transposed(Op::ConvTranspose2d, 2),
        transposed(Op::ConvTranspose3d, 3),
    ]
}

#[test]
fn gradients() {
    check_all(rows());
}
