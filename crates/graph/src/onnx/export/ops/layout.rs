//! Shapes, parts of tensors, and tensors joined.

use super::super::{
    call::{Call, Emit, from_start, lengths, one},
    message::{Attr, Val},
};
use crate::{Dim, dim_of};
use precast::{
    DType, Op, Tensor,
    error::{Error, Result},
};

pub(super) fn find(op: Op) -> Option<Emit> {
    Some(match op {
        Op::Reshape => |c| reshaped(c),
        Op::Flatten => |c| match (c.attr::<usize>("start_axis")?, c.out().shape.len()) {
            (1, 2) => {
                let x = c.input(0)?;
                one(c.writer.node_of("Flatten", x.dtype, &[&x], &[("axis", Attr::Int(1))]))
            }
            _ => reshaped(c),
        },
        Op::Unsqueeze => |c| {
            let (x, axis) = (c.input(0)?, c.axis(c.rank(0) + 1)?);
            one(c.unsqueeze(&x, &[axis as i64]))
        },
        Op::Squeeze => |c| {
            let (x, axis) = (c.input(0)?, c.axis(c.rank(0))?);
            one(c.squeeze(&x, &[axis as i64]))
        },
        Op::Transpose => |c| {
            let (x, axes) = (c.input(0)?, c.attr::<Vec<usize>>("axes")?);
            one(c.transpose(&x, &axes))
        },
        Op::Broadcast => |c| {
            let (x, shape) = (c.input(0)?, c.out().shape.clone());
            let shape = c.writer.lengths(&shape)?;
            one(c.writer.node_of("Expand", x.dtype, &[&x, &shape], &[]))
        },
        Op::Slice | Op::Split => part,
        Op::Concat => |c| {
            let axis = c.axis(c.rank(0))?;
            let parts = parts(c)?;
            one(c.concat(&parts.iter().collect::<Vec<_>>(), axis))
        },
        Op::Stack => |c| {
            let axis = c.axis(c.rank(0) + 1)?;
            let parts = parts(c)?;
            let parts = parts.iter().map(|x| c.unsqueeze(x, &[axis as i64])).collect::<Result<Vec<_>>>()?;
            one(c.concat(&parts.iter().collect::<Vec<_>>(), axis))
        },
        Op::Pad => |c| padded(c, "constant"),
        Op::ReflectionPad => |c| padded(c, "reflect"),
        Op::ReplicationPad => |c| padded(c, "edge"),
        Op::PixelShuffle => |c| match c.rank(0) {
            4 => {
                let (x, r) = (c.input(0)?, c.attr::<usize>("r")? as i64);
                let attributes = [("blocksize", Attr::Int(r)), ("mode", Attr::Text("CRD"))];
                one(c.writer.node_of("DepthToSpace", x.dtype, &[&x], &attributes))
            }
            rank => Err(Error::unsupported(format!("ONNX takes [n, c, h, w], and it has {rank} axes"))),
        },
        Op::SpaceToDepth => space_to_depth,
        Op::Reverse => flipped,
        Op::Roll => rolled,
        Op::Tile => tiled,
        Op::Tril => |c| triangle(c, false),
        Op::Triu => |c| triangle(c, true),
        _ => return None,
    })
}

fn reshaped(c: &mut Call<'_>) -> Result<Vec<Val>> {
    let (x, shape) = (c.input(0)?, c.out().shape.clone());
    one(c.reshape(&x, &shape))
}

/// Returns the inputs in the dtype of the output.
fn parts(c: &mut Call<'_>) -> Result<Vec<Val>> {
    let to = c.out_dtype();
    c.x.clone().iter().map(|x| c.writer.cast(x, to)).collect()
}

/// Returns a number of an attribute that may depend on the batch.
fn dim(value: &serde_json::Value) -> Result<Dim> {
    let fixed = || value.as_i64().map(|plus| Dim { each: 0, plus });
    dim_of(value).or_else(fixed).ok_or_else(|| Error::value(format!("{value} is not a whole number")))
}

/// A part of an axis, which is dropped if it is of one place.
fn part(c: &mut Call<'_>) -> Result<Vec<Val>> {
    let (x, axis) = (c.input(0)?, c.axis(c.rank(0))?);
    let range = c.attributes().iter().find(|(name, _)| *name == "range").and_then(|(_, range)| range.as_array());
    let Some([start, end]) = range.map(|range| &range[..]) else { return Err(Error::value("its range is missing")) };
    let range = [dim(start)?, dim(end)?];
    let keeps = !c.attributes().has("keep_axis") || c.attr::<bool>("keep_axis")?;
    if keeps {
        return one(c.slice(&x, axis, range));
    }
    let at = if range[0].each == 0 {
        c.writer.constant(Tensor::from_vec(vec![range[0].plus], &[])?)?
    } else {
        let at = c.writer.lengths(&range[..1])?;
        c.squeeze(&at, &[0])?
    };
    one(c.writer.node_of("Gather", x.dtype, &[&x, &at], &[("axis", Attr::Int(axis as i64))]))
}

