//! Attention and rotary embeddings.

use super::{
    super::{
        call::{lengths, one},
        step::Call,
        value::{Item, Value, room},
    },
    Table,
    tools::number,
};
use precast::{
    DType, Tensor,
    error::{Error, Result},
};

pub(super) const OPS: Table = &[("Attention", attention), ("RotaryEmbedding", rotary)];

/// Returns `[batch, heads, length, size]` of a tensor that has it, or has the heads in its last axis.
fn heads(x: &Tensor, count: usize, name: &str) -> Result<Tensor> {
    match *x.shape() {
        [_, _, _, _] => Ok(x.clone()),
        [batch, length, size] if count > 0 && size % count == 0 => {
            x.reshape(&[batch, length, count, size / count])?.permute(&[0, 2, 1, 3])
        }
        ref shape => Err(Error::shape(format!("{name} of the shape {shape:?} have not {count} heads"))),
    }
}

fn attention(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let count = |name: &str| Ok::<_, Error>(lengths(&[call.int(name, 0)?])?[0]);
    let is_joined = item.x.rank() == 3;
    let q = heads(&item.x, count("q_num_heads")?, "queries")?;
    let mut k = heads(call.x(1)?, count("kv_num_heads")?, "keys")?;
    let mut v = heads(call.x(2)?, count("kv_num_heads")?, "values")?;
    let past = match (call.maybe_x(4)?, call.maybe_x(5)?) {
        (Some(keys), Some(values)) => {
            let before = keys.shape().get(2).copied().unwrap_or(0);
            (k, v) = (Tensor::concat(&[keys, &k], 2)?, Tensor::concat(&[values, &v], 2)?);
            before
        }
        _ => 0,
    };
    let (present_k, present_v) = (k.clone(), v.clone());
    let (q_heads, kv_heads) = (q.shape()[1], k.shape()[1]);
    if kv_heads == 0 || q_heads % kv_heads != 0 {
        return Err(Error::shape(format!("{q_heads} heads of queries for {kv_heads} of keys")));
    }
    if q_heads != kv_heads {
        (k, v) = (repeated(&k, q_heads / kv_heads)?, repeated(&v, q_heads / kv_heads)?);
    }
    let size = q.shape()[3];
    let scale = call.float("scale", 1.0 / (size.max(1) as f64).sqrt())?;
    let softcap = call.float("softcap", 0.0)?;
    let matches = call.step.outputs.get(3).is_some_and(|name| !name.is_empty());
    let mask = mask(call, &q, k.shape()[2], past)?;
    let (y, scores) = if softcap == 0.0 && !matches {
        (q.scaled_dot_product_attention(&k, &v, mask.as_ref(), false, Some(scale))?, None)
    } else {
        let raw = q.matmul_ext(&k.permute(&[0, 1, 3, 2])?)?;
        let raw = raw.mul(&number(&raw, scale))?;
        let capped = match softcap {
            0.0 => raw.clone(),
            cap => raw.div(&number(&raw, cap))?.tanh()?.mul(&number(&raw, cap))?,
        };
        let biased = match &mask {
            None => capped.clone(),
            Some(mask) if mask.dtype() == DType::Bool => mask.select(&capped, &number(&raw, f64::NEG_INFINITY))?,
            Some(mask) => capped.add(mask)?,
        };
        let weights = biased.softmax(-1)?;
        // A query without keys has no weights.
        let none = biased.max(&[-1], true)?.eq(&number(&raw, f64::NEG_INFINITY))?;
        let weights = none.select(&number(&raw, 0.0), &weights)?;
        let shown = match call.int("qk_matmul_output_mode", 0)? {
            0 => raw,
            1 => capped,
            2 => biased,
            _ => weights.clone(),
        };
        (weights.matmul_ext(&v)?, Some(shown))
    };
    let y = match (is_joined, y.shape()) {
        (true, &[batch, heads, length, size]) => y.permute(&[0, 2, 1, 3])?.reshape(&[batch, length, heads * size])?,
        _ => y,
    };
    let of = |x: Tensor| Value::from(Item::computed(x, item.elem));
    let mut made = vec![of(y), of(present_k), of(present_v)];
    made.extend(scores.map(of));
    Ok(made)
}

