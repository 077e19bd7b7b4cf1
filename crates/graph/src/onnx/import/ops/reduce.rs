//! Reductions along axes, running sums, places of extremes.

use super::{
    super::{
        call::{axis_of, one},
        data::filled,
        step::Call,
        value::{Item, Value, room},
    },
    Table,
    tools::{in_floats, number, reversed, vector, wrapping},
};
use crate::onnx::tensor::Elem;
use precast::{
    DType, Tensor,
    error::{Error, Result},
};

pub(super) const OPS: Table = &[
    ("ReduceSum", |call| reduce(call, 13, 0.0, |x, axes, keep| x.sum(axes, keep))),
    ("ReduceMean", |call| reduce(call, 18, f64::NAN, |x, axes, keep| in_f64(x, |x| x.mean(axes, keep)))),
    ("ReduceMax", |call| reduce(call, 18, f64::NEG_INFINITY, |x, axes, keep| in_f64(x, |x| x.max(axes, keep)))),
    ("ReduceMin", |call| reduce(call, 18, f64::INFINITY, |x, axes, keep| in_f64(x, |x| x.min(axes, keep)))),
    ("ReduceProd", |call| reduce(call, 18, 1.0, |x, axes, keep| in_f64(x, |x| x.prod(axes, keep)))),
    ("ReduceL1", |call| reduce(call, 18, 0.0, |x, axes, keep| in_f64(x, |x| x.norm(1.0, axes, keep)))),
    ("ReduceL2", |call| reduce(call, 18, 0.0, |x, axes, keep| in_f64(x, |x| x.norm(2.0, axes, keep)))),
    ("ReduceSumSquare", |call| reduce(call, 18, 0.0, |x, axes, keep| x.mul(x)?.sum(axes, keep))),
    ("ReduceLogSum", |call| {
        reduce(call, 18, f64::NEG_INFINITY, |x, axes, keep| in_f64(x, |x| x.sum(axes, keep)?.log()))
    }),
    ("ReduceLogSumExp", |call| {
        reduce(call, 18, f64::NEG_INFINITY, |x, axes, keep| in_f64(x, |x| x.logsumexp(axes, keep)))
    }),
    ("ArgMax", |call| place(call, Tensor::argmax)),
    ("ArgMin", |call| place(call, Tensor::argmin)),
    ("CumSum", |call| running(call, Tensor::cumsum)),
    ("CumProd", |call| running(call, Tensor::cumprod)),
    ("TopK", top),
];

fn in_f64(x: &Tensor, f: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    in_floats(&Item::computed(x.clone(), Elem::F64), f)
}

/// Reduces axes that are an attribute, and an input since an opset. `empty` is the result of no elements.
fn reduce(
    call: &Call<'_>,
    since: i64,
    empty: f64,
    f: impl FnOnce(&Tensor, &[isize], bool) -> Result<Tensor>,
) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let x = &item.x;
    let keep = call.flag("keepdims", true)?;
    let given = call.ints_since(since, 1, "axes")?.unwrap_or_default();
    if given.is_empty() && call.flag("noop_with_empty_axes", false)? {
        // Nothing is reduced; the function of each number remains.
        let one_more = f(&x.unsqueeze(-1)?, &[-1], false)?;
        return one(one_more, item.elem);
    }
    let mut axes = given.iter().map(|axis| axis_of(*axis, x.rank())).collect::<Result<Vec<usize>>>()?;
    if axes.is_empty() {
        axes = (0..x.rank()).collect();
    }
    if axes.is_empty() {
        return one(f(&x.unsqueeze(-1)?, &[-1], false)?, item.elem);
    }
    if axes.iter().any(|axis| x.shape()[*axis] == 0) {
        let lengths = x.shape().iter().enumerate().filter_map(|(axis, len)| match (axes.contains(&axis), keep) {
            (true, true) => Some(1),
            (true, false) => None,
            (false, _) => Some(*len),
        });
        // No truth value is an infinity.
        let empty = if x.dtype() == DType::Bool { f64::from(empty > 0.0) } else { empty };
        return one(filled(&lengths.collect::<Vec<_>>(), empty, x.dtype())?, item.elem);
    }
    let axes: Vec<isize> = axes.iter().map(|axis| *axis as isize).collect();
    one(wrapping(f(x, &axes, keep)?, item.elem)?, item.elem)
}

fn place(call: &Call<'_>, method: fn(&Tensor, isize, bool) -> Result<Tensor>) -> Result<Vec<Value>> {
    let x = call.x(0)?;
    let axis = axis_of(call.int("axis", 0)?, x.rank())?;
    let keep = call.flag("keepdims", true)?;
    if !call.flag("select_last_index", false)? {
        return one(method(x, axis as isize, keep)?, Elem::INT64);
    }
    let from_end = method(&reversed(x, axis)?, axis as isize, keep)?;
    one(number(&from_end, x.shape()[axis] as f64 - 1.0).sub(&from_end)?, Elem::INT64)
}

fn running(call: &Call<'_>, method: fn(&Tensor, isize) -> Result<Tensor>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let axis = axis_of(call.number(1)?, item.x.rank())?;
    let (exclusive, reverse) = (call.flag("exclusive", false)?, call.flag("reverse", false)?);
    let first = if call.step.op == "CumProd" { 1.0 } else { 0.0 };
    let run = |x: &Tensor| {
        let x = if reverse { reversed(x, axis)? } else { x.clone() };
        let mut y = method(&x, axis as isize)?;
        let len = x.shape()[axis];
        if exclusive && len > 0 {
            let mut shape = x.shape().to_vec();
            shape[axis] = 1;
            let start = filled(&shape, first, x.dtype())?;
            y = Tensor::concat(&[&start, &y.slice(axis as isize, 0..len - 1)?], axis as isize)?;
        }
        if reverse { reversed(&y, axis) } else { Ok(y) }
    };
    one(wrapping(in_floats(item, run)?, item.elem)?, item.elem)
}

fn top(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let k = if call.opset() >= 10 { call.number(1)? } else { call.int("k", 0)? };
    let axis = axis_of(call.int("axis", -1)?, item.x.rank())?;
    let k = usize::try_from(k).map_err(|_| Error::value(format!("k is {k}; allowed: 0 or more")))?;
    let x = match item.elem {
        // Above the range of i64, numbers would be the smallest.
        Elem::UINT64 => return Err(call.refuse("numbers of uint64 cannot be ordered")),
        _ => &item.x,
    };
    let (values, places) = x.topk(k, axis as isize, call.flag("largest", true)?)?;
    Ok(vec![Item::computed(values, item.elem).into(), Item::computed(places, Elem::INT64).into()])
}

/// Returns the places of an axis as a tensor of a rank, to be compared with indices.
pub(super) fn places(len: usize, axis: usize, rank: usize) -> Result<Tensor> {
    let mut shape = vec![1; rank];
    shape[axis] = len;
    room(&shape)?;
    vector((0..len as i64).collect())?.cast(DType::I64).reshape(&shape)
}
