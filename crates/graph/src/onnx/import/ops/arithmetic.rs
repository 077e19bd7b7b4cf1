//! Arithmetic and comparisons of two tensors or more.

use super::{
    super::{
        call::{axis_of, one},
        step::Call,
        value::{Item, Value, wrapped},
    },
    Table,
    tools::{by_numbers, number, wrapping},
};
use crate::onnx::tensor::Elem;
use precast::{
    DType, Tensor,
    error::{Error, Result},
};

pub(super) const OPS: Table = &[
    ("Add", |call| pair(call, Tensor::add)),
    ("Sub", |call| pair(call, Tensor::sub)),
    ("Mul", |call| pair(call, Tensor::mul)),
    ("Div", div),
    ("Pow", pow),
    ("Mod", modulo),
    ("Max", |call| chain(call, Tensor::maximum)),
    ("Min", |call| chain(call, Tensor::minimum)),
    ("Sum", |call| chain(call, Tensor::add)),
    ("Mean", mean),
    ("Equal", |call| compare(call, |a, b| a.eq(b))),
    ("Greater", |call| compare(call, |a, b| a.gt(b))),
    ("GreaterOrEqual", |call| compare(call, |a, b| a.ge(b))),
    ("Less", |call| compare(call, |a, b| a.lt(b))),
    ("LessOrEqual", |call| compare(call, |a, b| a.le(b))),
    ("And", |call| compare(call, Tensor::logical_and)),
    ("Or", |call| compare(call, Tensor::logical_or)),
    ("Xor", |call| compare(call, |a, b| a.ne(b))),
    ("BitwiseAnd", |call| by_numbers(call, |a, b| Ok(a & b))),
    ("BitwiseOr", |call| by_numbers(call, |a, b| Ok(a | b))),
    ("BitwiseXor", |call| by_numbers(call, |a, b| Ok(a ^ b))),
    ("BitwiseNot", |call| {
        let item = call.readable(0)?;
        let numbers = item.x.to_vec::<i64>()?.into_iter().map(|n| wrapped(!n, item.elem)).collect::<Vec<_>>();
        one(Tensor::from_vec(numbers, item.x.shape())?, item.elem)
    }),
    ("BitShift", shift),
];

type Method = fn(&Tensor, &Tensor) -> Result<Tensor>;

/// Returns the second input. Before opset 7, the attribute `axis` says where its axes begin.
fn second(call: &Call<'_>) -> Result<Tensor> {
    let (a, b) = (call.x(0)?, call.x(1)?);
    let axis = match call.maybe_int("axis")? {
        Some(axis) if call.opset() < 7 && call.flag("broadcast", false)? => axis_of(axis, a.rank())?,
        _ => return Ok(b.clone()),
    };
    let after = a.rank().saturating_sub(axis + b.rank());
    b.reshape(&[b.shape(), &vec![1; after]].concat())
}

fn pair(call: &Call<'_>, method: Method) -> Result<Vec<Value>> {
    let elem = call.elem()?;
    one(wrapping(method(call.x(0)?, &second(call)?)?, elem)?, elem)
}

fn compare(call: &Call<'_>, method: Method) -> Result<Vec<Value>> {
    one(method(call.x(0)?, &second(call)?)?, Elem::BOOL)
}

fn div(call: &Call<'_>) -> Result<Vec<Value>> {
    if !call.item(0)?.is_int() {
        return pair(call, Tensor::div);
    }
    // An unsigned 64-bit number above the range is a negative one here.
    if call.elem()? == Elem::UINT64 {
        return by_numbers(call, |a, b| match b {
            0 => Err(by_zero()),
            _ => Ok(((a as u64) / (b as u64)) as i64),
        });
    }
    by_numbers(call, |a, b| a.checked_div(b).or_else(|| (b == -1).then_some(a)).ok_or_else(by_zero))
}

fn by_zero() -> Error {
    Error::value("an integer is divided by 0")
}

fn modulo(call: &Call<'_>) -> Result<Vec<Value>> {
    let truncates = call.flag("fmod", false)?;
    if !call.item(0)?.is_int() {
        return pair(call, if truncates { Tensor::fmod } else { Tensor::remainder });
    }
    by_numbers(call, |a, b| {
        let rest = if b == -1 { Some(0) } else { a.checked_rem(b) }.ok_or_else(by_zero)?;
        Ok(if !truncates && rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest })
    })
}

fn pow(call: &Call<'_>) -> Result<Vec<Value>> {
    let (base, exponent) = (call.item(0)?, second(call)?);
    if base.is_int() {
        let exponent = Item { x: exponent.cast(DType::F64), ..call.readable(1)?.clone() };
        let power = call.readable(0)?.x.cast(DType::F64).pow(&exponent.x)?;
        return one(wrapping(power.cast(DType::I64), base.elem)?, base.elem);
    }
    let item = call.item(1)?;
    if item.known && item.x.len() == 1 && item.x.rank() <= base.x.rank() {
        let exponent = call.real(1)?;
        let power = if exponent == 2.0 { base.x.square()? } else { base.x.powf(exponent)? };
        return one(power, base.elem);
    }
    one(base.x.pow(&exponent.cast(base.x.dtype()))?, base.elem)
}

fn shift(call: &Call<'_>) -> Result<Vec<Value>> {
    let left = match call.text("direction")? {
        Some("LEFT") => true,
        Some("RIGHT") => false,
        other => return Err(Error::value(format!("`direction` is {other:?}; allowed: LEFT, RIGHT"))),
    };
    let is_unsigned = call.elem()? == Elem::UINT64;
    by_numbers(call, |a, b| {
        let by = u32::try_from(b).unwrap_or(u32::MAX);
        Ok(match left {
            true => a.checked_shl(by).unwrap_or(0),
            false if is_unsigned => (a as u64).checked_shr(by).unwrap_or(0) as i64,
            // The sign stays.
            false => a >> by.min(63),
        })
    })
}

/// Joins all inputs by an op.
fn chain(call: &Call<'_>, method: Method) -> Result<Vec<Value>> {
    let all = call.all()?;
    let mut joined = all[0].x.clone();
    for item in &all[1..] {
        joined = method(&joined, &item.x)?;
    }
    one(wrapping(joined, all[0].elem)?, all[0].elem)
}

fn mean(call: &Call<'_>) -> Result<Vec<Value>> {
    let all = call.all()?;
    let mut sum = all[0].x.clone();
    for item in &all[1..] {
        sum = sum.add(&item.x)?;
    }
    one(sum.div(&number(&sum, all.len() as f64))?, all[0].elem)
}
