//! Ops that make tensors of numbers: constants, ranges, windows.

use super::{
    super::{
        call::{known, lengths, one},
        data::filled,
        step::{Attr, Call, Step},
        value::{Item, Value, dtype_of, room},
    },
    Table,
};
use crate::onnx::tensor::Elem;
use precast::{
    DType, Tensor,
    error::{Error, Result},
};

pub(super) const OPS: Table = &[
    ("ConstantOfShape", of_shape),
    ("EyeLike", eye),
    ("Range", range),
    ("HannWindow", |call| window(call, |at| 0.5 - 0.5 * at.cos())),
    ("HammingWindow", |call| window(call, |at| 25.0 / 46.0 - 21.0 / 46.0 * at.cos())),
    ("BlackmanWindow", |call| window(call, |at| 0.42 - 0.5 * at.cos() + 0.08 * (2.0 * at).cos())),
];

/// Returns the value of a constant node; `None` for any other node.
pub(in super::super) fn constant_of(step: &Step) -> Result<Option<Item>> {
    if step.op != "Constant" {
        return Ok(None);
    }
    let Some((name, attr)) = step.attributes.first() else { return Err(Error::value("it has no value")) };
    Ok(Some(match attr {
        Attr::Tensor(item) => item.clone(),
        Attr::Float(number) => Item::known(Tensor::from_vec(vec![*number], &[])?, Elem::F32),
        Attr::Floats(numbers) => Item::known(Tensor::from_vec(numbers.clone(), &[numbers.len()])?, Elem::F32),
        Attr::Int(number) => Item::int(*number)?,
        Attr::Ints(numbers) => Item::ints(numbers.clone())?,
        other => {
            return Err(Error::unsupported(format!("its `{name}` is {}; there are no such tensors", other.called())));
        }
    }))
}

fn of_shape(call: &Call<'_>) -> Result<Vec<Value>> {
    let shape = lengths(&call.numbers(0)?)?;
    room(&shape)?;
    let (value, elem) = match call.tensor("value")? {
        Some(item) => (item.x.clone(), item.elem),
        None => (Tensor::scalar(0.0, DType::F32), Elem::F32),
    };
    if value.len() != 1 {
        return Err(Error::shape(format!("its value has {} numbers; expected 1", value.len())));
    }
    let x = match value.dtype() {
        DType::I64 => value.reshape(&[1isize; 0])?.broadcast_to(&shape)?,
        dtype => filled(&shape, value.item()?, dtype)?,
    };
    known(Item::known(x, elem))
}

fn eye(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let &[rows, columns] = item.x.shape() else {
        return Err(Error::shape(format!("needs a matrix, got {:?}", item.x.shape())));
    };
    let elem = call.maybe_int("dtype")?.map_or(item.elem, |elem| Elem(i32::try_from(elem).unwrap_or(-1)));
    let k = call.int("k", 0)?;
    let ones = (0..rows * columns).map(|i| f64::from((i % columns) as i64 - (i / columns) as i64 == k));
    let x = Tensor::from_f64(&ones.collect::<Vec<f64>>(), &[rows, columns], dtype_of(elem)?)?;
    known(Item::known(x, elem))
}

fn range(call: &Call<'_>) -> Result<Vec<Value>> {
    let elem = call.elem()?;
    let wrong =
        |words: String| Error::value(format!("a range {words}; allowed: finite numbers, and a step that is not 0"));
    if elem.is_int() {
        let (start, end, step) = (call.number(0)?, call.number(1)?, call.number(2)?);
        let count = match step {
            0 => return Err(wrong(format!("from {start} to {end} in steps of 0"))),
            step => {
                let (way, step) = (i128::from(end) - i128::from(start), i128::from(step));
                if way == 0 || (way < 0) != (step < 0) { 0 } else { (way.abs() - 1) / step.abs() + 1 }
            }
        };
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        room(&[count])?;
        let numbers: Vec<i64> = (0..count).map(|i| start.wrapping_add(step.wrapping_mul(i as i64))).collect();
        return one(Tensor::from_vec(numbers, &[count])?, elem);
    }
    let (start, end, step) = (call.real(0)?, call.real(1)?, call.real(2)?);
    let count = ((end - start) / step).ceil();
    if !count.is_finite() || !start.is_finite() {
        return Err(wrong(format!("from {start} to {end} in steps of {step}")));
    }
    let count = count.max(0.0) as usize;
    room(&[count])?;
    let numbers: Vec<f64> = (0..count).map(|i| start + step * i as f64).collect();
    one(Tensor::from_f64(&numbers, &[count], dtype_of(elem)?)?, elem)
}

fn window(call: &Call<'_>, f: fn(f64) -> f64) -> Result<Vec<Value>> {
    let size = lengths(&[call.number(0)?])?[0];
    room(&[size])?;
    let elem = Elem(i32::try_from(call.int("output_datatype", 1)?).unwrap_or(-1));
    let of = if call.flag("periodic", true)? { size } else { size.saturating_sub(1).max(1) } as f64;
    let numbers: Vec<f64> = (0..size).map(|i| f(2.0 * std::f64::consts::PI * i as f64 / of)).collect();
    one(Tensor::from_f64(&numbers, &[size], dtype_of(elem)?)?, elem)
}
