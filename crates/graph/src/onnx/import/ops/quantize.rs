//! Quantised numbers: integers with a scale and a zero point.

use super::{
    super::{
        call::{axis_of, one},
        step::Call,
        value::{Item, Value, dtype_of},
    },
    Table,
    tools::{number, vector},
};
use crate::onnx::tensor::Elem;
use precast::{
    DType, Tensor,
    error::{Error, Result},
};

pub(super) const OPS: Table =
    &[("DequantizeLinear", dequantize), ("QuantizeLinear", quantize), ("DynamicQuantizeLinear", dynamic)];

/// Returns a scale or a zero point in a shape that broadcasts to the tensor.
fn along(call: &Call<'_>, setting: &Tensor, x: &Tensor) -> Result<Tensor> {
    let block = call.int("block_size", 0)?;
    if setting.len() == 1 && block == 0 {
        return setting.reshape(&[1isize; 0]);
    }
    let axis = axis_of(call.int("axis", 1)?, x.rank())?;
    if block > 0 && setting.rank() == x.rank() {
        let places = (0..x.shape()[axis] as i64).map(|at| at / block).collect();
        return setting.index_select(axis as isize, &vector(places)?);
    }
    let mut shape = vec![1; x.rank()];
    shape[axis] = setting.len();
    setting.reshape(&shape)
}

fn dequantize(call: &Call<'_>) -> Result<Vec<Value>> {
    let (item, scale) = (call.item(0)?, call.item(1)?);
    let elem = match call.int("output_dtype", 0)? {
        0 => scale.elem,
        other => Elem(i32::try_from(other).unwrap_or(-1)),
    };
    let scale = along(call, &scale.x, &item.x)?;
    let centred = match call.maybe_x(2)? {
        Some(zero) => item.x.sub(&along(call, zero, &item.x)?)?,
        None => item.x.clone(),
    };
    one(centred.cast(scale.dtype()).mul(&scale)?.cast(dtype_of(elem)?), elem)
}

/// Returns the range of an integer type.
fn range(elem: Elem) -> Option<(f64, f64)> {
    Some(match elem {
        Elem::UINT8 => (0.0, 255.0),
        Elem::INT8 => (-128.0, 127.0),
        Elem::UINT16 => (0.0, 65_535.0),
        Elem::INT16 => (-32_768.0, 32_767.0),
        Elem(21) => (0.0, 15.0),
        Elem(22) => (-8.0, 7.0),
        _ => return None,
    })
}

fn quantize(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let elem = match (call.maybe(2)?, call.int("output_dtype", 0)?) {
        (Some(zero), _) => zero.elem,
        (None, 0) => Elem::UINT8,
        (None, other) => Elem(i32::try_from(other).unwrap_or(-1)),
    };
    let Some((lowest, highest)) = range(elem) else {
        return Err(call.refuse(&format!("there are no tensors of {elem}")));
    };
    let x = if item.is_int() { item.x.cast(DType::F32) } else { item.x.clone() };
    let scale = along(call, call.x(1)?, &x)?;
    let rounded = x.div(&scale.cast(x.dtype()))?.round()?;
    let moved = match call.maybe_x(2)? {
        Some(zero) => rounded.add(&along(call, zero, &x)?.cast(x.dtype()))?,
        None => rounded,
    };
    one(moved.clamp(lowest, highest)?.cast(DType::I64), elem)
}

fn dynamic(call: &Call<'_>) -> Result<Vec<Value>> {
    let x = call.x(0)?;
    if x.is_empty() {
        return Err(Error::shape("an empty tensor has no range"));
    }
    let zero = number(x, 0.0);
    let (low, high) = (x.min(&[], false)?.minimum(&zero)?, x.max(&[], false)?.maximum(&zero)?);
    let scale = high.sub(&low)?.div(&number(x, 255.0))?;
    // Zeros alone would be divided by 0.
    let divisor = scale.eq(&zero)?.select(&number(x, 1.0), &scale)?;
    let origin = zero.sub(&low)?.div(&divisor)?.clamp(0.0, 255.0)?.round()?;
    let y = x.div(&divisor)?.round()?.add(&origin)?.clamp(0.0, 255.0)?.cast(DType::I64);
    let elem = call.elem()?;
    Ok(vec![
        Item::computed(y, Elem::UINT8).into(),
        Item::computed(scale, elem).into(),
        Item::computed(origin.cast(DType::I64), Elem::UINT8).into(),
    ])
}