/// Returns the mask of all restrictions together: the given one, causality, windows, lengths of the keys.
fn mask(call: &Call<'_>, q: &Tensor, keys: usize, past: usize) -> Result<Option<Tensor>> {
    let (batch, queries) = (q.shape()[0], q.shape()[2]);
    let given = call.maybe_x(3)?.map(|mask| padded(mask, keys)).transpose()?;
    let causal = call.flag("is_causal", false)?;
    let (left, right) = (call.int("left_window_size", -1)?, call.int("right_window_size", -1)?);
    let lens = call.maybe_numbers(6)?;
    if !causal && left < 0 && right < 0 && lens.is_none() {
        return Ok(given);
    }
    if lens.as_ref().is_some_and(|lens| lens.len() != batch) {
        return Err(Error::shape(format!("lengths of keys for a batch of {batch}")));
    }
    // The place of the first query among the keys, and the number of keys, for each example or for all.
    let each: Vec<(i64, i64)> = match &lens {
        Some(lens) => lens.iter().map(|len| (len.saturating_sub(queries as i64), *len)).collect(),
        None => vec![(past as i64, keys as i64)],
    };
    room(&[each.len(), queries, keys])?;
    let mut may = Vec::with_capacity(each.len() * queries * keys);
    for (first, len) in &each {
        for query in 0..queries as i64 {
            let at = first.saturating_add(query);
            may.extend((0..keys as i64).map(|key| {
                let inside =
                    (left < 0 || key >= at.saturating_sub(left)) && (right < 0 || key <= at.saturating_add(right));
                key < *len && (!causal || key <= at) && inside
            }));
        }
    }
    let may = match each.len() {
        1 => Tensor::from_vec(may, &[queries, keys])?,
        count => Tensor::from_vec(may, &[count, 1, queries, keys])?,
    };
    Ok(Some(match given {
        None => may,
        Some(given) if given.dtype() == DType::Bool => may.logical_and(&given)?,
        Some(given) => may.select(&given, &number(&given, f64::NEG_INFINITY))?,
    }))
}

/// Repeats each head of keys or values for its group of queries.
fn repeated(x: &Tensor, times: usize) -> Result<Tensor> {
    let &[batch, heads, length, size] = x.shape() else { return Err(Error::shape("keys without heads")) };
    let wide = x.unsqueeze(2)?.broadcast_to(&[batch, heads, times, length, size])?;
    wide.reshape(&[batch, heads * times, length, size])
}

/// Extends a mask that is shorter than the keys: what it leaves out is masked.
fn padded(mask: &Tensor, keys: usize) -> Result<Tensor> {
    let len = mask.shape().last().copied().unwrap_or(keys);
    if len >= keys || len == 1 {
        return Ok(mask.clone());
    }
    let mut pairs = vec![(0, 0); mask.rank()];
    pairs[mask.rank() - 1] = (0, keys - len);
    mask.pad(&pairs, if mask.dtype() == DType::Bool { 0.0 } else { f64::NEG_INFINITY })
}

fn rotary(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let is_joined = item.x.rank() == 3;
    let count = lengths(&[call.int("num_heads", 0)?])?[0];
    // [batch, length, heads, size]
    let x = heads(&item.x, count, "inputs")?.permute(&[0, 2, 1, 3])?;
    let &[batch, length, many, size] = x.shape() else { return Err(Error::shape("inputs without heads")) };
    let turned = match lengths(&[call.int("rotary_embedding_dim", 0)?])?[0] {
        0 => size,
        turned => turned,
    };
    if turned > size || turned % 2 != 0 {
        return Err(Error::shape(format!("{turned} of {size} numbers cannot be turned in pairs")));
    }
    let cache = |index: usize| {
        let cache = call.x(index)?;
        let cache = match call.maybe_x(3)? {
            Some(places) => places.embedding(cache)?,
            None => cache.clone(),
        };
        match cache.shape() {
            [_, _, _] => cache.slice(2, 0..(turned / 2).min(cache.shape()[2]))?.unsqueeze(2),
            shape => Err(Error::shape(format!("a cache of {shape:?}; expected [batch, length, size]"))),
        }
    };
    let (cos, sin) = (cache(1)?, cache(2)?);
    let (part, rest) = (x.slice(3, 0..turned)?, x.slice(3, turned..size)?);
    let half = turned / 2;
    let interleaved = call.flag("interleaved", false)?;
    let (a, b) = match interleaved {
        true => {
            let pairs = part.reshape(&[batch, length, many, half, 2])?;
            (pairs.at(4, 0)?, pairs.at(4, 1)?)
        }
        false => (part.slice(3, 0..half)?, part.slice(3, half..turned)?),
    };
    let real = cos.mul(&a)?.sub(&sin.mul(&b)?)?;
    let imaginary = sin.mul(&a)?.add(&cos.mul(&b)?)?;
    let part = match interleaved {
        true => Tensor::stack(&[&real, &imaginary], 4)?.reshape(&[batch, length, many, turned])?,
        false => Tensor::concat(&[&real, &imaginary], 3)?,
    };
    let y = if turned == size { part } else { Tensor::concat(&[&part, &rest], 3)? };
    one(if is_joined { y.reshape(&[batch, length, many * size])? } else { y.permute(&[0, 2, 1, 3])? }, item.elem)
}
