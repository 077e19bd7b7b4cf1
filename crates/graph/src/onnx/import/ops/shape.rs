//! Ops that change the shape alone, or return it.

use super::{
    super::{
        call::{axis_of, known, lengths, one},
        step::Call,
        value::{Item, Value, room},
    },
    Table,
    tools::{broadcast, count},
};
use precast::{
    Tensor,
    error::{Error, Result},
};

pub(super) const OPS: Table = &[
    ("Reshape", reshape),
    ("Flatten", flatten),
    ("Squeeze", squeeze),
    ("Unsqueeze", unsqueeze),
    ("Transpose", transpose),
    ("Expand", expand),
    ("Tile", tile),
    ("Concat", concat),
    ("Split", split),
    ("Shape", shape),
    ("Size", |call| known(Item::int(count(call.x(0)?.shape())? as i64)?)),
];

fn reshape(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let to = if call.opset() < 5 { call.ints("shape")? } else { Some(call.numbers(1)?) };
    let to = to.ok_or_else(|| Error::value("its attribute `shape` is missing"))?;
    let keeps_zero = call.flag("allowzero", false)?;
    let from = item.x.shape();
    let length = |(axis, len): (usize, &i64)| match *len {
        0 if !keeps_zero => match from.get(axis) {
            Some(len) => Ok(*len as isize),
            None => Err(Error::shape(format!("axis {axis} of {to:?} keeps its length, and {from:?} has no such axis"))),
        },
        len => Ok(isize::try_from(len).unwrap_or(isize::MAX)),
    };
    let mut shape = to.iter().enumerate().map(length).collect::<Result<Vec<isize>>>()?;
    // An empty tensor says nothing about an axis of -1, unless the others are not empty.
    if item.x.is_empty() && shape.contains(&-1) {
        let others: Vec<usize> = shape.iter().filter_map(|len| usize::try_from(*len).ok()).collect();
        if count(&others)? != 0 {
            shape.iter_mut().filter(|len| **len == -1).for_each(|len| *len = 0);
        }
    }
    one(item.x.reshape(&shape)?, item.elem)
}

fn flatten(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let rank = item.x.rank();
    let axis = call.int("axis", 1)?;
    let axis = if axis == rank as i64 { rank } else { axis_of(axis, rank)? };
    let (before, after) = item.x.shape().split_at(axis);
    one(item.x.reshape(&[count(before)?, count(after)?])?, item.elem)
}

fn squeeze(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let from = item.x.shape();
    let mut axes = match call.ints_since(13, 1, "axes")? {
        Some(axes) => axes.iter().map(|axis| axis_of(*axis, from.len())).collect::<Result<Vec<usize>>>()?,
        None => (0..from.len()).filter(|axis| from[*axis] == 1).collect(),
    };
    axes.sort_unstable();
    axes.dedup();
    let x = axes.iter().rev().try_fold(item.x.clone(), |x, axis| x.squeeze(*axis as isize))?;
    one(x, item.elem)
}

fn unsqueeze(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let axes = call.ints_since(13, 1, "axes")?.ok_or_else(|| Error::value("its axes are missing"))?;
    let rank = item.x.rank() + axes.len();
    let mut axes = axes.iter().map(|axis| axis_of(*axis, rank)).collect::<Result<Vec<usize>>>()?;
    axes.sort_unstable();
    if axes.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Error::shape(format!("the axes {axes:?} have one twice")));
    }
    let x = axes.iter().try_fold(item.x.clone(), |x, axis| x.unsqueeze(*axis as isize))?;
    one(x, item.elem)
}

fn transpose(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let rank = item.x.rank();
    let axes = match call.ints("perm")? {
        Some(axes) => axes.iter().map(|axis| axis_of(*axis, rank)).collect::<Result<Vec<usize>>>()?,
        None => (0..rank).rev().collect(),
    };
    one(item.x.permute(&axes)?, item.elem)
}

fn expand(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let to = broadcast(item.x.shape(), &lengths(&call.numbers(1)?)?)?;
    room(&to)?;
    one(if to == item.x.shape() { item.x.clone() } else { item.x.broadcast_to(&to)? }, item.elem)
}

fn tile(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let from = item.x.shape();
    let repeats = match call.opset() < 6 {
        true => {
            let mut repeats = vec![1; from.len()];
            repeats[axis_of(call.number(2)?, from.len())?] = call.number(1)?;
            repeats
        }
        false => call.numbers(1)?,
    };
    let repeats = lengths(&repeats)?;
    if repeats.len() != from.len() {
        return Err(Error::shape(format!("{} repeats for {} axes", repeats.len(), from.len())));
    }
    one(tiled(&item.x, &repeats)?, item.elem)
}

/// Repeats a tensor along its axes.
pub(super) fn tiled(x: &Tensor, repeats: &[usize]) -> Result<Tensor> {
    let from = x.shape();
    if repeats.iter().all(|times| *times == 1) {
        return Ok(x.clone());
    }
    let (mut apart, mut stretched, mut to) = (vec![], vec![], vec![]);
    for (len, times) in from.iter().zip(repeats) {
        apart.extend([1, *len]);
        stretched.extend([*times, *len]);
        to.push(count(&[*len, *times])?);
    }
    room(&to)?;
    x.reshape(&apart)?.broadcast_to(&stretched)?.reshape(&to)
}

fn concat(call: &Call<'_>) -> Result<Vec<Value>> {
    let all = call.all()?;
    let axis = call.maybe_int("axis")?;
    let axis = match axis {
        Some(axis) => axis,
        None if call.opset() < 4 => 1,
        None => return Err(Error::value("its attribute `axis` is missing")),
    };
    let axis = axis_of(axis, all[0].x.rank())?;
    let tensors: Vec<&Tensor> = all.iter().map(|item| &item.x).collect();
    one(Tensor::concat(&tensors, axis as isize)?, all[0].elem)
}

fn split(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let axis = axis_of(call.int("axis", 0)?, item.x.rank())?;
    let len = item.x.shape()[axis];
    let parts = match call.ints_since(13, 1, "split")? {
        Some(parts) => lengths(&parts)?,
        None => {
            let given = call.maybe_int("num_outputs")?.map(|count| lengths(&[count])).transpose()?;
            let count = given.map_or(call.step.outputs.len(), |count| count[0]);
            equal_parts(len, count)?
        }
    };
    let parts = item.x.split(&parts, axis as isize)?;
    Ok(parts.into_iter().map(|x| Item::computed(x, item.elem).into()).collect())
}

/// Returns the lengths of a number of parts; the last may be shorter.
fn equal_parts(len: usize, parts: usize) -> Result<Vec<usize>> {
    if parts == 0 || parts > len.max(1) {
        return Err(Error::shape(format!("{len} elements cannot be split into {parts} parts")));
    }
    let part = len.div_ceil(parts);
    Ok((0..parts).map(|index| part.min(len.saturating_sub(index * part))).collect())
}

fn shape(call: &Call<'_>) -> Result<Vec<Value>> {
    let shape = call.x(0)?.shape();
    let rank = shape.len() as i64;
    let place = |axis: i64| if axis < 0 { axis.saturating_add(rank) } else { axis }.clamp(0, rank) as usize;
    let (start, end) = (place(call.int("start", 0)?), place(call.int("end", i64::MAX)?));
    known(Item::ints(shape[start..end.max(start)].iter().map(|len| *len as i64).collect())?)
}
