//! Functions of one tensor, element by element.

use std::ops::Range;

use precast::{DType, Op, Result, Tensor};

use crate::gradients::row::{Case, ONCE, Row, check_all};

/// Makes a row for a function, the range in which it is checked, and the kinks to avoid there.
fn smooth(op: Op, f: fn(&Tensor) -> Result<Tensor>, range: Range<f64>, kinks: &'static [f64]) -> Row {
    keeps_output(op, f, range, kinks, 0.0)
}

/// Makes a row as [`smooth`] does, for a backward pass that reads the rounded result. It is off by `u` relatively, half
/// an epsilon, and the slope, `s(y)`, by `u |y s'(y)|`; `most` is the largest `|y s'(y) / s(y)|` in the range.
fn keeps_output(op: Op, f: fn(&Tensor) -> Result<Tensor>, range: Range<f64>, kinks: &'static [f64], most: f64) -> Row {
    Row::new(op, move |d| {
        let shape = d.shape(0..=4);
        Case::new([d.away(&shape, range.clone(), kinks)], move |x| f(&x[0])).low(ONCE + 0.5 * most)
    })
}

const STEPS: &[f64] = &[-2.0, -1.0, 0.0, 1.0, 2.0];

pub fn rows() -> Vec<Row> {
    let mut rows = vec![
        smooth(Op::Relu, |x| x.relu(), -3.0..3.0, &[0.0]),
        smooth(Op::Relu6, |x| x.relu6(), -3.0..9.0, &[0.0, 6.0]),
        smooth(Op::LeakyRelu, |x| x.leaky_relu(0.1), -3.0..3.0, &[0.0]),
        smooth(Op::Elu, |x| x.elu(0.7), -3.0..3.0, &[0.0]),
        smooth(Op::Selu, |x| x.selu(), -3.0..3.0, &[0.0]),
        smooth(Op::Celu, |x| x.celu(0.7), -3.0..3.0, &[0.0]),
        smooth(Op::Gelu, |x| x.gelu(), -4.0..4.0, &[]),
        smooth(Op::Gelu, |x| x.gelu_tanh(), -4.0..4.0, &[]).named("gelu_tanh"),
        smooth(Op::Silu, |x| x.silu(), -6.0..6.0, &[]),
        smooth(Op::Mish, |x| x.mish(), -6.0..6.0, &[]),
        smooth(Op::Softplus, |x| x.softplus(), -6.0..6.0, &[]),
        smooth(Op::LogSigmoid, |x| x.log_sigmoid(), -6.0..6.0, &[]),
        smooth(Op::Softsign, |x| x.softsign(), -3.0..3.0, &[]),
        smooth(Op::TanhShrink, |x| x.tanh_shrink(), -3.0..3.0, &[0.0]),
        smooth(Op::Softshrink, |x| x.softshrink(0.5), -2.0..2.0, &[-0.5, 0.5]),
        smooth(Op::HardSigmoid, |x| x.hard_sigmoid(), -5.0..5.0, &[-3.0, 3.0]),
        smooth(Op::HardSwish, |x| x.hard_swish(), -5.0..5.0, &[-3.0, 3.0]),
        smooth(Op::HardTanh, |x| x.hard_tanh(), -3.0..3.0, &[-1.0, 1.0]),
        // y (1 - y): |y (1 - 2y) / (y (1 - y))| is below 1 where y is below 2/3.
        keeps_output(Op::Sigmoid, |x| x.sigmoid(), -6.0..0.6, &[], 1.0),
        // 1 - y²: 2 y² / (1 - y²) is 1 where y² is 1/3.
        keeps_output(Op::Tanh, |x| x.tanh(), -0.65..0.65, &[], 1.0),
        smooth(Op::Neg, |x| x.neg(), -3.0..3.0, &[]),
        keeps_output(Op::Exp, |x| x.exp(), -3.0..3.0, &[], 1.0),
        smooth(Op::Expm1, |x| x.expm1(), -3.0..3.0, &[]),
        smooth(Op::Log, |x| x.log(), 0.1..5.0, &[]),
        smooth(Op::Log2, |x| x.log2(), 0.1..5.0, &[]),
        smooth(Op::Log10, |x| x.log10(), 0.1..5.0, &[]),
        smooth(Op::Log1p, |x| x.log1p(), -0.8..5.0, &[]),
        keeps_output(Op::Sqrt, |x| x.sqrt(), 0.1..5.0, &[], 1.0),
        smooth(Op::Rsqrt, |x| x.rsqrt(), 0.2..5.0, &[]),
        smooth(Op::Reciprocal, |x| x.reciprocal(), 0.2..5.0, &[]),
        smooth(Op::Square, |x| x.square(), -3.0..3.0, &[]),
        smooth(Op::Abs, |x| x.abs(), -3.0..3.0, &[0.0]),
        // Between their steps the slope is 0, and so is their gradient.
        smooth(Op::Sign, |x| x.sign(), -3.0..3.0, &[0.0]),
        smooth(Op::Floor, |x| x.floor(), -2.0..2.0, STEPS),
        smooth(Op::Ceil, |x| x.ceil(), -2.0..2.0, STEPS),
        smooth(Op::Trunc, |x| x.trunc(), -2.0..2.0, STEPS),
        smooth(Op::Round, |x| x.round(), -2.0..2.0, &[-1.5, -0.5, 0.5, 1.5]),
        smooth(Op::Sin, |x| x.sin(), -3.0..3.0, &[]),
        smooth(Op::Cos, |x| x.cos(), -3.0..3.0, &[]),
        smooth(Op::Tan, |x| x.tan(), -1.2..1.2, &[]),
        smooth(Op::Asin, |x| x.asin(), -0.9..0.9, &[]),
        smooth(Op::Acos, |x| x.acos(), -0.9..0.9, &[]),
        smooth(Op::Atan, |x| x.atan(), -3.0..3.0, &[]),
        smooth(Op::Sinh, |x| x.sinh(), -3.0..3.0, &[]),
        smooth(Op::Cosh, |x| x.cosh(), -3.0..3.0, &[]),
        smooth(Op::Asinh, |x| x.asinh(), -3.0..3.0, &[]),
        smooth(Op::Acosh, |x| x.acosh(), 1.2..4.0, &[]),
        smooth(Op::Atanh, |x| x.atanh(), -0.9..0.9, &[]),
        smooth(Op::Erf, |x| x.erf(), -2.0..2.0, &[]),
        smooth(Op::Erfc, |x| x.erfc(), -2.0..2.0, &[]),
        smooth(Op::Erfinv, |x| x.erfinv(), -0.9..0.9, &[]),
        smooth(Op::Clamp, |x| x.clamp(-1.0, 2.0), -3.0..4.0, &[-1.0, 2.0]),
        smooth(Op::Pow, |x| x.powf(2.5), 0.1..3.0, &[]).named("powf"),
        smooth(Op::Pow, |x| x.powf(3.0), -2.0..2.0, &[]).named("powf of a negative"),
    ];
    rows.push(Row::new(Op::Dropout, |d| {
        let (shape, seed) = (d.shape(0..=4), d.number(0..=99) as u64);
        Case::new([d.tensor(&shape, -2.0..2.0)], move |x| x[0].dropout(0.4, seed))
    }));
    rows.push(Row::new(Op::RotaryEmbedding, |d| {
        let shape = [d.shape(0..=2), vec![d.number(0..=4), 2 * d.number(0..=3)]].concat();
        let (base, offset, interleaved) = (if d.flag() { 100.0 } else { 1e4 }, d.number(0..=9), d.flag());
        Case::new([d.tensor(&shape, -2.0..2.0)], move |x| x[0].rotary_embedding(base, offset, interleaved))
    }));
    rows.push(Row::new(Op::Prelu, |d| {
        let shape = d.shape(0..=4);
        let channels = if d.flag() { 1 } else { shape.get(1).copied().unwrap_or(1) };
        let inputs = [d.away(&shape, -2.0..2.0, &[0.0]), d.tensor(&[channels], 0.1..0.5)];
        Case::new(inputs, |x| x[0].prelu(&x[1]))
    }));
    rows.push(Row::new(Op::MaskedFill, |d| {
        let shape = d.shape(0..=4);
        // The mask broadcasts to the shape: leading axes dropped, others of length 1.
        let from = d.number(0..=shape.len());
        let mask: Vec<usize> = shape[from..].iter().map(|&len| if d.flag() { 1 } else { len }).collect();
        Case::new([d.tensor(&shape, -2.0..2.0), d.mask(&mask)], |x| x[0].masked_fill(&x[1], 0.5))
    }));
    // A cast rounds to f32 on the way: a spacing of 2^-23 on either side of a step of 1e-5 is 0.012.
    rows.push(Row::new(Op::Cast, |d| {
        let shape = d.shape(0..=4);
        let wide = |x: &[Tensor]| Ok(x[0].cast(DType::F32).cast(DType::F64));
        Case::new([d.tensor(&shape, -2.0..2.0)], wide).slope(0.05)
    }));
    type Form = fn(&Tensor) -> Result<Tensor>;
    let forms: [(Op, Form); 3] =
        [(Op::IsFinite, Tensor::is_finite), (Op::IsInf, Tensor::is_inf), (Op::IsNan, Tensor::is_nan)];
    for (op, f) in forms {
        rows.push(Row::without_gradient(op, move |d| {
            let shape = d.shape(0..=4);
            Case::new([d.tensor(&shape, -2.0..2.0)], move |x| f(&x[0]))
        }));
    }
    rows.push(Row::without_gradient(Op::LogicalNot, |d| {
        let shape = d.shape(0..=4);
        Case::new([d.mask(&shape)], |x| x[0].logical_not())
    }));
    rows
}

#[test]
fn gradients() {
    check_all(rows());
}

/// A cast's gradient is cast back, and otherwise unchanged.
#[test]
fn the_gradient_of_a_cast_is_cast_back() {
    let floats = [DType::F64, DType::F32, DType::F16, DType::Bf16];
    for (from, to) in floats.into_iter().flat_map(|from| floats.map(|to| (from, to))) {
        let x = Tensor::from_f64(&[1.0, -2.5], &[2], from).unwrap().requires_grad();
        let seed = Tensor::from_f64(&[0.1, -3.3], &[2], to).unwrap();
        let grads = x.cast(to).backward_from(&seed).unwrap();
        let grad = grads.of(&x).unwrap();
        assert_eq!(grad.dtype(), from);
        assert_eq!(grad.to_f64(), seed.cast(from).to_f64(), "{from} to {to}");
    }
}
