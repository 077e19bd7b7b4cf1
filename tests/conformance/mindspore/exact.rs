//! Tolerance of an op's result relative to the exact one.
//!
//! The exact result is that of the same op in f64, on the inputs as seen by the kernel. A kernel computes in f32 and
//! rounds once, so its result may be off by half a unit in the last place of the dtype it returns, and by the error of
//! f32: for a sum of `n` terms `n / 2^24` of the sum of their magnitudes, for an approximated function 4 units.

use precast::{DType, Op, Result, Tensor, observe::Event, precision::Frame};

/// Returns whether an f32 result is the one nearest to the exact one.
fn rounds_once(op: Op) -> bool {
    matches!(op, Op::Add | Op::Sub | Op::Mul | Op::BiasAdd | Op::Abs | Op::Relu | Op::Prelu | Op::Neg | Op::Sqrt)
}

/// Returns the number of terms in a sum of the op, or the error of a function in units.
fn terms(op: Op, inputs: &[&Tensor]) -> usize {
    let [first, ref others @ ..] = *inputs else { return 0 };
    let weight = |axis: usize| others.first().map_or(1, |w| w.len() / w.shape()[axis].max(1));
    match op {
        op if rounds_once(op) => 1,
        Op::MatMul | Op::BatchMatMul | Op::MatMulExt => first.shape().last().copied().unwrap_or(1),
        Op::Conv2d | Op::Conv3d => weight(0),
        Op::ConvTranspose2d | Op::ConvTranspose3d => weight(1),
        Op::Sum | Op::Mean | Op::Softmax | Op::LayerNorm | Op::GroupNorm => first.len(),
        _ => 4,
    }
}

fn is_sum(op: Op) -> bool {
    let sums = "MatMul BatchMatMul MatMulExt Conv2d Conv3d ConvTranspose2d ConvTranspose3d Sum Mean Add Sub BiasAdd";
    sums.split(' ').any(|name| name == op.name())
}

/// Returns one unit in the last place at a number.
fn unit(dtype: DType, x: f64) -> f64 {
    let smallest_normal = if dtype == DType::F16 { -14 } else { -126 };
    let exponent = if x == 0.0 { smallest_normal } else { (x.abs().log2().floor() as i32).max(smallest_normal) };
    dtype.epsilon() * 2f64.powi(exponent)
}

fn largest(y: &Tensor) -> f64 {
    y.to_f64().iter().fold(0.0, |m: f64, y| m.max(y.abs()))
}

/// Describes where a result exceeds its tolerance.
pub fn too_far<const N: usize>(
    event: &Event,
    inputs: [&Tensor; N],
    op: impl Fn([&Tensor; N]) -> Result<Tensor>,
    y: &Tensor,
) -> Result<Option<String>> {
    if !event.output.is_float() {
        return Ok(None);
    }
    let _off = precast::precision::enter(Frame::Off);
    let mut seen = event.inputs.iter();
    let wide = inputs.map(|x| match seen.next() {
        Some(inside) if x.dtype().is_float() => x.cast(*inside).cast(DType::F64),
        _ => x.clone(),
    });
    let exact = op(wide.each_ref())?;
    let mut size = largest(&exact);
    if is_sum(event.op) {
        let magnitudes = wide.each_ref().map(|x| x.abs());
        let mut given = Vec::with_capacity(N);
        for x in magnitudes {
            given.push(x?);
        }
        size = size.max(largest(&op(std::array::from_fn(|i| &given[i]))?));
    }
    let f32_error = terms(event.op, &inputs) as f64 * 2f64.powi(-24) * size;
    for (at, (y, exact)) in y.to_f64().iter().zip(exact.to_f64()).enumerate() {
        let allowed = unit(event.output, exact) / 2.0 + f32_error;
        let off = (y - exact).abs();
        if off.is_nan() || off > allowed {
            let op = event.op;
            return Ok(Some(format!(
                "{op} in {}: element {at} is {y}, exactly {exact}; {allowed:.1e} is allowed",
                event.output
            )));
        }
    }
    Ok(None)
}
