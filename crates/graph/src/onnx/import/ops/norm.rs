//! Normalisations, and softmax.

use super::{
    super::{
        call::{axis_of, lengths, one},
        step::Call,
        value::{Item, Value, dtype_of},
    },
    Table,
    tools::{broadcast, count, number},
};
use crate::onnx::tensor::Elem;
use precast::{
    Tensor,
    error::{Error, Result},
};

pub(super) const OPS: Table = &[
    ("BatchNormalization", batch),
    ("LayerNormalization", layer),
    ("GroupNormalization", group),
    ("InstanceNormalization", instance),
    ("RMSNormalization", root_mean_square),
    ("LpNormalization", lp),
    ("LRN", local_response),
    ("MeanVarianceNormalization", mean_variance),
    ("Softmax", |call| softmax(call, Tensor::softmax)),
    ("LogSoftmax", |call| softmax(call, Tensor::log_softmax)),
];

fn batch(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let (x, gamma, beta, mean, var) = (&item.x, call.x(1)?, call.x(2)?, call.x(3)?, call.x(4)?);
    let eps = call.float("epsilon", 1e-5)?;
    if call.opset() < 9 && !call.flag("spatial", true)? {
        return Err(call.refuse("`spatial` is 0: each element would have statistics of its own"));
    }
    let named = call.step.outputs.iter().filter(|name| !name.is_empty()).count();
    let trains = match call.opset() {
        ..=6 => !call.flag("is_test", false)? && named > 1,
        7..=13 => named > 1,
        _ => call.flag("training_mode", false)?,
    };
    if !trains {
        return one(x.batch_norm(mean, var, Some(gamma), Some(beta), eps)?, item.elem);
    }
    let momentum = call.float("momentum", 0.9)?;
    let (y, of_batch, var_of_batch) = x.batch_norm_train(Some(gamma), Some(beta), eps)?;
    let moved = |old: &Tensor, new: &Tensor| {
        old.mul(&number(old, momentum))?.add(&new.cast(old.dtype()).mul(&number(old, 1.0 - momentum))?)
    };
    let (mean, var) = (moved(mean, &of_batch)?, moved(var, &var_of_batch)?);
    let of =
        |x: Tensor, index: usize| Value::from(Item::computed(x, call.item(index).map_or(item.elem, |item| item.elem)));
    Ok(vec![of(y, 0), of(mean, 3), of(var, 4), of(of_batch, 3), of(var_of_batch, 4)])
}

/// Returns a scale in the shape of the normalised axes.
fn stretched(scale: Option<&Tensor>, shape: &[usize]) -> Result<Option<Tensor>> {
    scale.map(|scale| if scale.shape() == shape { Ok(scale.clone()) } else { scale.broadcast_to(shape) }).transpose()
}

fn layer(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let x = &item.x;
    let axis = axis_of(call.int("axis", -1)?, x.rank())?;
    let eps = call.float("epsilon", 1e-5)?;
    let normalized = &x.shape()[axis..];
    let fits = |scale: Option<&Tensor>| {
        scale.is_none_or(|scale| broadcast(scale.shape(), normalized).is_ok_and(|shape| shape == normalized))
    };
    let (gamma, beta) = (call.maybe_x(1)?, call.maybe_x(2)?);
    let y = if fits(gamma) && fits(beta) {
        let (gamma, beta) = (stretched(gamma, normalized)?, stretched(beta, normalized)?);
        x.layer_norm(normalized, gamma.as_ref(), beta.as_ref(), eps)?
    } else {
        let y = x.layer_norm(normalized, None, None, eps)?;
        let y = gamma.map_or_else(|| Ok(y.clone()), |gamma| y.mul(gamma))?;
        beta.map_or_else(|| Ok(y.clone()), |beta| y.add(beta))?
    };
    let mut made: Vec<Value> = vec![Item::computed(y, item.elem).into()];
    if call.step.outputs.len() > 1 {
        let axes: Vec<isize> = (axis..x.rank()).map(|axis| axis as isize).collect();
        // The statistics have a type of their own, float32 unless the node says otherwise.
        let stash = Elem(i32::try_from(call.int("stash_type", 1)?).unwrap_or(1));
        let x = &x.cast(dtype_of(stash)?);
        let mean = x.mean(&axes, true)?;
        let variance = x.var(&axes, 0, true)?;
        let inverse = variance.add(&number(&variance, eps))?.rsqrt()?;
        made.extend([mean, inverse].map(|x| Value::from(Item::computed(x, stash))));
    }
    Ok(made)
}

