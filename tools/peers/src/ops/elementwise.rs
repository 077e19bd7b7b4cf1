//! Functions of one, two and three numbers.

use precast::{DType, Op, Result, Tensor};

use super::{plain, stretching};
use crate::draw::{Case, Draw};

/// Draws functions measured by their results.
pub fn draw(op: Op, d: &mut Draw) -> Result<Option<Case>> {
    let shape = d.shape(0..=3);
    let case = match op {
        Op::Abs
        | Op::Acos
        | Op::Acosh
        | Op::Asin
        | Op::Asinh
        | Op::Atan
        | Op::Atanh
        | Op::Ceil
        | Op::Cos
        | Op::Cosh
        | Op::Erfinv
        | Op::Exp
        | Op::Floor
        | Op::HardSigmoid
        | Op::HardSwish
        | Op::HardTanh
        | Op::IsFinite
        | Op::IsInf
        | Op::IsNan
        | Op::Log
        | Op::Log10
        | Op::Log1p
        | Op::Log2
        | Op::Neg
        | Op::Reciprocal
        | Op::Relu
        | Op::Relu6
        | Op::Round
        | Op::Rsqrt
        | Op::Sign
        | Op::Sin
        | Op::Sinh
        | Op::Softsign
        | Op::Sqrt
        | Op::Square
        | Op::Tan
        | Op::Trunc => {
            let range = match op {
                Op::Acos | Op::Asin | Op::Atanh | Op::Erfinv => -1.0..1.0,
                Op::Log | Op::Log2 | Op::Log10 | Op::Sqrt | Op::Rsqrt | Op::Log1p => 0.0..6.0,
                Op::Acosh => 1.0..6.0,
                _ => -6.0..6.0,
            };
            return plain(op, vec![d.between(&shape, range)?]);
        }
        Op::LogicalNot => return plain(op, vec![d.booleans(&shape)?]),
        Op::LogicalAnd | Op::LogicalOr => {
            let other = stretching(d, &shape);
            return plain(op, vec![d.booleans(&shape)?, d.booleans(&other)?]);
        }
        Op::Add
        | Op::Sub
        | Op::Mul
        | Op::Div
        | Op::Maximum
        | Op::Minimum
        | Op::Atan2
        | Op::Hypot
        | Op::Fmod
        | Op::Remainder
        | Op::Equal
        | Op::NotEqual
        | Op::Less
        | Op::LessEqual
        | Op::Greater
        | Op::GreaterEqual => {
            let other = stretching(d, &shape);
            return plain(op, vec![d.float(&shape)?, d.float(&other)?]);
        }
        Op::Pow => {
            let other = stretching(d, &shape);
            return plain(op, vec![d.between(&shape, 0.0..4.0)?, d.float(&other)?]);
        }
        Op::Where => {
            let other = stretching(d, &shape);
            return plain(op, vec![d.booleans(&other)?, d.float(&shape)?, d.float(&other)?]);
        }
        Op::LeakyRelu => {
            let slope = d.number(0.0..0.5);
            Case::new(vec![d.float(&shape)?], move |x| x[0].leaky_relu(slope)).option("slope", slope)
        }
        Op::Softshrink => {
            let lambda = d.number(0.0..1.5);
            Case::new(vec![d.float(&shape)?], move |x| x[0].softshrink(lambda)).option("lambd", lambda)
        }
        Op::Clamp => {
            let (min, max) = (d.number(-2.0..0.0), d.number(0.5..2.0));
            Case::new(vec![d.float(&shape)?], move |x| x[0].clamp(min, max)).option("min", min).option("max", max)
        }
        Op::MaskedFill => {
            let (mask, value) = (stretching(d, &shape), d.number(-2.0..2.0));
            let inputs = vec![d.float(&shape)?, d.booleans(&mask)?];
            Case::new(inputs, move |x| x[0].masked_fill(&x[1], value)).option("value", value)
        }
        Op::Dropout => {
            // The mask is that of ones with the same seed: torch has its own random numbers.
            let (p, seed) = (d.number(0.0..0.9), d.size(0..=1000) as u64);
            let ones = Tensor::ones(&shape, DType::F32);
            let kept = ones.dropout(p, seed)?.gt(&Tensor::scalar(0.0, DType::F32))?;
            Case::new(vec![d.float(&shape)?, kept], move |x| x[0].dropout(p, seed)).option("p", p)
        }
        Op::Cast => {
            let to = d.one_of(&[DType::F32, DType::F16, DType::Bf16]);
            Case::new(vec![d.float(&shape)?], move |x| Ok(x[0].cast(to))).option("to", to.to_string())
        }
        _ => return Ok(None),
    };
    Ok(Some(case))
}

/// Draws activations, and other functions whose slopes are differences.
pub fn activations(op: Op, d: &mut Draw) -> Result<Option<Case>> {
    let shape = d.shape(0..=3);
    let case = match op {
        Op::Erf
        | Op::Erfc
        | Op::Expm1
        | Op::Gelu
        | Op::LogSigmoid
        | Op::Mish
        | Op::Sigmoid
        | Op::Silu
        | Op::Softplus
        | Op::Tanh
        | Op::TanhShrink
        | Op::Selu => return plain(op, vec![d.between(&shape, -6.0..6.0)?]),
        Op::Celu => {
            let alpha = d.number(0.25..2.0);
            Case::new(vec![d.float(&shape)?], move |x| x[0].celu(alpha)).option("alpha", alpha)
        }
        Op::Elu => {
            let alpha = d.number(0.25..2.0);
            Case::new(vec![d.float(&shape)?], move |x| x[0].elu(alpha)).option("alpha", alpha)
        }
        _ => return Ok(None),
    };
    Ok(Some(case))
}

/// Draws sums of two terms that may cancel.
pub fn sums(op: Op, d: &mut Draw) -> Result<Option<Case>> {
    let shape = d.shape(0..=3);
    let case = match op {
        Op::Lerp => {
            let (other, weight) = (stretching(d, &shape), d.number(0.0..1.0));
            let inputs = vec![d.float(&shape)?, d.float(&other)?];
            Case::new(inputs, move |x| x[0].lerp(&x[1], weight)).option("weight", weight)
        }
        Op::Cross => {
            let shape = [d.size(1..=9), 3, d.size(1..=20)];
            Case::new(vec![d.float(&shape)?, d.float(&shape)?], |x| x[0].cross(&x[1], 1))
        }
        Op::RotaryEmbedding => {
            let shape = [&shape[..], &[d.size(1..=9), 2 * d.size(1..=8)]].concat();
            let (base, offset, interleaved) = (d.number(10.0..10_000.0), d.size(0..=99), d.flag());
            let case = Case::new(vec![d.float(&shape)?], move |x| x[0].rotary_embedding(base, offset, interleaved));
            case.option("base", base).option("offset", offset).option("interleaved", interleaved)
        }
        Op::Addcmul | Op::Addcdiv => {
            let (a, b, value) = (stretching(d, &shape), stretching(d, &shape), d.number(-2.0..2.0));
            let inputs = vec![d.float(&shape)?, d.float(&a)?, d.float(&b)?];
            let call = move |x: &[Tensor]| match op {
                Op::Addcmul => x[0].addcmul(&x[1], &x[2], value),
                _ => x[0].addcdiv(&x[1], &x[2], value),
            };
            Case::new(inputs, call).option("value", value)
        }
        _ => return Ok(None),
    };
    Ok(Some(case))
}
