//! Small compositions that several families of ops share.

use super::super::{
    call::one,
    step::Call,
    value::{Item, Value, wrapped},
};
use crate::onnx::tensor::Elem;
use precast::{
    DType, Tensor,
    error::{Error, Result},
    recording::{self, hidden},
};

/// Returns a number of the dtype of a tensor.
pub(super) fn number(like: &Tensor, value: f64) -> Tensor {
    Tensor::scalar(value, like.dtype())
}

/// Returns a known vector of i64.
pub(super) fn vector(numbers: Vec<i64>) -> Result<Tensor> {
    let len = numbers.len();
    Tensor::from_vec(numbers, &[len])
}

/// Runs a floating op on a tensor, an integer one in f64, which is exact below 2^53.
pub(super) fn in_floats(item: &Item, f: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    match item.x.dtype() {
        DType::I64 => Ok(f(&item.x.cast(DType::F64))?.cast(DType::I64)),
        DType::Bool => Ok(f(&item.x.cast(DType::F64))?.cast(DType::Bool)),
        _ => f(&item.x),
    }
}

/// Returns integers as an element type has them after an overflow.
pub(super) fn wrapping(x: Tensor, elem: Elem) -> Result<Tensor> {
    if x.dtype() != DType::I64 || matches!(elem, Elem::INT64 | Elem::UINT64) || recording::is_on() {
        return Ok(x);
    }
    let numbers = x.to_vec::<i64>()?;
    match numbers.iter().all(|number| wrapped(*number, elem) == *number) {
        true => Ok(x),
        false => Tensor::from_vec(numbers.into_iter().map(|n| wrapped(n, elem)).collect::<Vec<_>>(), x.shape()),
    }
}

/// Returns the shape to which two shapes broadcast.
pub(super) fn broadcast(a: &[usize], b: &[usize]) -> Result<Vec<usize>> {
    let rank = a.len().max(b.len());
    let at = |shape: &[usize], axis: usize| (axis + shape.len()).checked_sub(rank).map_or(1, |axis| shape[axis]);
    (0..rank)
        .map(|axis| match (at(a, axis), at(b, axis)) {
            (x, y) if x == y => Ok(x),
            (1, y) => Ok(y),
            (x, 1) => Ok(x),
            _ => Err(Error::shape(format!("{a:?} and {b:?} do not broadcast"))),
        })
        .collect()
}

/// Computes a function of two tensors of integers number by number. A graph cannot record it, unless they are known.
pub(super) fn by_numbers(call: &Call<'_>, f: impl Fn(i64, i64) -> Result<i64>) -> Result<Vec<Value>> {
    let (a, b) = (call.readable(0)?, call.readable(1)?);
    let shape = broadcast(a.x.shape(), b.x.shape())?;
    let (x, y) = (a.x.broadcast_to(&shape)?.to_vec::<i64>()?, b.x.broadcast_to(&shape)?.to_vec::<i64>()?);
    let numbers = x.into_iter().zip(y).map(|(x, y)| Ok(wrapped(f(x, y)?, a.elem))).collect::<Result<Vec<i64>>>()?;
    one(Tensor::from_vec(numbers, &shape)?, a.elem)
}

/// Reverses an axis.
pub(super) fn reversed(x: &Tensor, axis: usize) -> Result<Tensor> {
    let len = x.shape()[axis] as i64;
    x.index_select(axis as isize, &vector((0..len).rev().collect())?)
}

/// Returns indices with those that count from the end of an axis counted from its start.
pub(super) fn from_start(index: &Tensor, len: usize) -> Result<Tensor> {
    let is_negative = index.dtype() == DType::I64 && hidden(|| index.to_vec::<i64>())?.iter().any(|index| *index < 0);
    if !is_negative {
        return Ok(index.clone());
    }
    let zero = Tensor::scalar(0.0, DType::I64);
    let shifted = index.add(&Tensor::from_vec(vec![len as i64], &[])?)?;
    index.lt(&zero)?.select(&shifted, index)
}

/// Returns the product of lengths.
pub(super) fn count(lengths: &[usize]) -> Result<usize> {
    let product = lengths.iter().try_fold(1usize, |count, len| count.checked_mul(*len));
    product.ok_or_else(|| Error::shape(format!("{lengths:?} are more elements than memory can hold")))
}

/// Moves an axis to another place.
pub(super) fn moved(x: &Tensor, from: usize, to: usize) -> Result<Tensor> {
    if from == to {
        return Ok(x.clone());
    }
    let mut axes: Vec<usize> = (0..x.rank()).filter(|axis| *axis != from).collect();
    axes.insert(to, from);
    x.permute(&axes)
}
