//! Elements written at indices.

use std::collections::HashMap;

use super::{
    super::{
        call::{axis_of, one},
        step::Call,
        value::{Item, Value},
    },
    Table,
    index::{check_range, joined_index},
    tools::{count, from_start, vector},
};
use precast::{
    DType, Tensor,
    error::{Error, Result},
};

pub(super) const OPS: Table = &[
    ("Scatter", scatter_elements),
    ("ScatterElements", scatter_elements),
    ("ScatterND", scatter_nd),
    ("TensorScatter", tensor_scatter),
];

/// A function that joins a number with the one at its place.
type Join = fn(&Tensor, &Tensor) -> Result<Tensor>;

/// The effect on the numbers at the places.
enum Reduction {
    Replaced,
    Added,
    Joined(Join),
}

fn reduction(call: &Call<'_>) -> Result<Reduction> {
    Ok(match call.text("reduction")?.unwrap_or("none") {
        "none" => Reduction::Replaced,
        "add" => Reduction::Added,
        "mul" => Reduction::Joined(Tensor::mul),
        "max" => Reduction::Joined(Tensor::maximum),
        "min" => Reduction::Joined(Tensor::minimum),
        other => {
            return Err(Error::value(format!("`reduction` is `{other}`; allowed: none, add, mul, max, min")));
        }
    })
}

/// Joins rows with those at their places, in as many rounds as the most frequent place occurs.
fn joined(rows: &Tensor, places: &[i64], src: &Tensor, join: Join) -> Result<Tensor> {
    let mut met: HashMap<i64, usize> = HashMap::new();
    let mut rounds: Vec<Vec<(i64, i64)>> = Vec::new();
    for (from, place) in places.iter().enumerate() {
        let round = met.entry(*place).or_default();
        if *round == rounds.len() {
            rounds.push(vec![]);
        }
        rounds[*round].push((from as i64, *place));
        *round += 1;
    }
    let mut rows = rows.clone();
    for round in rounds {
        let (from, places): (Vec<i64>, Vec<i64>) = round.into_iter().unzip();
        let places = vector(places)?;
        let new = join(&rows.index_select(0, &places)?, &src.index_select(0, &vector(from)?)?)?;
        rows = rows.index_copy(0, &places, &new)?;
    }
    Ok(rows)
}

/// Runs a scattering that adds integers in f64.
fn floating(item: &Item, src: &Tensor, f: impl FnOnce(&Tensor, &Tensor) -> Result<Tensor>) -> Result<Tensor> {
    if item.is_int() {
        return Ok(f(&item.x.cast(DType::F64), &src.cast(DType::F64))?.cast(DType::I64));
    }
    f(&item.x, src)
}

fn scatter_elements(call: &Call<'_>) -> Result<Vec<Value>> {
    let (item, src) = (call.item(0)?, call.x(2)?);
    let axis = axis_of(call.int("axis", 0)?, item.x.rank())?;
    let index = from_start(call.x(1)?, item.x.shape()[axis])?;
    let x = match reduction(call)? {
        Reduction::Replaced => item.x.scatter(axis as isize, &index, src)?,
        Reduction::Added => floating(item, src, |x, src| x.scatter_add(axis as isize, &index, src))?,
        Reduction::Joined(join) => {
            call.readable(1)?;
            let (shape, of_index) = (item.x.shape(), index.shape());
            let fits = |axis_of: usize| axis_of == axis || of_index[axis_of] <= shape[axis_of];
            if of_index.len() != shape.len() || src.shape() != of_index || !(0..shape.len()).all(fits) {
                return Err(Error::shape(format!("indices of the shape {of_index:?} do not fit {shape:?}")));
            }
            // The place of each number among all.
            let place = |(at, index): (usize, i64)| {
                let (mut rest, mut place, mut stride) = (at, 0, 1);
                for of in (0..shape.len()).rev() {
                    let own = rest % of_index[of];
                    rest /= of_index[of];
                    place += stride * if of == axis { index } else { own as i64 };
                    stride *= shape[of] as i64;
                }
                place
            };
            let places: Vec<i64> = index.to_vec::<i64>()?.into_iter().enumerate().map(place).collect();
            let (flat, src) = (item.x.reshape(&[item.x.len()])?, src.reshape(&[src.len()])?);
            joined(&flat, &places, &src, join)?.reshape(shape)?
        }
    };
    one(x, item.elem)
}

fn scatter_nd(call: &Call<'_>) -> Result<Vec<Value>> {
    let (item, index, src) = (call.item(0)?, call.x(1)?, call.x(2)?);
    let (shape, of_index) = (item.x.shape(), index.shape());
    let depth = of_index.last().copied().ok_or_else(|| Error::shape("the indices have no axis"))?;
    if depth > shape.len() {
        return Err(Error::shape(format!("indices of the shape {of_index:?} do not fit {shape:?}")));
    }
    let (inner, rest) = shape.split_at(depth);
    check_range(index, inner)?;
    let flat = joined_index(index, inner)?;
    let flat = flat.reshape(&[flat.len()])?;
    let rows = Item { x: item.x.reshape(&[&[count(inner)?], rest].concat())?, ..item.clone() };
    let src = src.reshape(&[&[flat.len()], rest].concat())?;
    let x = match reduction(call)? {
        Reduction::Replaced => rows.x.index_put(&flat, &src, false)?,
        Reduction::Added => floating(&rows, &src, |x, src| x.index_put(&flat, src, true))?,
        Reduction::Joined(join) => {
            call.readable(1)?;
            joined(&rows.x, &flat.to_vec::<i64>()?, &src, join)?
        }
    };
    one(x.reshape(shape)?, item.elem)
}

/// Writes new entries into a cache, each row at its own place.
fn tensor_scatter(call: &Call<'_>) -> Result<Vec<Value>> {
    let (item, update) = (call.item(0)?, call.x(1)?);
    let shape = item.x.shape();
    let axis = axis_of(call.int("axis", -2)?, shape.len())?;
    let circular = match call.text("mode")?.unwrap_or("linear") {
        "linear" => false,
        "circular" => true,
        other => return Err(Error::value(format!("`mode` is `{other}`; allowed: linear, circular"))),
    };
    let batch = shape.first().copied().unwrap_or(1);
    let starts = call.maybe_numbers(2)?.unwrap_or_else(|| vec![0; batch]);
    let (len, new) = (shape[axis] as i64, update.shape().get(axis).copied().unwrap_or(0) as i64);
    if axis == 0 || starts.len() != batch || update.shape().first() != Some(&batch) {
        return Err(Error::shape(format!("{} starts do not fit {shape:?}", starts.len())));
    }
    let mut rows = Vec::new();
    for (row, start) in starts.iter().enumerate() {
        let place = |at: i64| {
            let at = start.saturating_add(at);
            match circular {
                true if len > 0 => Ok(at.rem_euclid(len)),
                _ if (0..len).contains(&at) => Ok(at),
                _ => Err(Error::value(format!("the place {at} is outside of an axis of {len}"))),
            }
        };
        let places = (0..new).map(place).collect::<Result<Vec<i64>>>()?;
        let places = Tensor::from_vec(places, &[new as usize])?;
        let (into, from) = (item.x.at(0, row)?, update.at(0, row)?);
        rows.push(into.index_copy(axis as isize - 1, &places, &from)?);
    }
    one(Tensor::stack(&rows.iter().collect::<Vec<_>>(), 0)?, item.elem)
}
