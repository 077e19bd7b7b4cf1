//! Data that is far off: the largest input and the largest target, where numbers overflow, and updates beyond float32.

use precast::{
    Child, DType, Grads, Param, Tensor,
    cell::{AsCell, Params},
    error::Result,
    optim::Method,
};

use super::{
    Gradients,
    edges::Edges,
    finding::{Finding, Rule, Severity},
    format::{amax, short},
};
use crate::measure::{largest, values};

/// Largest number whose square is a float32.
fn largest_square() -> f64 {
    f64::from(f32::MAX).sqrt()
}

/// Finds the update of an optimizer that averages squares of gradients beyond float32, by a step on copies.
pub(super) fn update<C: ?Sized + AsCell>(
    net: &Child<C>,
    (method, lr): &(Method, f64),
    gradients: &Gradients,
) -> Result<Option<Finding>> {
    let of_param = |(path, param): &(String, Param)| {
        let grad: Vec<f64> = gradients.scaled.get(param)?.to_f64().iter().map(|g| g / gradients.scale).collect();
        Some((path.to_string(), param.clone(), amax(&grad), grad))
    };
    let params = net.named_params();
    let far = params.iter().filter_map(of_param).filter(|(_, _, amax, _)| *amax > largest_square());
    let Some((path, param, amax, grad)) = far.max_by(|a, b| a.2.total_cmp(&b.2)) else { return Ok(None) };
    let (mut grads, copy) = (Grads::default(), Param::new(param.full()));
    grads.set(&copy, Tensor::from_f64(&grad, &param.shape(), DType::F32)?);
    let params: Params = [(path.clone(), copy)].into_iter().collect();
    if method.optimizer(params, *lr, &|_| false).update(&grads).is_ok() {
        return Ok(None);
    }
    let cell = path.rsplit_once('.').map_or("", |(cell, _)| cell);
    let limit = short(largest_square());
    let what = format!(
        "the gradient of `{path}` reaches {}, beyond {limit}: its square, which {} averages, is not a float32; no precision is \
         to blame",
        short(amax),
        method.name()
    );
    let finding = Finding::of_cell(Rule::UpdateOverflow, Severity::Error, cell, [amax, largest_square()]);
    Ok(Some(finding.what(what).write("clipped gradients, or a smaller loss")))
}

/// Finds the largest input and the largest target beyond the range of float16, or of squares in float32, if one of the
/// other findings is an overflow.
pub(super) fn data(edges: &Edges, before: &[Finding]) -> Vec<Finding> {
    let overflows = [Rule::NotFinite, Rule::Overflow, Rule::GradOverflow, Rule::UpdateOverflow];
    if !before.iter().any(|found| overflows.contains(&found.rule) && found.severity > Severity::Information) {
        return Vec::new();
    }
    let is_f16 = edges.list.iter().any(|edge| edge.dtype == DType::F16);
    let limits = [
        (largest_square().sqrt(), "the largest number whose fourth power is a float32"),
        (largest(DType::F16), "the largest f16"),
    ];
    let limits = &limits[..if is_f16 { 2 } else { 1 }];
    let finding = |of: &str, largest: Option<(f64, usize)>| {
        let (amax, column) = largest?;
        let (limit, what) = limits.iter().find(|(limit, _)| amax > *limit)?;
        let (met, shown) = (short(amax), short(*limit));
        let what = format!("the {of}s reach {met} in number {column} of an example, beyond {shown}, {what}");
        let finding = Finding::of_cell(Rule::FarData, Severity::Warning, "", [amax, *limit]);
        Some(finding.what(what).write(format!("{of}s of about 1, or the data without this number if it is a mistake")))
    };
    let mut inputs = Vec::new();
    let mut targets = Vec::new();
    for (at, edge) in edges.list.iter().enumerate() {
        let is_loss = edge.forward_op().is_some_and(|op| op.name().ends_with("Loss"));
        for (i, x) in edge.operands.iter().enumerate().filter(|(_, x)| x.dtype().is_float()) {
            if edges.is_given_operand(at, i) {
                inputs.push(largest_of(x));
            } else if is_loss && edges.is_constant(at, i) {
                targets.push(largest_of(x));
            }
        }
    }
    let most = |all: Vec<(f64, usize)>| all.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
    [finding("input", most(inputs)), finding("target", most(targets))].into_iter().flatten().collect()
}

/// Returns the largest finite magnitude of a batch, and its position in the numbers of an example.
fn largest_of(x: &Tensor) -> (f64, usize) {
    let numbers = values(x);
    let width = numbers.len() / x.shape().first().copied().unwrap_or(1).max(1);
    let sizes = numbers.iter().map(|x| x.abs()).enumerate().filter(|(_, x)| x.is_finite());
    let most = sizes.max_by(|a, b| a.1.total_cmp(&b.1));
    most.map_or((0.0, 0), |(at, size)| (size, at % width.max(1)))
}
