//! Ops that are composed of others: reductions, softmax, norms, attention, recurrent layers. The gradient of such an op
//! is that of its formula.

use super::{
    chain::{Chain, Formula, of},
    losses,
};
use crate::{
    DType, Op, Tensor,
    catalogue::Attributes,
    error::Result,
    ops::{index::shape::axis_at, recurrent::formula::of_steps, reduce::axes},
};

/// Returns the formula of an op, if there is one.
pub(in crate::ops) fn formula(op: Op) -> Option<Formula> {
    Some(match op {
        Op::Softmax => softmax,
        Op::LogSoftmax => |of, x| x[0].sub(&x[0].logsumexp(&[of.get("axis")?], true)?),
        Op::Max => |of, x| reduced(of, &x[0], |axes| chosen(&x[0], &x[0].detach().max(axes, true)?, axes)),
        Op::Min => |of, x| reduced(of, &x[0], |axes| chosen(&x[0], &x[0].detach().min(axes, true)?, axes)),
        Op::Prod => |of, x| reduced(of, &x[0], |axes| product(&x[0], axes)),
        Op::CumProd => running_product,
        Op::Var => |of, x| {
            reduced(of, &x[0], |axes| {
                let [variance, size] = variance(of, &x[0], axes)?;
                variance.mul(&size)?.mul(&size)
            })
        },
        Op::Std => |of, x| {
            reduced(of, &x[0], |axes| {
                let [variance, size] = variance(of, &x[0], axes)?;
                root(&variance)?.mul(&size)
            })
        },
        Op::Norm => |of, x| reduced(of, &x[0], |axes| norm(&x[0], of.get("p")?, axes)),
        Op::Prelu => prelu,
        Op::BatchNorm => batch_norm,
        Op::LayerNorm => layer_norm,
        Op::GroupNorm => |of, x| groups_norm(of, x, of.get("groups")?),
        Op::InstanceNorm => |of, x| groups_norm(of, x, x[0].shape()[1].max(1)),
        Op::RmsNorm => rms_norm,
        Op::ScaledDotProductAttention => attention,
        Op::CrossEntropy => losses::cross_entropy,
        Op::RnnCell => |of, x| of_steps(Op::RnnCell, of, x),
        Op::GruCell => |of, x| of_steps(Op::GruCell, of, x),
        Op::LstmCell => |of, x| of_steps(Op::LstmCell, of, x),
        Op::FusedRnn => |of, x| of_steps(Op::FusedRnn, of, x),
        op => return losses::of_pairs(op),
    })
}

pub(super) fn as_isize(lengths: &[usize]) -> Vec<isize> {
    lengths.iter().map(|&len| len as isize).collect()
}

fn softmax(attributes: &Attributes, inputs: &[Tensor]) -> Result<Tensor> {
    let (x, axis) = (&inputs[0], attributes.get::<isize>("axis")?);
    if x.is_empty() {
        return x.exp();
    }
    let powers = x.sub(&x.detach().max(&[axis], true)?)?.exp()?;
    powers.div(&powers.sum(&[axis], true)?)
}

/// Runs a reduction written by `f` with the axes kept. The attributes name the axes and whether they are kept.
fn reduced(attributes: &Attributes, x: &Tensor, f: impl FnOnce(&[isize]) -> Result<Tensor>) -> Result<Tensor> {
    let (named, keep_dims): (Vec<isize>, bool) = (attributes.get("axes")?, attributes.get("keep_dims")?);
    let axes = axes::axes(&named, x.rank())?;
    let y = f(&as_isize(&axes))?;
    y.reshape(&axes::reduced(x.shape(), &axes, keep_dims))
}

/// Computes the mean of the elements that equal `wanted`.
fn chosen(x: &Tensor, wanted: &Tensor, axes: &[isize]) -> Result<Tensor> {
    let mask = x.detach().eq(wanted)?.cast(x.dtype());
    x.mul(&mask.div(&mask.sum(axes, true)?)?)?.sum(axes, true)
}

/// Computes the product of each lane by repeated halving; valid also if elements are 0.
fn product(x: &Tensor, axes: &[isize]) -> Result<Tensor> {
    let chosen: Vec<usize> = axes.iter().map(|&axis| axis as usize).collect();
    let others: Vec<usize> = (0..x.rank()).filter(|axis| !chosen.contains(axis)).collect();
    let lengths = |axes: &[usize]| axes.iter().map(|&axis| x.shape()[axis]).product::<usize>();
    let (lanes, mut len) = (lengths(&others), lengths(&chosen));
    let mut x = x.permute(&[others, chosen].concat())?.reshape(&[lanes, len])?;
    while len != 1 {
        if len % 2 == 1 || len == 0 {
            x = x.pad(&[(0, 0), (0, 1)], 1.0)?;
            len += 1;
            continue;
        }
        len /= 2;
        x = x.slice(1, 0..len)?.mul(&x.slice(1, len..2 * len)?)?;
    }
    Ok(x)
}

