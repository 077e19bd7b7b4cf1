//! Matrix products and convolutions.

use super::super::{
    call::{Call, Emit, lengths, one},
    message::{Attr, Val},
};
use crate::Dim;
use precast::{ConvOptions, ConvTransposeOptions, Op, Padding, error::Result};

pub(super) fn find(op: Op) -> Option<Emit> {
    Some(match op {
        Op::MatMul | Op::MatMulExt | Op::BatchMatMul | Op::Dot | Op::Mv => |c| c.same("MatMul", &[]),
        Op::Linear => linear,
        Op::BiasAdd => |c| {
            let (x, bias) = (c.input(0)?, c.input(1)?);
            let bias = along_channels(c, &bias, c.rank(0))?;
            one(c.node("Add", &[&x, &bias], &[]))
        },
        Op::Ger => |c| {
            let (a, b) = (c.input(0)?, c.input(1)?);
            let column = c.unsqueeze(&a, &[1])?;
            one(c.node("Mul", &[&column, &b], &[]))
        },
        Op::Addmm => |c| c.same("Gemm", &[]),
        Op::Baddbmm | Op::Addmv => |c| {
            let [a, b, added] = [0, 1, 2].map(|place| c.input(place));
            let product = c.node("MatMul", &[&a?, &b?], &[])?;
            one(c.node("Add", &[&product, &added?], &[]))
        },
        Op::Addbmm => |c| {
            let [a, b, added] = [0, 1, 2].map(|place| c.input(place));
            let products = c.node("MatMul", &[&a?, &b?], &[])?;
            let sum = c.reduce("ReduceSum", &products, &[0], false)?;
            one(c.node("Add", &[&sum, &added?], &[]))
        },
        Op::MultiDot => |c| {
            let mut product = c.input(0)?;
            for place in 1..c.x.len() {
                let next = c.input(place)?;
                product = c.node("MatMul", &[&product, &next], &[])?;
            }
            Ok(vec![product])
        },
        Op::Conv1d | Op::Conv2d | Op::Conv3d => convolution,
        Op::ConvTranspose1d | Op::ConvTranspose2d | Op::ConvTranspose3d => transposed,
        _ => return None,
    })
}

/// Returns a vector that broadcasts along the second of some axes.
pub(super) fn along_channels(c: &mut Call<'_>, x: &Val, rank: usize) -> Result<Val> {
    match rank {
        0..=2 => Ok(x.clone()),
        rank => c.unsqueeze(x, &(1..rank as i64 - 1).collect::<Vec<_>>()),
    }
}

/// One product with its bias, and one rounding: other axes than the last are joined for it.
fn linear(c: &mut Call<'_>) -> Result<Vec<Val>> {
    let mut inputs = c.x.clone();
    let rank = c.rank(0);
    let features = c.shape(0)[rank - 1];
    if rank != 2 {
        let rows = joined(&c.shape(0)[..rank - 1]);
        inputs[0] = match rows {
            Some(rows) => c.reshape(&inputs[0], &[rows, features])?,
            None => return matmul(c),
        };
    }
    let inputs: Vec<&Val> = inputs.iter().collect();
    let y = c.node("Gemm", &inputs, &[("transB", Attr::Int(1))])?;
    match rank {
        2 => Ok(vec![y]),
        _ => {
            let shape = c.out().shape.clone();
            one(c.reshape(&y, &shape))
        }
    }
}

/// Returns the product of lengths, of which one at most depends on the batch.
fn joined(lengths: &[Dim]) -> Option<Dim> {
    lengths.iter().try_fold(Dim { each: 0, plus: 1 }, |a, b| match (a.each, b.each) {
        (0, _) => Some(Dim { each: a.plus.checked_mul(b.each)?, plus: a.plus.checked_mul(b.plus)? }),
        (_, 0) => Some(Dim { each: a.each.checked_mul(b.plus)?, plus: a.plus.checked_mul(b.plus)? }),
        _ => None,
    })
}

fn matmul(c: &mut Call<'_>) -> Result<Vec<Val>> {
    let (x, weight) = (c.input(0)?, c.input(1)?);
    let turned = c.transpose(&weight, &[1, 0])?;
    let y = c.node("MatMul", &[&x, &turned], &[])?;
    match c.x.get(2).cloned() {
        Some(bias) => one(c.node("Add", &[&y, &bias], &[])),
        None => Ok(vec![y]),
    }
}

/// Returns a setting for each axis; a list of one applies to all.
pub(super) fn per_axis<T: Clone>(given: &[T], axes: usize) -> Vec<T> {
    if given.len() == 1 { vec![given[0].clone(); axes] } else { given.to_vec() }
}

