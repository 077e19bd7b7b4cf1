//! Sequences and optional values, which are lists here.

use super::{
    super::{
        call::{axis_of, known, lengths, one},
        step::Call,
        value::{Item, Value},
    },
    Table,
};
use precast::{
    Tensor,
    error::{Error, Result},
};

pub(super) const OPS: Table = &[
    ("SequenceConstruct", |call| Ok(vec![Value::Many(call.inputs.clone())])),
    ("SequenceEmpty", |_| Ok(vec![Value::Many(vec![])])),
    ("SequenceAt", |call| {
        let values = list(call, 0)?;
        let at = axis_of(call.number(1)?, values.len())
            .map_err(|_| Error::value(format!("a sequence of {} has no such element", values.len())))?;
        Ok(vec![values[at].clone()])
    }),
    ("SequenceErase", |call| {
        let mut values = list(call, 0)?.to_vec();
        let at = call.maybe(1)?.map_or(Ok(-1), |_| call.number(1))?;
        values.remove(axis_of(at, values.len())?);
        Ok(vec![Value::Many(values)])
    }),
    ("SequenceInsert", |call| {
        let mut values = list(call, 0)?.to_vec();
        let at = match call.maybe(2)? {
            // The end is a place as well.
            Some(_) => match call.number(2)? {
                at if at == values.len() as i64 => values.len(),
                at => axis_of(at, values.len())?,
            },
            None => values.len(),
        };
        values.insert(at, call.item(1)?.clone().into());
        Ok(vec![Value::Many(values)])
    }),
    ("SequenceLength", |call| known(Item::int(list(call, 0)?.len() as i64)?)),
    ("ConcatFromSequence", concat),
    ("SplitToSequence", split),
    ("Optional", |call| Ok(vec![call.inputs.first().cloned().unwrap_or(Value::Absent)])),
    ("OptionalGetElement", |call| match call.inputs.first() {
        None | Some(Value::Absent) => Err(Error::value("the optional value is empty")),
        Some(value) => Ok(vec![value.clone()]),
    }),
    ("OptionalHasElement", |call| known(Item::truth(!matches!(call.inputs.first(), None | Some(Value::Absent)))?)),
];

fn list<'a>(call: &'a Call<'_>, index: usize) -> Result<&'a [Value]> {
    match call.inputs.get(index) {
        Some(Value::Many(values)) => Ok(values),
        _ => Err(Error::value(format!("input {index} is not a sequence"))),
    }
}

fn concat(call: &Call<'_>) -> Result<Vec<Value>> {
    let values = list(call, 0)?.iter().map(|value| match value {
        Value::One(item) => Ok(item),
        _ => Err(Error::value("its sequence has an element that is not a tensor")),
    });
    let items = values.collect::<Result<Vec<&Item>>>()?;
    let Some(first) = items.first() else { return Err(Error::value("its sequence is empty")) };
    let tensors: Vec<&Tensor> = items.iter().map(|item| &item.x).collect();
    let axis = call.maybe_int("axis")?.ok_or_else(|| Error::value("its attribute `axis` is missing"))?;
    let stacks = call.flag("new_axis", false)?;
    let axis = axis_of(axis, first.x.rank() + usize::from(stacks))? as isize;
    one(if stacks { Tensor::stack(&tensors, axis)? } else { Tensor::concat(&tensors, axis)? }, first.elem)
}

fn split(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let axis = axis_of(call.int("axis", 0)?, item.x.rank())?;
    let len = item.x.shape()[axis];
    let keeps = call.flag("keepdims", true)?;
    let (parts, whole) = match call.maybe(1)? {
        None => (vec![1; len], false),
        Some(split) if split.x.rank() == 0 => {
            let part = lengths(&[call.number(1)?])?[0].max(1);
            ((0..len.div_ceil(part)).map(|index| part.min(len - index * part)).collect(), true)
        }
        Some(_) => (lengths(&call.numbers(1)?)?, true),
    };
    let parts = item.x.split(&parts, axis as isize)?.into_iter().map(|x| {
        let x = if keeps || whole { x } else { x.squeeze(axis as isize)? };
        Ok(Item { x, elem: item.elem, known: item.known }.into())
    });
    Ok(vec![Value::Many(parts.collect::<Result<_>>()?)])
}
