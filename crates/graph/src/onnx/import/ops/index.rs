//! Elements chosen by indices.

use super::{
    super::{
        call::{axis_of, lengths, one},
        step::Call,
        value::{Item, Value},
    },
    Table,
    reduce::places,
    tools::{count, from_start, number, vector},
};
use crate::onnx::tensor::Elem;
use precast::{
    DType, Tensor,
    error::{Error, Result},
    recording::hidden,
};

pub(super) const OPS: Table = &[
    ("Gather", gather),
    ("GatherElements", gather_elements),
    ("GatherND", gather_nd),
    ("OneHot", one_hot),
    ("Hardmax", hardmax),
    ("Trilu", trilu),
    ("NonZero", non_zero),
    ("Compress", compress),
];

fn gather(call: &Call<'_>) -> Result<Vec<Value>> {
    let (item, index) = (call.item(0)?, call.item(1)?);
    let x = &item.x;
    let axis = axis_of(call.int("axis", 0)?, x.rank())?;
    let len = x.shape()[axis];
    if index.known && index.x.rank() == 0 {
        let at = axis_of(call.number(1)?, len).map_err(|_| beyond(&call.numbers(1), len))?;
        return one(x.at(axis as isize, at)?, item.elem);
    }
    let index = from_start(&index.x, len)?;
    if axis == 0 && x.rank() == 2 {
        return one(index.embedding(x)?, item.elem);
    }
    let to = [&x.shape()[..axis], index.shape(), &x.shape()[axis + 1..]].concat();
    one(x.index_select(axis as isize, &index.reshape(&[index.len()])?)?.reshape(&to)?, item.elem)
}

fn beyond(index: &Result<Vec<i64>>, len: usize) -> Error {
    let index = index.as_ref().ok().and_then(|numbers| numbers.first().copied()).unwrap_or(0);
    Error::value(format!("the index {index} is outside of an axis of {len}"))
}

fn gather_elements(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let axis = axis_of(call.int("axis", 0)?, item.x.rank())?;
    let index = from_start(call.x(1)?, item.x.shape()[axis])?;
    one(item.x.gather(axis as isize, &index)?, item.elem)
}

/// Returns one index for each tuple of indices of the last axis, into axes of these lengths joined.
pub(super) fn joined_index(index: &Tensor, lengths: &[usize]) -> Result<Tensor> {
    let (mut flat, mut stride) = (None, 1usize);
    for (axis, len) in lengths.iter().enumerate().rev() {
        let part = from_start(&index.at(-1, axis)?, *len)?;
        let stride_of = Tensor::from_vec(vec![stride as i64], &[])?;
        let part = if stride == 1 { part } else { part.mul(&stride_of)? };
        flat = Some(match flat {
            None => part,
            Some(flat) => part.add(&flat)?,
        });
        stride = count(&[stride, *len])?;
    }
    match flat {
        Some(flat) => Ok(flat),
        // A tuple of no indices is the whole tensor.
        None => Ok(Tensor::zeros(&index.shape()[..index.rank() - 1], DType::I64)),
    }
}

fn gather_nd(call: &Call<'_>) -> Result<Vec<Value>> {
    let (item, index) = (call.item(0)?, call.x(1)?);
    let batch = lengths(&[call.int("batch_dims", 0)?])?[0];
    let (shape, of_index) = (item.x.shape(), index.shape());
    let depth = of_index.last().copied().ok_or_else(|| Error::shape("the indices have no axis"))?;
    if batch + depth > shape.len() || batch >= index.rank() || shape[..batch] != of_index[..batch] {
        return Err(Error::shape(format!("indices of the shape {of_index:?} do not fit {shape:?}")));
    }
    let (inner, rest) = (&shape[batch..batch + depth], &shape[batch + depth..]);
    let (batches, size) = (count(&shape[..batch])?, count(inner)?);
    check_range(index, inner)?;
    let mut flat = joined_index(index, inner)?;
    if batches > 1 {
        let starts: Vec<i64> = (0..batches).map(|i| (i * size) as i64).collect();
        let starts_shape: Vec<usize> = [&shape[..batch], &vec![1; flat.rank() - batch]].concat();
        flat = flat.add(&Tensor::from_vec(starts, &starts_shape)?)?;
    }
    let rows = item.x.reshape(&[&[count(&[batches, size])?], rest].concat())?;
    let to = [&of_index[..of_index.len() - 1], rest].concat();
    one(rows.index_select(0, &flat.reshape(&[flat.len()])?)?.reshape(&to)?, item.elem)
}