/// Computes running products. After each step an element is the product of twice as many elements.
fn running_product(attributes: &Attributes, inputs: &[Tensor]) -> Result<Tensor> {
    let mut x = inputs[0].clone();
    let axis = axis_at(attributes.get("axis")?, x.rank())?;
    let len = x.shape()[axis];
    let mut by = 1;
    while by < len {
        let mut pairs = vec![(0, 0); x.rank()];
        pairs[axis] = (by, 0);
        x = x.mul(&x.slice(axis as isize, 0..len - by)?.pad(&pairs, 1.0)?)?;
        by *= 2;
    }
    Ok(x)
}

/// Computes the variance of x divided by a number, and that number, so that no square overflows.
fn variance(attributes: &Attributes, x: &Tensor, axes: &[isize]) -> Result<[Tensor; 2]> {
    let terms: usize = axes.iter().map(|&axis| x.shape()[axis as usize]).product();
    let freedom = terms.saturating_sub(attributes.get("correction")?);
    let size = size(x, axes, 0.0)?;
    let x = x.div(&size)?;
    // A scalar has one term and no axis to name.
    let centered = if axes.is_empty() { x.sub(&x)? } else { x.sub(&x.mean(axes, true)?)? };
    let squares = centered.square()?;
    let sum = if axes.is_empty() { squares } else { squares.sum(axes, true)? };
    Ok([(sum / freedom as f64)?, size])
}

/// Returns the largest |x|, at least `least`, and 1 if that is 0: a constant by which numbers are divided before
/// squaring.
fn size(x: &Tensor, axes: &[isize], least: f64) -> Result<Tensor> {
    let lengths = x.detach().abs()?;
    let largest = if axes.is_empty() || x.is_empty() { lengths } else { lengths.max(axes, true)? };
    let largest = of(&largest).then(|x| x.clamp(least, f64::INFINITY));
    let positive = largest.above(0.0);
    largest.or(&positive, 1.0).done()
}

/// Computes the square root, whose slope is taken as 0 at 0.
fn root(x: &Tensor) -> Result<Tensor> {
    let positive = of(x).above(0.0);
    of(x).or(&positive, 1.0).sqrt().or(&positive, 0.0).done()
}

fn norm(x: &Tensor, p: f64, axes: &[isize]) -> Result<Tensor> {
    let lengths = x.abs()?;
    if p == 1.0 {
        return if axes.is_empty() { Ok(lengths) } else { lengths.sum(axes, true) };
    }
    if x.is_empty() {
        return x.sum(axes, true);
    }
    if p.is_infinite() {
        return lengths.max(axes, true);
    }
    // Relative to the largest, so that no power overflows. An element that is 0 has slope 0.
    let largest = of(&lengths.detach()).then(|x| x.max(axes, true));
    let largest = largest.clone().or(&largest.above(0.0), 1.0);
    let (lengths, nonzero) = (of(&lengths), of(&lengths).above(0.0));
    let powers = lengths.or(&nonzero, 1.0) / largest.clone();
    let powers = powers.then(|x| if p == 2.0 { x.square() } else { x.powf(p) }).or(&nonzero, 0.0);
    let sum = powers.then(|x| x.sum(axes, true));
    let positive = sum.above(0.0);
    let sum = sum.or(&positive, 1.0);
    let sum = if p == 2.0 { sum.sqrt() } else { sum.then(|x| x.powf(1.0 / p)) };
    (largest * sum).or(&positive, 0.0).done()
}

fn prelu(_: &Attributes, inputs: &[Tensor]) -> Result<Tensor> {
    let (x, weight) = (&inputs[0], &inputs[1]);
    let mut shape = vec![1; x.rank().saturating_sub(1)];
    if let Some(first) = shape.first_mut() {
        *first = weight.len();
    }
    let weight = weight.reshape(&shape)?;
    let positive = of(x).above(0.0);
    of(x).or(&positive, of(&weight) * of(x)).done()
}

/// Returns the parameters of a norm, which follow its other inputs.
fn parameters<'a>(attributes: &Attributes, inputs: &'a [Tensor]) -> Result<[Option<&'a Tensor>; 2]> {
    let mut left = inputs.iter();
    let mut next = |name: &str| -> Result<Option<&'a Tensor>> {
        let given = attributes.has(name) && attributes.get::<bool>(name)?;
        Ok(if given { left.next() } else { None })
    };
    Ok([next("with_gamma")?, next("with_beta")?])
}

