//! Elements written at indices.

use super::{
    super::{
        call::{axis_of, one},
        step::Call,
        value::{Item, Value},
    },
    Table,
    index::{check_range, joined_index},
    tools::{count, from_start},
};
use crate::{
    DType, Tensor,
    error::{Error, Result},
};

pub(super) const OPS: Table = &[
    ("Scatter", scatter_elements),
    ("ScatterElements", scatter_elements),
    ("ScatterND", scatter_nd),
    ("TensorScatter", tensor_scatter),
];

/// Returns whether numbers are added to those at their places.
fn adds(call: &Call<'_>) -> Result<bool> {
    match call.text("reduction")?.unwrap_or("none") {
        "none" => Ok(false),
        "add" => Ok(true),
        other => Err(call.refuse(&format!("the reduction `{other}` has no counterpart here; allowed: none, add"))),
    }
}

/// Runs a scattering that adds integers in f64.
fn floating(item: &Item, src: &Tensor, f: impl FnOnce(&Tensor, &Tensor) -> Result<Tensor>) -> Result<Tensor> {
    if item.is_int() {
        return Ok(f(&item.x.cast(DType::F64), &src.cast(DType::F64))?.cast(DType::I64));
    }
    f(&item.x, src)
}

fn scatter_elements(call: &Call<'_>) -> Result<Vec<Value>> {
    let (item, src) = (call.item(0)?, call.x(2)?);
    let axis = axis_of(call.int("axis", 0)?, item.x.rank())?;
    let index = from_start(call.x(1)?, item.x.shape()[axis])?;
    let x = match adds(call)? {
        true => floating(item, src, |x, src| x.scatter_add(axis as isize, &index, src))?,
        false => item.x.scatter(axis as isize, &index, src)?,
    };
    one(x, item.elem)
}

fn scatter_nd(call: &Call<'_>) -> Result<Vec<Value>> {
    let (item, index, src) = (call.item(0)?, call.x(1)?, call.x(2)?);
    let (shape, of_index) = (item.x.shape(), index.shape());
    let depth = of_index.last().copied().ok_or_else(|| Error::shape("the indices have no axis"))?;
    if depth > shape.len() {
        return Err(Error::shape(format!("indices of the shape {of_index:?} do not fit {shape:?}")));
    }
    let (inner, rest) = shape.split_at(depth);
    check_range(index, inner)?;
    let flat = joined_index(index, inner)?;
    let flat = flat.reshape(&[flat.len()])?;
    let rows = Item { x: item.x.reshape(&[&[count(inner)?], rest].concat())?, ..item.clone() };
    let src = src.reshape(&[&[flat.len()], rest].concat())?;
    let x = match adds(call)? {
        true => floating(&rows, &src, |x, src| x.index_put(&flat, src, true))?,
        false => rows.x.index_put(&flat, &src, false)?,
    };
    one(x.reshape(shape)?, item.elem)
}

/// Writes new entries into a cache, each row at its own place.
fn tensor_scatter(call: &Call<'_>) -> Result<Vec<Value>> {
    let (item, update) = (call.item(0)?, call.x(1)?);
    let shape = item.x.shape();
    let axis = axis_of(call.int("axis", -2)?, shape.len())?;
    let circular = match call.text("mode")?.unwrap_or("linear") {
        "linear" => false,
        "circular" => true,
        other => return Err(Error::value(format!("`mode` is `{other}`; allowed: linear, circular"))),
    };
    let batch = shape.first().copied().unwrap_or(1);
    let starts = call.maybe_numbers(2)?.unwrap_or_else(|| vec![0; batch]);
    let (len, new) = (shape[axis] as i64, update.shape().get(axis).copied().unwrap_or(0) as i64);
    if axis == 0 || starts.len() != batch || update.shape().first() != Some(&batch) {
        return Err(Error::shape(format!("{} starts do not fit {shape:?}", starts.len())));
    }
    let mut rows = Vec::new();
    for (row, start) in starts.iter().enumerate() {
        let place = |at: i64| {
            let at = start.saturating_add(at);
            match circular {
                true if len > 0 => Ok(at.rem_euclid(len)),
                _ if (0..len).contains(&at) => Ok(at),
                _ => Err(Error::value(format!("the place {at} is outside of an axis of {len}"))),
            }
        };
        let places = (0..new).map(place).collect::<Result<Vec<i64>>>()?;
        let places = Tensor::from_vec(places, &[new as usize])?;
        let (into, from) = (item.x.at(0, row)?, update.at(0, row)?);
        rows.push(into.index_copy(axis as isize - 1, &places, &from)?);
    }
    one(Tensor::stack(&rows.iter().collect::<Vec<_>>(), 0)?, item.elem)
}