/// Checks each index of a tuple: one that is too large for its axis would be a place of the next.
pub(super) fn check_range(index: &Tensor, lengths: &[usize]) -> Result<()> {
    if index.dtype() != DType::I64 {
        return Err(Error::dtype("the indices are not integers"));
    }
    for (index, len) in hidden(|| index.to_vec::<i64>())?.iter().zip(lengths.iter().cycle()) {
        if !(-(*len as i64)..*len as i64).contains(index) {
            return Err(Error::value(format!("the index {index} is outside of an axis of {len}")));
        }
    }
    Ok(())
}

fn one_hot(call: &Call<'_>) -> Result<Vec<Value>> {
    let (index, values) = (call.x(0)?, call.item(2)?);
    let depth = lengths(&[call.real(1)? as i64])?[0];
    let rank = index.rank() + 1;
    let axis = axis_of(call.int("axis", -1)?, rank)?;
    if values.x.shape() != [2] {
        return Err(Error::shape(format!("its values are {:?}; expected [2]", values.x.shape())));
    }
    let index = index.cast(DType::I64);
    let zero = number(&index, 0.0);
    let index = index.lt(&zero)?.select(&index.add(&number(&index, depth as f64))?, &index)?;
    let is_hot = index.unsqueeze(axis as isize)?.eq(&places(depth, axis, rank)?)?;
    one(is_hot.select(&values.x.at(0, 1)?, &values.x.at(0, 0)?)?, values.elem)
}

fn hardmax(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let rank = item.x.rank();
    let axis = axis_of(call.int("axis", if call.opset() < 13 { 1 } else { -1 })?, rank)?;
    let (x, axis) = match call.opset() < 13 {
        true => (item.x.reshape(&[count(&item.x.shape()[..axis])?, count(&item.x.shape()[axis..])?])?, 1),
        false => (item.x.clone(), axis),
    };
    let is_largest = x.argmax(axis as isize, true)?.eq(&places(x.shape()[axis], axis, x.rank())?)?;
    one(is_largest.cast(x.dtype()).reshape(item.x.shape())?, item.elem)
}

fn trilu(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let [.., rows, columns] = *item.x.shape() else {
        return Err(Error::shape(format!("needs a matrix, got {:?}", item.x.shape())));
    };
    let k = call.maybe(1)?.map(|_| call.number(1)).transpose()?.unwrap_or(0);
    let upper = call.flag("upper", true)?;
    let kept = |i: usize| {
        let distance = (i % columns) as i64 - (i / columns) as i64;
        if upper { distance >= k } else { distance <= k }
    };
    let mask: Vec<bool> = (0..count(&[rows, columns])?).map(kept).collect();
    let mask = Tensor::from_vec(mask, &[rows, columns])?;
    one(mask.select(&item.x, &number(&item.x, 0.0))?, item.elem)
}

fn non_zero(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.readable(0)?;
    let shape = item.x.shape();
    let found: Vec<usize> =
        item.x.to_f64().iter().enumerate().filter(|(_, number)| **number != 0.0).map(|(place, _)| place).collect();
    let mut numbers = Vec::with_capacity(found.len() * shape.len());
    for axis in 0..shape.len() {
        let inner = count(&shape[axis + 1..])?;
        numbers.extend(found.iter().map(|place| (place / inner % shape[axis]) as i64));
    }
    one(Tensor::from_vec(numbers, &[shape.len(), found.len()])?, Elem::INT64)
}

fn compress(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let (x, axis) = match call.maybe_int("axis")? {
        Some(axis) => (item.x.clone(), axis_of(axis, item.x.rank())?),
        None => (item.x.reshape(&[item.x.len()])?, 0),
    };
    let kept = call.numbers(1)?;
    let places: Vec<i64> = kept.iter().zip(0..).filter(|(kept, _)| **kept != 0).map(|(_, place)| place).collect();
    one(x.index_select(axis as isize, &vector(places)?)?, item.elem)
}

/// Returns the classes of targets as a mask, with the classes at axis 1.
pub(super) fn classes(target: &Item, count: usize) -> Result<Tensor> {
    target.x.unsqueeze(1)?.eq(&places(count, 1, target.x.rank() + 1)?)
}
