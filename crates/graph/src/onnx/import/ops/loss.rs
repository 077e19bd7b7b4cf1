//! Losses of classes.

use super::{
    super::{call::one, step::Call, value::Item},
    Table,
    index::classes,
    tools::number,
};
use precast::{
    Tensor,
    error::{Error, Result},
};

pub(super) const OPS: Table = &[
    ("NegativeLogLikelihoodLoss", |call| {
        let item = call.item(0)?;
        one(likelihood(call, &item.x)?, item.elem)
    }),
    ("SoftmaxCrossEntropyLoss", |call| {
        let item = call.item(0)?;
        let log = item.x.log_softmax(1)?;
        let loss = likelihood(call, &log)?;
        Ok(vec![Item::computed(loss, item.elem).into(), Item::computed(log, item.elem).into()])
    }),
];

/// Computes the mean, the sum or each of the negative logarithms of the targets' probabilities, times their weights.
fn likelihood(call: &Call<'_>, log: &Tensor) -> Result<Tensor> {
    let target = call.item(1)?;
    let count = match log.shape() {
        [_, count, ..] => *count,
        shape => return Err(Error::shape(format!("needs [n, classes, ...], got {shape:?}"))),
    };
    let is_target = classes(target, count)?;
    let zero = number(log, 0.0);
    let losses = is_target.select(&log.neg()?, &zero)?.sum(&[1], false)?;
    let ignored = call.maybe_int("ignore_index")?;
    let mut weights = match call.maybe_x(2)? {
        Some(weights) => {
            let shape = [&[1, weights.len()][..], &vec![1; log.rank() - 2]].concat();
            Some(is_target.select(&weights.reshape(&shape)?, &zero)?.sum(&[1], false)?)
        }
        None => None,
    };
    if let Some(ignored) = ignored {
        let counts = target.x.ne(&Tensor::from_vec(vec![ignored], &[])?)?;
        let one = number(log, 1.0);
        weights = Some(counts.select(weights.as_ref().unwrap_or(&one), &zero)?);
    }
    let losses = weights.as_ref().map_or_else(|| Ok(losses.clone()), |weights| losses.mul(weights))?;
    match call.text("reduction")?.unwrap_or("mean") {
        "none" => Ok(losses),
        "sum" => losses.sum_all(),
        "mean" => match weights {
            Some(weights) => losses.sum_all()?.div(&weights.sum_all()?),
            None => losses.mean_all(),
        },
        other => Err(Error::value(format!("`reduction` is `{other}`; allowed: none, sum, mean"))),
    }
}
