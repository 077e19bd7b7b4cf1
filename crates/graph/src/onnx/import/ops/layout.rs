//! Slices, paddings, and elements moved between axes.

use super::{
    super::{
        call::{axis_of, lengths, one},
        step::Call,
        value::{Value, room},
    },
    Table,
    tools::vector,
};
use precast::{
    Tensor,
    error::{Error, Result},
};

pub(super) const OPS: Table = &[
    ("Slice", slice),
    ("Pad", pad),
    ("CenterCropPad", center),
    ("DepthToSpace", depth_to_space),
    ("SpaceToDepth", space_to_depth),
    ("ReverseSequence", reverse_sequence),
];

fn slice(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let rank = item.x.rank();
    let missing = || Error::value("its starts and ends are missing");
    let starts = call.ints_since(10, 1, "starts")?.ok_or_else(missing)?;
    let ends = call.ints_since(10, 2, "ends")?.ok_or_else(missing)?;
    let axes = call.ints_since(10, 3, "axes")?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = if call.opset() >= 10 { call.maybe_numbers(4)? } else { None };
    let steps = steps.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] {
        return Err(Error::shape("its starts, ends, axes and steps differ in number"));
    }
    let mut x = item.x.clone();
    for (((start, end), axis), step) in starts.iter().zip(&ends).zip(&axes).zip(&steps) {
        x = sliced(&x, axis_of(*axis, rank)?, *start, *end, *step)?;
    }
    one(x, item.elem)
}

fn sliced(x: &Tensor, axis: usize, start: i64, end: i64, step: i64) -> Result<Tensor> {
    let len = x.shape()[axis] as i64;
    let place = |at: i64| if at < 0 { at.saturating_add(len) } else { at };
    let (start, end) = match step {
        0 => return Err(Error::value("a step of 0")),
        step if step > 0 => (place(start).clamp(0, len), place(end).clamp(0, len)),
        // -1 is before the first element.
        _ => (place(start).clamp(-1, len - 1), place(end).clamp(-1, len - 1)),
    };
    if step == 1 {
        return match (start, end) {
            (0, end) if end == len => Ok(x.clone()),
            _ => x.slice(axis as isize, start as usize..end.max(start) as usize),
        };
    }
    let mut places = Vec::new();
    let mut at = start;
    while if step > 0 { at < end } else { at > end } {
        places.push(at);
        at = at.saturating_add(step);
    }
    x.index_select(axis as isize, &vector(places)?)
}

fn pad(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let rank = item.x.rank();
    let name = if call.opset() < 2 { "paddings" } else { "pads" };
    let pads = call.ints_since(11, 1, name)?.ok_or_else(|| Error::value("its pads are missing"))?;
    let axes = if call.opset() >= 18 { call.maybe_numbers(3)? } else { None };
    let axes = match axes {
        Some(axes) => axes.iter().map(|axis| axis_of(*axis, rank)).collect::<Result<Vec<usize>>>()?,
        None => (0..rank).collect(),
    };
    if pads.len() != 2 * axes.len() {
        return Err(Error::shape(format!("{} pads for {} axes; expected two for each", pads.len(), axes.len())));
    }
    let mut x = item.x.clone();
    let mut pairs = vec![(0, 0); rank];
    for (index, axis) in axes.iter().enumerate() {
        let (before, after) = (pads[index], pads[index + axes.len()]);
        let len = x.shape()[*axis] as i64;
        // A negative one removes elements.
        if before < 0 || after < 0 {
            let start = before.saturating_neg().clamp(0, len);
            let end = len.saturating_add(after.min(0)).clamp(start, len);
            x = x.slice(*axis as isize, start as usize..end as usize)?;
        }
        pairs[*axis] = (before.max(0) as usize, after.max(0) as usize);
    }
    let to: Vec<usize> =
        x.shape().iter().zip(&pairs).map(|(len, (a, b))| len.saturating_add(*a).saturating_add(*b)).collect();
    room(&to)?;
    let padded = match call.text("mode")?.unwrap_or("constant") {
        "constant" => {
            let value = match call.opset() >= 11 {
                true => call.maybe(2)?.map(|_| call.real(2)).transpose()?.unwrap_or(0.0),
                false => call.float("value", 0.0)?,
            };
            x.pad(&pairs, value)?
        }
        mode @ ("reflect" | "edge" | "wrap") => mirrored(&x, &pairs, mode)?,
        other => {
            return Err(call.refuse(&format!("the mode `{other}` is unknown; allowed: constant, edge, reflect, wrap")));
        }
    };
    one(padded, item.elem)
}

