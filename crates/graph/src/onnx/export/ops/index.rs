//! Reading and writing at indices.

use super::super::{
    call::{Call, Emit, one},
    message::{Attr, Val},
};
use precast::{DType, Op, Tensor, error::Result};

pub(super) fn find(op: Op) -> Option<Emit> {
    Some(match op {
        Op::Gather => |c| along(c, "GatherElements"),
        Op::IndexSelect => |c| along(c, "Gather"),
        Op::Embedding => |c| {
            let (table, ids) = (c.input(0)?, c.input(1)?);
            one(c.writer.node_of("Gather", table.dtype, &[&table, &ids], &[("axis", Attr::Int(0))]))
        },
        Op::OneHot => |c| {
            let (index, classes) = (c.input(0)?, c.attr::<usize>("classes")? as i64);
            let depth = c.writer.constant(Tensor::from_vec(vec![classes], &[])?)?;
            let values = c.ints(&[0, 1])?;
            one(c.writer.node_of("OneHot", DType::I64, &[&index, &depth, &values], &[]))
        },
        Op::Scatter => |c| elements(c, false),
        Op::ScatterAdd => |c| elements(c, true),
        Op::IndexPut => |c| {
            let adds = c.attr("accumulate")?;
            rows(c, 0, adds)
        },
        Op::IndexAdd => |c| slices(c, true),
        Op::IndexCopy => |c| slices(c, false),
        _ => return None,
    })
}

fn along(c: &mut Call<'_>, op: &'static str) -> Result<Vec<Val>> {
    let (x, index, axis) = (c.input(0)?, c.input(1)?, c.axis(c.rank(0))?);
    one(c.writer.node_of(op, x.dtype, &[&x, &index], &[("axis", Attr::Int(axis as i64))]))
}

/// Returns the attribute of a scattering that adds.
fn reduction(c: &mut Call<'_>, adds: bool) -> Result<Vec<(&'static str, Attr)>> {
    if !adds {
        return Ok(vec![]);
    }
    if c.writer.opset < 16 {
        return Err(c.refuse("ONNX adds at indices from opset 16 on"));
    }
    // A place may receive several terms.
    c.writer.roundings += 2;
    Ok(vec![("reduction", Attr::Text("add"))])
}

fn elements(c: &mut Call<'_>, adds: bool) -> Result<Vec<Val>> {
    let [x, index, src] = [0, 1, 2].map(|place| c.input(place));
    let (x, axis) = (x?, c.axis(c.rank(0))?);
    let src = c.writer.cast(&src?, x.dtype)?;
    let mut attributes = vec![("axis", Attr::Int(axis as i64))];
    attributes.extend(reduction(c, adds)?);
    one(c.writer.node_of("ScatterElements", x.dtype, &[&x, &index?, &src], &attributes))
}

fn slices(c: &mut Call<'_>, adds: bool) -> Result<Vec<Val>> {
    let axis = c.axis(c.rank(0))?;
    rows(c, axis, adds)
}

/// Writes values at places of an axis, which is the first one meanwhile.
fn rows(c: &mut Call<'_>, axis: usize, adds: bool) -> Result<Vec<Val>> {
    let [x, index, values] = [0, 1, 2].map(|place| c.input(place));
    let (mut x, index) = (x?, index?);
    let mut values = c.writer.cast(&values?, x.dtype)?;
    let (rank, of_values) = (c.rank(0), c.rank(2));
    let first = |rank: usize| -> Vec<usize> { [axis].into_iter().chain((0..rank).filter(|&at| at != axis)).collect() };
    if axis != 0 {
        x = c.transpose(&x, &first(rank))?;
        values = c.transpose(&values, &first(of_values))?;
    }
    let index = c.unsqueeze(&index, &[c.rank(1) as i64])?;
    let attributes = reduction(c, adds)?;
    let y = c.writer.node_of("ScatterND", x.dtype, &[&x, &index, &values], &attributes)?;
    if axis == 0 {
        return Ok(vec![y]);
    }
    let back: Vec<usize> = (0..rank).map(|at| first(rank).iter().position(|&from| from == at).unwrap_or(at)).collect();
    one(c.transpose(&y, &back))
}
