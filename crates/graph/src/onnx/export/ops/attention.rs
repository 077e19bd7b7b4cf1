//! Attention and rotary embeddings.

use super::super::{
    call::{Call, Emit, lengths, one},
    message::{Attr, Val},
};
use crate::Dim;
use precast::{DType, Op, Tensor, error::Result};

pub(super) fn find(op: Op) -> Option<Emit> {
    Some(match op {
        Op::ScaledDotProductAttention => attention,
        Op::RotaryEmbedding => rotary,
        _ => return None,
    })
}

fn attention(c: &mut Call<'_>) -> Result<Vec<Val>> {
    let [q, k, v] = [0, 1, 2].map(|place| c.input(place));
    let (q, k, v) = (q?, k?, v?);
    let rank = c.rank(0);
    let causal: bool = c.attr("causal")?;
    let features = lengths(&c.shape(0)[rank - 1..])?[0];
    let scale = c.attr::<Option<f64>>("scale")?.unwrap_or(1.0 / (features.max(1) as f64).sqrt());
    let mask = c.x.get(3).cloned();
    // ONNX's own op takes [batch, heads, length, features] of one batch and one number of heads.
    let alike = (0..3).all(|place| c.rank(place) == 4 && c.shape(place)[..2] == c.shape(0)[..2]);
    if c.writer.has("Attention") && alike && mask.is_none() {
        let attributes = [("is_causal", Attr::flag(causal)), ("scale", Attr::Float(scale))];
        return one(c.node("Attention", &[&q, &k, &v], &attributes));
    }
    let mut order: Vec<usize> = (0..c.rank(1)).collect();
    order.swap(c.rank(1) - 2, c.rank(1) - 1);
    let turned = c.transpose(&k, &order)?;
    let scores = c.node("MatMul", &[&q, &turned], &[])?;
    let scale = c.number(scale)?;
    let mut scores = c.node("Mul", &[&scores, &scale], &[])?;
    let nothing = c.number(f64::NEG_INFINITY)?;
    match &mask {
        Some(mask) if mask.dtype == DType::Bool => scores = c.node("Where", &[mask, &scores, &nothing], &[])?,
        Some(mask) => scores = c.node("Add", &[&scores, mask], &[])?,
        None => {}
    }
    if causal {
        let [queries, keys] = [c.shape(0)[rank - 2], c.shape(1)[c.rank(1) - 2]];
        let [l, s] = [lengths(&[queries])?[0], lengths(&[keys])?[0]];
        let seen: Vec<bool> = (0..l * s).map(|at| at % s <= at / s).collect();
        let seen = c.writer.constant(Tensor::from_vec(seen, &[l, s])?)?;
        scores = c.node("Where", &[&seen, &scores, &nothing], &[])?;
    }
    let mut weights = c.node("Softmax", &[&scores], &[("axis", Attr::Int(-1))])?;
    if mask.is_some() {
        // A query that attends to no key has no weights.
        let largest = c.reduce("ReduceMax", &scores, &[rank.max(c.rank(1)) - 1], true)?;
        let none = c.is("Equal", &[&largest, &nothing])?;
        let zero = c.number(0.0)?;
        weights = c.node("Where", &[&none, &zero, &weights], &[])?;
    }
    one(c.node("MatMul", &[&weights, &v], &[]))
}

/// Turns the pairs by angles that are known, from the lengths of the tensor.
fn rotary(c: &mut Call<'_>) -> Result<Vec<Val>> {
    let (base, offset): (f64, usize) = (c.attr("base")?, c.attr("offset")?);
    let interleaved: bool = c.attr("interleaved")?;
    let x = c.input(0)?;
    let rank = c.rank(0);
    let shape = c.shape(0).to_vec();
    let of_last = lengths(&shape[rank - 2..])?;
    let (length, features) = (of_last[0], of_last[1]);
    let half = features / 2;
    let angle = |m: usize, i: usize| (offset + m) as f64 * base.powf(-((2 * i) as f64) / features as f64);
    let all: Vec<f64> = (0..length).flat_map(|m| (0..half).map(move |i| angle(m, i))).collect();
    let table = |f: fn(f64) -> f64| all.iter().map(|angle| f(*angle)).collect::<Vec<_>>();
    let shape_of_table: &[usize] = if interleaved { &[length, half, 1] } else { &[length, half] };
    let (cos, sin) = (c.numbers(&table(f64::cos), shape_of_table)?, c.numbers(&table(f64::sin), shape_of_table)?);
    let x = match interleaved {
        true => c.reshape(&x, &[&shape[..rank - 1], &[Dim::fixed(half), Dim::fixed(2)]].concat())?,
        false => x,
    };
    let (axis, each) = if interleaved { (rank, 1) } else { (rank - 1, half) };
    let parts = c.split(&x, axis, &[each, each])?;
    let turn = |c: &mut Call<'_>, a: &Val, b: &Val, op: &'static str| -> Result<Val> {
        let (a, b) = (c.node("Mul", &[a, &cos], &[])?, c.node("Mul", &[b, &sin], &[])?);
        c.node(op, &[&a, &b], &[])
    };
    let first = turn(c, &parts[0], &parts[1], "Sub")?;
    let second = turn(c, &parts[1], &parts[0], "Add")?;
    let y = c.concat(&[&first, &second], axis)?;
    if interleaved { one(c.reshape(&y, &shape)) } else { Ok(vec![y]) }
}