fn padded(c: &mut Call<'_>, mode: &'static str) -> Result<Vec<Val>> {
    let x = c.input(0)?;
    let pairs: Vec<(usize, usize)> = c.attr("pairs")?;
    let before = pairs.iter().map(|pair| pair.0 as i64);
    let pads = c.ints(&before.chain(pairs.iter().map(|pair| pair.1 as i64)).collect::<Vec<_>>())?;
    let mode_of = [("mode", Attr::Text(mode))];
    if mode != "constant" {
        return one(c.node("Pad", &[&x, &pads], &mode_of));
    }
    let value: f64 = c.attr("value")?;
    let value = c.writer.number(value, x.dtype)?;
    if x.dtype == DType::Bool {
        return Err(c.refuse("runtimes pad no truth values"));
    }
    one(c.writer.node_of("Pad", x.dtype, &[&x, &pads, &value], &mode_of))
}

/// ONNX has the places within a block before the channels, and precast after them.
fn space_to_depth(c: &mut Call<'_>) -> Result<Vec<Val>> {
    let (x, r) = (c.input(0)?, c.attr::<usize>("r")?);
    let rank = c.rank(0);
    let shape = c.shape(0).to_vec();
    let leading = rank - 2;
    let sides = lengths(&shape[leading..])?;
    let blocks = [sides[0] / r, r, sides[1] / r, r].map(Dim::fixed);
    let x = c.reshape(&x, &[&shape[..leading], &blocks[..]].concat())?;
    let order: Vec<usize> = (0..leading).chain([leading + 1, leading + 3, leading, leading + 2]).collect();
    let x = c.transpose(&x, &order)?;
    let to = c.out().shape.clone();
    one(c.reshape(&x, &to))
}

fn flipped(c: &mut Call<'_>) -> Result<Vec<Val>> {
    let (x, rank) = (c.input(0)?, c.rank(0));
    let axes = c.attr::<Vec<isize>>("axes")?;
    let axes = axes.iter().map(|&axis| Ok(from_start(axis, rank)? as i64)).collect::<Result<Vec<i64>>>()?;
    // The end is exclusive, and before the first element.
    let parts = [vec![-1; axes.len()], vec![i64::MIN + 1; axes.len()], axes.clone(), vec![-1; axes.len()]];
    let [starts, ends, axes, steps] = parts.map(|numbers| c.ints(&numbers));
    one(c.writer.node_of("Slice", x.dtype, &[&x, &starts?, &ends?, &axes?, &steps?], &[]))
}

fn rolled(c: &mut Call<'_>) -> Result<Vec<Val>> {
    let (mut x, shape) = (c.input(0)?, c.shape(0).to_vec());
    let (shifts, axes) = (c.attr::<Vec<isize>>("shifts")?, c.attr::<Vec<isize>>("axes")?);
    for (&by, &axis) in shifts.iter().zip(&axes) {
        let axis = from_start(axis, shape.len())?;
        let len = lengths(&shape[axis..=axis])?[0];
        let kept = len - by.rem_euclid(len.max(1) as isize) as usize;
        let back = c.slice(&x, axis, [kept, len].map(Dim::fixed))?;
        let front = c.slice(&x, axis, [0, kept].map(Dim::fixed))?;
        x = c.concat(&[&back, &front], axis)?;
    }
    // A tensor without moves is passed on.
    one(if axes.is_empty() { c.writer.node_of("Identity", x.dtype, &[&x], &[]) } else { Ok(x) })
}

fn tiled(c: &mut Call<'_>) -> Result<Vec<Val>> {
    let (mut x, mut repeats) = (c.input(0)?, c.attr::<Vec<usize>>("repeats")?);
    let rank = c.rank(0);
    if repeats.len() > rank {
        x = c.unsqueeze(&x, &(0..(repeats.len() - rank) as i64).collect::<Vec<_>>())?;
    }
    while repeats.len() < rank {
        repeats.insert(0, 1);
    }
    let repeats = c.ints(&repeats.iter().map(|&times| times as i64).collect::<Vec<_>>())?;
    one(c.writer.node_of("Tile", x.dtype, &[&x, &repeats], &[]))
}

fn triangle(c: &mut Call<'_>, upper: bool) -> Result<Vec<Val>> {
    let (x, diagonal) = (c.input(0)?, c.attr::<isize>("diagonal")?);
    if c.writer.opset >= 14 {
        let diagonal = c.writer.constant(Tensor::from_vec(vec![diagonal as i64], &[])?)?;
        return one(c.writer.node_of("Trilu", x.dtype, &[&x, &diagonal], &[("upper", Attr::flag(upper))]));
    }
    let ones = Tensor::ones(&c.fixed_from(0, c.rank(0) - 2)?, DType::Bool);
    let kept = c.writer.constant(if upper { ones.triu(diagonal) } else { ones.tril(diagonal) }?)?;
    let zero = c.writer.number(0.0, x.dtype)?;
    one(c.writer.node_of("Where", x.dtype, &[&kept, &x, &zero], &[]))
}