/// Returns the pads of windows as ONNX has them: those before all axes, then those after.
pub(super) fn pads(padding: &Padding, input: &[usize], extent: &[usize], stride: &[usize]) -> Vec<(usize, usize)> {
    match padding {
        Padding::Valid => vec![(0, 0); input.len()],
        Padding::Explicit(pairs) => per_axis(pairs, input.len()),
        Padding::Same => (0..input.len())
            .map(|axis| {
                let last = (input[axis].div_ceil(stride[axis]).max(1) - 1) * stride[axis];
                let total = (last + extent[axis]).saturating_sub(input[axis]);
                (total / 2, total - total / 2)
            })
            .collect(),
    }
}

pub(super) fn before_and_after(pairs: &[(usize, usize)]) -> Attr {
    let before = pairs.iter().map(|pair| pair.0 as i64);
    Attr::Ints(before.chain(pairs.iter().map(|pair| pair.1 as i64)).collect())
}

pub(super) fn spatial(c: &Call<'_>) -> Result<Vec<usize>> {
    lengths(&c.shape(0)[2..])
}

fn convolution(c: &mut Call<'_>) -> Result<Vec<Val>> {
    let options: ConvOptions = c.attr("options")?;
    let (input, kernel) = (spatial(c)?, c.fixed(1)?[2..].to_vec());
    let axes = input.len();
    let (stride, dilation) = (per_axis(&options.stride, axes), per_axis(&options.dilation, axes));
    let extent: Vec<usize> = kernel.iter().zip(&dilation).map(|(len, by)| (len - 1) * by + 1).collect();
    let pads = pads(&options.padding, &input, &extent, &stride);
    c.same(
        "Conv",
        &[
            ("kernel_shape", Attr::lengths(&kernel)),
            ("strides", Attr::lengths(&stride)),
            ("pads", before_and_after(&pads)),
            ("dilations", Attr::lengths(&dilation)),
            ("group", Attr::Int(options.groups as i64)),
        ],
    )
}

fn transposed(c: &mut Call<'_>) -> Result<Vec<Val>> {
    let options: ConvTransposeOptions = c.attr("options")?;
    let (input, kernel) = (spatial(c)?, c.fixed(1)?[2..].to_vec());
    let output = lengths(&c.out().shape[2..])?;
    let axes = input.len();
    let (stride, dilation) = (per_axis(&options.stride, axes), per_axis(&options.dilation, axes));
    let extent: Vec<usize> = kernel.iter().zip(&dilation).map(|(len, by)| (len - 1) * by + 1).collect();
    let whole: Vec<usize> = (0..axes).map(|axis| (input[axis] - 1) * stride[axis] + extent[axis]).collect();
    let pads: Vec<(usize, usize)> = match &options.padding {
        // What the whole output has more is cut off, half of it before.
        Padding::Same => (0..axes)
            .map(|axis| {
                let total = whole[axis].saturating_sub(input[axis] * stride[axis]);
                (total / 2, total - total / 2)
            })
            .collect(),
        padding => pads(padding, &input, &extent, &stride),
    };
    // An output may be longer than its windows, and longer than ONNX's padding of outputs.
    let longer = |axis: usize| output[axis] + pads[axis].0 + pads[axis].1 - whole[axis];
    let most = |axis: usize| stride[axis].max(dilation[axis]) - 1;
    let added: Vec<usize> = (0..axes).map(|axis| longer(axis).min(most(axis))).collect();
    let beyond: Vec<usize> = (0..axes).map(|axis| longer(axis) - added[axis]).collect();
    let attributes = [
        ("kernel_shape", Attr::lengths(&kernel)),
        ("strides", Attr::lengths(&stride)),
        ("pads", before_and_after(&pads)),
        ("output_padding", Attr::lengths(&added)),
        ("dilations", Attr::lengths(&dilation)),
        ("group", Attr::Int(options.groups as i64)),
    ];
    if beyond.iter().all(|&len| len == 0) {
        return c.same("ConvTranspose", &attributes);
    }
    let (x, weight) = (c.input(0)?, c.input(1)?);
    let y = c.node("ConvTranspose", &[&x, &weight], &attributes)?;
    let pads = [vec![0; axes + 4], beyond.iter().map(|&len| len as i64).collect()].concat();
    let pads = c.ints(&pads)?;
    let y = c.node("Pad", &[&y, &pads], &[])?;
    match c.x.get(2).cloned() {
        Some(bias) => {
            let bias = along_channels(c, &bias, axes + 2)?;
            one(c.node("Add", &[&y, &bias], &[]))
        }
        None => Ok(vec![y]),
    }
}
