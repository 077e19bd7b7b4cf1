//! Pools.

use super::{
    super::{
        call::{Call, Emit, lengths, one},
        message::{Attr, Val},
    },
    product::{before_and_after, pads, per_axis, spatial},
};
use crate::Dim;
use precast::{Op, Padding, PoolOptions, error::Result};

pub(super) fn find(op: Op) -> Option<Emit> {
    Some(match op {
        Op::MaxPool1d | Op::MaxPool2d | Op::MaxPool3d => |c| pool(c, true),
        Op::AvgPool1d | Op::AvgPool2d | Op::AvgPool3d => |c| pool(c, false),
        Op::AdaptiveAvgPool1d | Op::AdaptiveAvgPool2d | Op::AdaptiveAvgPool3d => |c| adaptive(c, false),
        Op::AdaptiveMaxPool1d | Op::AdaptiveMaxPool2d | Op::AdaptiveMaxPool3d => |c| adaptive(c, true),
        _ => return None,
    })
}

fn pool(c: &mut Call<'_>, largest: bool) -> Result<Vec<Val>> {
    let options: PoolOptions = c.attr("options")?;
    let input = spatial(c)?;
    let axes = input.len();
    let kernel = per_axis(&options.kernel, axes);
    let stride = if options.stride.is_empty() { kernel.clone() } else { per_axis(&options.stride, axes) };
    let pads = pads(&options.padding, &input, &kernel, &stride);
    let counts_padding = options.count_include_pad && options.padding != Padding::Same;
    let some = pads.iter().any(|pair| *pair != (0, 0));
    if !largest
        && options.ceil
        && (counts_padding && some || c.writer.opset < 19)
        && exceeds(&input, &kernel, &stride, &pads)
    {
        return Err(c.refuse("runtimes differ in the average of a last window that ends outside of the padding"));
    }
    let mut attributes = vec![
        ("kernel_shape", Attr::lengths(&kernel)),
        ("strides", Attr::lengths(&stride)),
        ("pads", before_and_after(&pads)),
    ];
    if options.ceil {
        attributes.push(("ceil_mode", Attr::Int(1)));
    }
    if !largest {
        attributes.push(("count_include_pad", Attr::flag(counts_padding)));
    }
    c.same(if largest { "MaxPool" } else { "AveragePool" }, &attributes)
}

/// Returns whether a last window is cut.
fn exceeds(input: &[usize], kernel: &[usize], stride: &[usize], pads: &[(usize, usize)]) -> bool {
    let rest = |axis: usize| input[axis] + pads[axis].0 + pads[axis].1 - kernel[axis];
    (0..input.len()).any(|axis| !rest(axis).is_multiple_of(stride[axis]))
}

/// Windows of all elements, of equal lengths, or one after another along each axis.
fn adaptive(c: &mut Call<'_>, largest: bool) -> Result<Vec<Val>> {
    let (input, output) = (spatial(c)?, lengths(&c.out().shape[2..])?);
    if output.iter().all(|&len| len == 1) {
        return c.same(if largest { "GlobalMaxPool" } else { "GlobalAveragePool" }, &[]);
    }
    if input.iter().zip(&output).all(|(from, to)| from % to == 0) {
        let windows: Vec<usize> = input.iter().zip(&output).map(|(from, to)| from / to).collect();
        let attributes = [("kernel_shape", Attr::lengths(&windows)), ("strides", Attr::lengths(&windows))];
        return c.same(if largest { "MaxPool" } else { "AveragePool" }, &attributes);
    }
    let mut x = c.input(0)?;
    for (axis, (&from, &to)) in input.iter().zip(&output).enumerate().filter(|(_, (from, to))| from != to) {
        let mut parts = Vec::new();
        for window in 0..to {
            let range = [window * from / to, ((window + 1) * from).div_ceil(to)].map(Dim::fixed);
            let part = c.slice(&x, axis + 2, range)?;
            parts.push(c.reduce(if largest { "ReduceMax" } else { "ReduceMean" }, &part, &[axis + 2], true)?);
        }
        x = c.concat(&parts.iter().collect::<Vec<_>>(), axis + 2)?;
    }
    one(Ok(x))
}
