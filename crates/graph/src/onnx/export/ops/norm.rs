//! Normalisations and softmax.

use super::{
    super::{
        call::{Call, Emit, lengths, one},
        message::{Attr, Val},
    },
    product::along_channels,
};
use crate::Dim;
use precast::{Op, error::Result};

pub(super) fn find(op: Op) -> Option<Emit> {
    Some(match op {
        Op::Softmax => |c| softmax(c, "Softmax"),
        Op::LogSoftmax => |c| softmax(c, "LogSoftmax"),
        Op::Softmin => |c| {
            let x = c.input(0)?;
            c.x[0] = c.node("Neg", &[&x], &[])?;
            softmax(c, "Softmax")
        },
        Op::BatchNorm => batch,
        Op::LayerNorm => layer,
        Op::GroupNorm => group,
        Op::InstanceNorm => instance,
        Op::RmsNorm => root_mean_square,
        _ => return None,
    })
}

fn softmax(c: &mut Call<'_>, op: &'static str) -> Result<Vec<Val>> {
    let rank = c.rank(0);
    let x = c.input(0)?;
    if rank == 0 {
        let x = c.unsqueeze(&x, &[0])?;
        let y = c.node(op, &[&x], &[("axis", Attr::Int(0))])?;
        return one(c.squeeze(&y, &[0]));
    }
    let axis = c.axis(rank)?;
    one(c.node(op, &[&x], &[("axis", Attr::Int(axis as i64))]))
}

/// Returns the scale and the shift of a norm, which follow its other inputs; ones and zeros where they are not given.
fn parameters(c: &mut Call<'_>, from: usize, shape: &[usize]) -> Result<[Val; 2]> {
    let (gamma, beta) = (c.given("with_gamma")?, c.given("with_beta")?);
    let scale = if gamma { c.input(from)? } else { c.repeated(1.0, shape)? };
    let shift = if beta { c.input(from + usize::from(gamma))? } else { c.repeated(0.0, shape)? };
    Ok([scale, shift])
}

fn epsilon(c: &Call<'_>) -> Result<(&'static str, Attr)> {
    Ok(("epsilon", Attr::Float(c.attr("eps")?)))
}

fn batch(c: &mut Call<'_>) -> Result<Vec<Val>> {
    let [x, mean, var] = [0, 1, 2].map(|place| c.input(place));
    let channels = c.fixed(1)?;
    let [scale, shift] = parameters(c, 3, &channels)?;
    let epsilon = epsilon(c)?;
    one(c.node("BatchNormalization", &[&x?, &scale, &shift, &mean?, &var?], &[epsilon]))
}

fn layer(c: &mut Call<'_>) -> Result<Vec<Val>> {
    let shape: Vec<usize> = c.attr("normalized_shape")?;
    if !c.writer.has("LayerNormalization") || shape.is_empty() {
        return Ok(vec![]);
    }
    let x = c.input(0)?;
    let [scale, shift] = parameters(c, 1, &shape)?;
    let shift = if c.given("with_beta")? { shift } else { Val::none() };
    let (axis, epsilon) = (c.rank(0) - shape.len(), epsilon(c)?);
    one(c.node("LayerNormalization", &[&x, &scale, &shift], &[("axis", Attr::Int(axis as i64)), epsilon]))
}

fn instance(c: &mut Call<'_>) -> Result<Vec<Val>> {
    let x = c.input(0)?;
    let channels = lengths(&c.shape(0)[1..2])?;
    let [scale, shift] = parameters(c, 1, &channels)?;
    let epsilon = epsilon(c)?;
    if c.rank(0) > 2 {
        return one(c.node("InstanceNormalization", &[&x, &scale, &shift], &[epsilon]));
    }
    // Runtimes need an axis of space.
    let x = c.unsqueeze(&x, &[2])?;
    let y = c.node("InstanceNormalization", &[&x, &scale, &shift], &[epsilon])?;
    one(c.squeeze(&y, &[2]))
}

/// Before opset 21, the groups are the channels of an instance norm.
fn group(c: &mut Call<'_>) -> Result<Vec<Val>> {
    let groups: usize = c.attr("groups")?;
    let x = c.input(0)?;
    let rank = c.rank(0);
    let channels = lengths(&c.shape(0)[1..2])?;
    let [scale, shift] = parameters(c, 1, &channels)?;
    let epsilon = epsilon(c)?;
    if c.writer.opset >= 21 {
        let groups = ("num_groups", Attr::Int(groups as i64));
        return one(c.node("GroupNormalization", &[&x, &scale, &shift], &[epsilon, groups]));
    }
    let each: usize = c.fixed_from(0, 1)?.iter().product::<usize>() / groups.max(1);
    let joined = [c.shape(0)[0], Dim::fixed(groups), Dim::fixed(each)];
    let (ones, zeros) = (c.repeated(1.0, &[groups])?, c.repeated(0.0, &[groups])?);
    let x = c.reshape(&x, &joined)?;
    let y = c.node("InstanceNormalization", &[&x, &ones, &zeros], &[epsilon])?;
    let shape = c.out().shape.clone();
    let y = c.reshape(&y, &shape)?;
    let scale = along_channels(c, &scale, rank)?;
    let y = c.node("Mul", &[&y, &scale], &[])?;
    let shift = along_channels(c, &shift, rank)?;
    one(c.node("Add", &[&y, &shift], &[]))
}

fn root_mean_square(c: &mut Call<'_>) -> Result<Vec<Val>> {
    let x = c.input(0)?;
    let axis = c.rank(0) - 1;
    let scale = if c.given("with_gamma")? { Some(c.input(1)?) } else { None };
    if c.writer.has("RMSNormalization") {
        let length = lengths(&c.shape(0)[axis..])?;
        let scale = scale.map_or_else(|| c.repeated(1.0, &length), Ok)?;
        let epsilon = epsilon(c)?;
        return one(c.node("RMSNormalization", &[&x, &scale], &[("axis", Attr::Int(axis as i64)), epsilon]));
    }
    let eps = c.attr("eps")?;
    let (eps, two) = (c.number(eps)?, c.number(2.0)?);
    let squares = c.node("Pow", &[&x, &two], &[])?;
    let mean = c.reduce("ReduceMean", &squares, &[axis], true)?;
    let sum = c.node("Add", &[&mean, &eps], &[])?;
    let root = c.node("Sqrt", &[&sum], &[])?;
    let y = c.node("Div", &[&x, &root], &[])?;
    match scale {
        Some(scale) => one(c.node("Mul", &[&y, &scale], &[])),
        None => Ok(vec![y]),
    }
}
