//! Matrix products.

use super::{
    super::{
        call::one,
        step::Call,
        value::{Item, Value},
    },
    Table,
    tools::{number, wrapping},
};
use crate::onnx::tensor::Elem;
use precast::{
    DType, Tensor,
    error::{Error, Result},
};

pub(super) const OPS: Table = &[
    ("MatMul", |call| {
        let item = call.item(0)?;
        one(wrapping(product(&item.x, call.x(1)?)?, item.elem)?, item.elem)
    }),
    ("MatMulInteger", matmul_integer),
    ("Gemm", gemm),
    ("Einsum", einsum),
];

/// Multiplies matrices; integers in f64, which is exact below 2^53.
pub(super) fn product(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    match a.dtype() {
        DType::I64 => Ok(a.cast(DType::F64).matmul_ext(&b.cast(DType::F64))?.cast(DType::I64)),
        _ => a.matmul_ext(b),
    }
}

fn matmul_integer(call: &Call<'_>) -> Result<Vec<Value>> {
    let centred = |index: usize, zero: usize, by_rows: bool| {
        let x = call.x(index)?;
        match call.maybe_x(zero)? {
            None => Ok(x.clone()),
            Some(zero) if by_rows && zero.rank() == 1 && zero.len() > 1 => x.sub(&zero.unsqueeze(1)?),
            Some(zero) => x.sub(zero),
        }
    };
    one(product(&centred(0, 2, true)?, &centred(1, 3, false)?)?, Elem::INT32)
}

fn gemm(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let dtype = item.x.dtype();
    let wide = |x: &Tensor| if item.is_int() { x.cast(DType::F64) } else { x.clone() };
    let (a, b) = (wide(&item.x), wide(call.x(1)?));
    if a.rank() != 2 || b.rank() != 2 {
        return Err(Error::shape(format!("multiplies matrices, got {:?} and {:?}", a.shape(), b.shape())));
    }
    let (alpha, beta) = (call.float("alpha", 1.0)?, call.float("beta", 1.0)?);
    let a = if call.flag("transA", false)? { a.t()? } else { a };
    // `linear` multiplies by the transposed weight.
    let weight = if call.flag("transB", false)? { b } else { b.t()? };
    let c = call.maybe_x(2)?.map(wide);
    let c = match c {
        Some(c) if beta != 1.0 => Some(c.mul(&number(&c, beta))?),
        other => other,
    };
    let y = match &c {
        Some(c) if alpha == 1.0 && c.shape() == [weight.shape()[0]] => a.linear(&weight, Some(c))?,
        _ => {
            let y = a.linear(&weight, None)?;
            let y = if alpha == 1.0 { y } else { y.mul(&number(&y, alpha))? };
            match c {
                Some(c) => y.add(&c)?,
                None => y,
            }
        }
    };
    one(if item.is_int() { wrapping(y.cast(dtype), item.elem)? } else { y }, item.elem)
}

fn einsum(call: &Call<'_>) -> Result<Vec<Value>> {
    let all = call.all()?;
    let equation = call.text("equation")?.ok_or_else(|| Error::value("its attribute `equation` is missing"))?;
    let is_int = all[0].is_int();
    let wide = |item: &&Item| if is_int { item.x.cast(DType::F64) } else { item.x.clone() };
    let operands: Vec<Tensor> = all.iter().map(wide).collect();
    let y = Tensor::einsum(equation, &operands.iter().collect::<Vec<_>>())?;
    one(if is_int { y.cast(DType::I64) } else { y }, all[0].elem)
}