/// Pads with elements of the tensor itself.
fn mirrored(x: &Tensor, pairs: &[(usize, usize)], mode: &str) -> Result<Tensor> {
    let longest = pairs.iter().zip(x.shape()).all(|((a, b), len)| a.max(b) < len);
    match mode {
        "reflect" if x.dtype().is_float() && longest => return x.reflection_pad(pairs),
        "edge" if x.dtype().is_float() => return x.replication_pad(pairs),
        _ => {}
    }
    let mut x = x.clone();
    for (axis, (before, after)) in pairs.iter().enumerate().filter(|(_, pair)| **pair != (0, 0)) {
        let len = x.shape()[axis] as i64;
        if len == 0 {
            return Err(Error::shape(format!("axis {axis} has no elements to pad with")));
        }
        let place = |at: i64| match mode {
            "edge" => at.clamp(0, len - 1),
            "wrap" => at.rem_euclid(len),
            _ if len == 1 => 0,
            _ => {
                let at = at.rem_euclid(2 * (len - 1));
                at.min(2 * (len - 1) - at)
            }
        };
        let places = (-(*before as i64)..len + *after as i64).map(place).collect();
        x = x.index_select(axis as isize, &vector(places)?)?;
    }
    Ok(x)
}

fn center(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let rank = item.x.rank();
    let to = lengths(&call.numbers(1)?)?;
    let axes = call.ints("axes")?.unwrap_or_else(|| (0..rank as i64).collect());
    if axes.len() != to.len() {
        return Err(Error::shape(format!("{} lengths for {} axes", to.len(), axes.len())));
    }
    let mut x = item.x.clone();
    let mut pairs = vec![(0, 0); rank];
    for (axis, to) in axes.iter().zip(to) {
        let axis = axis_of(*axis, rank)?;
        let len = x.shape()[axis];
        if to < len {
            let start = (len - to) / 2;
            x = x.slice(axis as isize, start..start + to)?;
        } else {
            pairs[axis] = ((to - len) / 2, (to - len).div_ceil(2));
        }
    }
    room(
        &x.shape()
            .iter()
            .zip(&pairs)
            .map(|(len, (a, b))| len.saturating_add(*a).saturating_add(*b))
            .collect::<Vec<_>>(),
    )?;
    one(if pairs.iter().all(|pair| *pair == (0, 0)) { x } else { x.pad(&pairs, 0.0)? }, item.elem)
}

fn blocks(call: &Call<'_>) -> Result<usize> {
    match call.int("blocksize", 0)? {
        size @ 1..=65_535 => Ok(size as usize),
        size => Err(Error::value(format!("`blocksize` is {size}; allowed: 1 to 65535"))),
    }
}

fn depth_to_space(call: &Call<'_>) -> Result<Vec<Value>> {
    let (item, r) = (call.item(0)?, blocks(call)?);
    let &[n, c, h, w] = item.x.shape() else {
        return Err(Error::shape(format!("needs [n, c, h, w], got {:?}", item.x.shape())));
    };
    if c % (r * r) != 0 {
        return Err(Error::shape(format!("{c} channels do not divide by {}", r * r)));
    }
    let mode = call.text("mode")?.unwrap_or("DCR");
    let (apart, axes) = match mode {
        "CRD" => ([n, c / (r * r), r, r, h, w], [0, 1, 4, 2, 5, 3]),
        "DCR" => ([n, r, r, c / (r * r), h, w], [0, 3, 4, 1, 5, 2]),
        other => return Err(Error::value(format!("`mode` is `{other}`; allowed: DCR, CRD"))),
    };
    one(item.x.reshape(&apart)?.permute(&axes)?.reshape(&[n, c / (r * r), h * r, w * r])?, item.elem)
}

fn space_to_depth(call: &Call<'_>) -> Result<Vec<Value>> {
    let (item, r) = (call.item(0)?, blocks(call)?);
    let &[n, c, h, w] = item.x.shape() else {
        return Err(Error::shape(format!("needs [n, c, h, w], got {:?}", item.x.shape())));
    };
    if h % r != 0 || w % r != 0 {
        return Err(Error::shape(format!("{h} rows and {w} columns do not divide by {r}")));
    }
    let axes = match call.text("mode")?.unwrap_or("DCR") {
        "CRD" => [0, 1, 3, 5, 2, 4],
        _ => [0, 3, 5, 1, 2, 4],
    };
    let apart = item.x.reshape(&[n, c, h / r, r, w / r, r])?.permute(&axes)?;
    one(apart.reshape(&[n, c * r * r, h / r, w / r])?, item.elem)
}

fn reverse_sequence(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let rank = item.x.rank();
    let (batch, time) = (axis_of(call.int("batch_axis", 1)?, rank)?, axis_of(call.int("time_axis", 0)?, rank)?);
    if batch == time {
        return Err(Error::value("its batch axis and its time axis are the same"));
    }
    let ends = lengths(&call.numbers(1)?)?;
    let len = item.x.shape()[time];
    if ends.len() != item.x.shape()[batch] || ends.iter().any(|end| *end > len) {
        return Err(Error::shape(format!("the lengths {ends:?} do not fit {:?}", item.x.shape())));
    }
    let row = |(index, end): (usize, &usize)| {
        let row = item.x.slice(batch as isize, index..index + 1)?;
        let places = (0..*end as i64).rev().chain(*end as i64..len as i64).collect();
        row.index_select(time as isize, &vector(places)?)
    };
    let rows = ends.iter().enumerate().map(row).collect::<Result<Vec<Tensor>>>()?;
    one(Tensor::concat(&rows.iter().collect::<Vec<_>>(), batch as isize)?, item.elem)
}
