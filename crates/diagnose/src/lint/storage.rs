//! Hazards of parameters and buffers stored in 16 bits: statistics beyond their range, and updates that are lost.

use precast::{
    Child, Grads, Tensor,
    cell::{AsCell, Params},
    error::Result,
    optim::Method,
    storage::{Decorate, LowParam},
};
use precast_base::printable::number;

use super::{
    Gradients,
    finding::{Finding, Rule, Severity},
    format::{amax, overflows_at, short},
};
use crate::measure::values;

/// Share of lost updates above which a parameter learns something else: one update of 16.
const LOST: f64 = 1.0 / 16.0;

/// Finds hazards of the storage: that of the request or, without one, that of the network.
pub(super) fn findings<C: ?Sized + AsCell>(
    net: &Child<C>,
    storage: Option<&Decorate>,
    update: Option<&(Method, f64)>,
    gradients: &Gradients,
) -> Result<Vec<Finding>> {
    let low = storage.map_or_else(|| Ok(LowParam::of(net)), |storage| storage.would_store(net))?;
    let mut found: Vec<Finding> = low.iter().filter_map(|low| out_of_range(low, gradients)).collect();
    found.extend(low_weights(&low, update, gradients)?);
    Ok(found)
}

/// Returns the path of the cell of a parameter.
fn cell_of(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(cell, _)| cell)
}

/// Finds a parameter or buffer beyond the range of its storage, or statistics on their way there.
fn out_of_range(low: &LowParam, gradients: &Gradients) -> Option<Finding> {
    let largest = |x: &Tensor| {
        let numbers = values(x);
        if numbers.iter().all(|x| x.is_finite()) { amax(&numbers) } else { f64::INFINITY }
    };
    let own = largest(&low.param.full());
    // Running statistics move towards those of the batches.
    let batches = gradients.statistics.iter().filter(|(buffer, _)| buffer.is_same(&low.param));
    let met = batches.map(|(_, batch)| largest(batch)).fold(own, f64::max);
    let limit = overflows_at(low.dtype);
    if met < limit {
        return None;
    }
    let rule = if low.param.is_buffer() { Rule::RunningVar } else { Rule::Overflow };
    let finding = Finding::of_cell(rule, Severity::Error, cell_of(&low.path), [met, limit]);
    let what = format!("`{}`, stored in {}, reaches {}, beyond {}", low.path, low.dtype, short(met), short(limit));
    Some(finding.what(what).write(format!("`Decorate::exclude_path(\"{}\")`, which stores it in f32", low.path)))
}

/// Finds low parameters whose updates are lost: with an optimizer, by a step on copies of them.
fn low_weights(low: &[LowParam], update: Option<&(Method, f64)>, gradients: &Gradients) -> Result<Option<Finding>> {
    let bare = |low: &&LowParam| low.param.is_trained() && low.loses_updates();
    let bare: Vec<&LowParam> = low.iter().filter(bare).collect();
    let Some(first) = bare.first() else { return Ok(None) };
    let dtype = first.dtype;
    let write = "f32 masters (`Decorate::masters`), stochastic rounding or Kahan compensation";
    let Some((method, lr)) = update else {
        let half = dtype.epsilon() / 4.0;
        let what = format!(
            "{} parameters are stored in {dtype} without masters: an update below about {} of a weight is lost",
            bare.len(),
            short(half)
        );
        let finding = Finding::of_cell(Rule::LowWeights, Severity::Warning, "", [bare.len() as f64, 0.0]);
        return Ok(Some(finding.what(what).write(write)));
    };
    let (mut grads, mut copies) = (Grads::default(), Vec::new());
    for low in &bare {
        let Some(grad) = gradients.scaled.get(&low.param) else { continue };
        let copy = low.copy();
        let unscaled: Vec<f64> = grad.to_f64().iter().map(|g| g / gradients.scale).collect();
        grads.set(&copy, Tensor::from_f64(&unscaled, grad.shape(), precast::DType::F32)?);
        copies.push((low.path.clone(), copy));
    }
    if copies.is_empty() {
        return Ok(None);
    }
    let mut optimizer = method.optimizer(copies.iter().cloned().collect::<Params>(), *lr, &|_| false);
    let before: Vec<Vec<f64>> = copies.iter().map(|(_, copy)| copy.value().to_f64()).collect();
    optimizer.update(&grads)?;
    let lost = copies.iter().zip(&before).map(|((path, copy), before)| {
        let (after, grad) = (copy.value().to_f64(), grads.get(copy).map_or(Vec::new(), |grad| grad.to_f64()));
        let moves = || grad.iter().zip(before.iter().zip(&after)).filter(|(grad, _)| **grad != 0.0);
        let same = moves().filter(|(_, (before, after))| before == after).count();
        (path, same as f64 / moves().count().max(1) as f64)
    });
    let lost: Vec<(&String, f64)> = lost.filter(|(_, share)| *share > LOST).collect();
    let Some((path, worst)) = lost.iter().max_by(|a, b| a.1.total_cmp(&b.1)) else { return Ok(None) };
    let high = lost.len();
    let what = format!(
        "{high} of {} parameters are stored in {dtype} without masters and lose updates at a learning rate of {}: `{}` loses {:.0} %",
        bare.len(),
        number(*lr),
        path,
        100.0 * worst
    );
    let finding = Finding::of_cell(Rule::LowWeights, Severity::Warning, "", [*worst, LOST]);
    Ok(Some(finding.what(what).write(write)))
}