/// Computes `y * gamma + beta`, with parameters of this shape.
fn scaled(y: Tensor, [gamma, beta]: [Option<&Tensor>; 2], shape: &[usize]) -> Result<Tensor> {
    let shape = as_isize(shape);
    let y = gamma.map_or(Ok(y.clone()), |gamma| y.mul(&gamma.reshape(&shape)?))?;
    beta.map_or(Ok(y.clone()), |beta| y.add(&beta.reshape(&shape)?))
}

/// Computes `(x - mean) / sqrt(var + eps)` along axes, or `x / sqrt(mean square + eps)`, after dividing by the
/// [size](size) of x.
fn normalized(attributes: &Attributes, x: &Tensor, axes: &[isize], centered: bool) -> Result<Tensor> {
    let least = attributes.get::<f64>("eps")?.sqrt();
    let size = size(x, axes, least)?;
    let x = x.div(&size)?;
    let x = if centered { x.sub(&x.mean(axes, true)?)? } else { x };
    let eps = (size.reciprocal()? * least)?.square()?;
    x.mul(&x.square()?.mean(axes, true)?.add(&eps)?.rsqrt()?)
}

/// Returns the shape with which `[c]` broadcasts to `[n, c, ...]`.
fn of_channels(x: &Tensor) -> Vec<usize> {
    let mut shape = vec![1; x.rank()];
    shape[1] = x.shape()[1];
    shape
}

fn batch_norm(attributes: &Attributes, inputs: &[Tensor]) -> Result<Tensor> {
    let (x, shape) = (&inputs[0], of_channels(&inputs[0]));
    if attributes.has("training") {
        let axes: Vec<isize> = (0..x.rank() as isize).filter(|&axis| axis != 1).collect();
        return scaled(normalized(attributes, x, &axes, true)?, parameters(attributes, &inputs[1..])?, &shape);
    }
    let (mean, var) = (inputs[1].reshape(&shape)?, inputs[2].reshape(&shape)?);
    let y = x.sub(&mean)?.mul(&(var + attributes.get::<f64>("eps")?)?.rsqrt()?)?;
    scaled(y, parameters(attributes, &inputs[3..])?, &shape)
}

fn layer_norm(attributes: &Attributes, inputs: &[Tensor]) -> Result<Tensor> {
    let shape: Vec<usize> = attributes.get("normalized_shape")?;
    let axes: Vec<isize> = (1..=shape.len() as isize).map(|axis| -axis).collect();
    scaled(normalized(attributes, &inputs[0], &axes, true)?, parameters(attributes, &inputs[1..])?, &shape)
}

fn groups_norm(attributes: &Attributes, inputs: &[Tensor], groups: usize) -> Result<Tensor> {
    let x = &inputs[0];
    let (n, each) = (x.shape()[0], x.shape()[1..].iter().product::<usize>() / groups.max(1));
    let y = normalized(attributes, &x.reshape(&[n, groups, each])?, &[2], true)?;
    scaled(y.reshape(x.shape())?, parameters(attributes, &inputs[1..])?, &of_channels(x))
}

fn rms_norm(attributes: &Attributes, inputs: &[Tensor]) -> Result<Tensor> {
    let x = &inputs[0];
    scaled(normalized(attributes, x, &[-1], false)?, parameters(attributes, &inputs[1..])?, &x.shape()[x.rank() - 1..])
}

fn attention(attributes: &Attributes, inputs: &[Tensor]) -> Result<Tensor> {
    let [q, k, v] = [&inputs[0], &inputs[1], &inputs[2]];
    let (l, s) = (q.shape()[q.rank() - 2], k.shape()[k.rank() - 2]);
    let d = q.shape()[q.rank() - 1].max(1) as f64;
    let scale = attributes.get::<Option<f64>>("scale")?.unwrap_or(1.0 / d.sqrt());
    let mut scores = (q.matmul_ext(&k.transpose(-2, -1)?)? * scale)?;
    let nothing = Tensor::scalar(f64::NEG_INFINITY, scores.dtype());
    match inputs.get(3) {
        Some(mask) if mask.dtype() == DType::Bool => scores = mask.select(&scores, &nothing)?,
        Some(mask) => scores = scores.add(mask)?,
        None => {}
    }
    if attributes.get("causal")? {
        let seen = (0..l * s).map(|i| i % s <= i / s).collect();
        scores = Tensor::from_vec::<bool>(seen, &[l, s])?.select(&scores, &nothing)?;
    }
    if scores.is_empty() {
        return scores.matmul_ext(v);
    }
    // A query that attends to no key has no weights.
    let largest = scores.detach().max(&[-1], true)?;
    let largest = largest.is_finite()?.select(&largest, &Tensor::zeros(&[], scores.dtype()))?;
    let powers = of(&scores.sub(&largest)?.exp()?);
    let sum: Chain = powers.clone().then(|x| x.sum(&[-1], true));
    let positive = sum.above(0.0);
    (powers / sum.or(&positive, 1.0)).done()?.matmul_ext(v)
}