fn group(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let groups = lengths(&[call.int("num_groups", 0)?])?[0];
    let channels = item.x.shape().get(1).copied().unwrap_or(0);
    let each = channels.checked_div(groups).unwrap_or(0);
    // Before opset 21, the scale is one for each group.
    let wide = |scale: &Tensor| match call.opset() < 21 && scale.len() == groups && each > 1 {
        true => scale.reshape(&[groups, 1])?.broadcast_to(&[groups, each])?.reshape(&[groups * each]),
        false => Ok(scale.clone()),
    };
    let (gamma, beta) = (wide(call.x(1)?)?, wide(call.x(2)?)?);
    one(item.x.group_norm(groups, Some(&gamma), Some(&beta), call.float("epsilon", 1e-5)?)?, item.elem)
}

fn instance(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    one(item.x.instance_norm(Some(call.x(1)?), Some(call.x(2)?), call.float("epsilon", 1e-5)?)?, item.elem)
}

fn root_mean_square(call: &Call<'_>) -> Result<Vec<Value>> {
    let (item, scale) = (call.item(0)?, call.x(1)?);
    let x = &item.x;
    let axis = axis_of(call.int("axis", -1)?, x.rank())?;
    let eps = call.float("epsilon", 1e-5)?;
    if axis + 1 == x.rank() && scale.shape() == &x.shape()[axis..] {
        return one(x.rms_norm(Some(scale), eps)?, item.elem);
    }
    let joined = x.reshape(&[&x.shape()[..axis], &[count(&x.shape()[axis..])?]].concat())?;
    one(joined.rms_norm(None, eps)?.reshape(x.shape())?.mul(scale)?, item.elem)
}

fn lp(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let axis = axis_of(call.int("axis", -1)?, item.x.rank())? as isize;
    let norm = item.x.norm(call.int("p", 2)? as f64, &[axis], true)?;
    // A vector of zeros stays one.
    let norm = norm.eq(&number(&norm, 0.0))?.select(&number(&norm, 1.0), &norm)?;
    one(item.x.div(&norm)?, item.elem)
}

fn local_response(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let x = &item.x;
    let size = lengths(&[call.int("size", 0)?])?[0];
    let (alpha, beta, bias) = (call.float("alpha", 1e-4)?, call.float("beta", 0.75)?, call.float("bias", 1.0)?);
    let &[n, c, ..] = x.shape() else {
        return Err(Error::shape(format!("needs [n, c, ...], got {:?}", x.shape())));
    };
    if size == 0 {
        return Err(Error::value("`size` is 0; allowed: 1 or more"));
    }
    // The windows of the channels are those of an average over the first of two axes.
    let rows = x.square()?.reshape(&[n, 1, c, count(&x.shape()[2..])?])?;
    let (before, after) = ((size - 1) / 2, size / 2);
    let rows = rows.pad(&[(0, 0), (0, 0), (before, after), (0, 0)], 0.0)?;
    let options = precast::PoolOptions::default().kernel(vec![size, 1]).stride(vec![1, 1]);
    let mean = rows.avg_pool2d_with(&options)?.reshape(x.shape())?;
    let divisor = mean.mul(&number(x, alpha))?.add(&number(x, bias))?.powf(beta)?;
    one(x.div(&divisor)?, item.elem)
}

fn mean_variance(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let axes = call.ints("axes")?.unwrap_or_else(|| vec![0, 2, 3]);
    let axes = axes.iter().map(|axis| axis_of(*axis, item.x.rank()).map(|axis| axis as isize));
    let axes = axes.collect::<Result<Vec<isize>>>()?;
    let centred = item.x.sub(&item.x.mean(&axes, true)?)?;
    let deviation = centred.square()?.mean(&axes, true)?.sqrt()?;
    one(centred.div(&deviation.add(&number(&deviation, 1e-9))?)?, item.elem)
}

fn softmax(call: &Call<'_>, method: fn(&Tensor, isize) -> Result<Tensor>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let x = &item.x;
    if call.opset() >= 13 {
        let axis = axis_of(call.int("axis", -1)?, x.rank().max(1))?;
        return one(method(x, axis as isize)?, item.elem);
    }
    // All axes from this one are one.
    let axis = axis_of(call.int("axis", 1)?, x.rank())?;
    if count(&x.shape()[axis + 1..])? == 1 {
        return one(method(x, axis as isize)?, item.elem);
    }
    let rows = x.reshape(&[count(&x.shape()[..axis])?, count(&x.shape()[axis..])?])?;
    one(method(&rows, 1)?.reshape(x.shape())?, item.elem)
}
