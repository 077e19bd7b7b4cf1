//! Functions of one tensor, element by element.

use super::super::{
    call::{Call, Emit, one},
    message::{Attr, Val},
};
use precast::{
    DType, Op,
    error::{Error, Result},
};

/// Rows of ops that one node of the same name writes.
macro_rules! same {
    ($($op:ident),* $(,)?) => {
        pub(super) fn same(op: Op) -> Option<Emit> {
            Some(match op {
                $(Op::$op => |c| c.same(stringify!($op), &[]),)*
                _ => return None,
            })
        }
    };
}

same![
    Abs, Acos, Acosh, Asin, Asinh, Atan, Atanh, Ceil, Cos, Cosh, Erf, Exp, Floor, Log, Neg, Reciprocal, Relu, Round,
    Sigmoid, Sign, Sin, Sinh, Softplus, Softsign, Sqrt, Tan, Tanh, Selu,
];

pub(super) fn find(op: Op) -> Option<Emit> {
    Some(match op {
        Op::LogicalNot => |c| {
            let x = c.input(0)?;
            one(c.is("Not", &[&x]))
        },
        Op::Celu => celu,
        Op::Clamp => |c| {
            let (min, max) = (c.attr("min")?, c.attr("max")?);
            clip(c, min, max)
        },
        Op::Elu => |c| with(c, "Elu", "alpha"),
        Op::Erfc => {
            |_| Err(Error::unsupported("ONNX has no counterpart: 1 - Erf(x) loses the digits of small results"))
        }
        Op::Erfinv => |_| Err(Error::unsupported("ONNX has no inverse of Erf")),
        Op::Expm1 => expm1,
        Op::Gelu => gelu,
        Op::HardSigmoid => |c| c.same("HardSigmoid", &[("alpha", Attr::Float(1.0 / 6.0)), ("beta", Attr::Float(0.5))]),
        Op::HardSwish => hard_swish,
        Op::HardTanh => |c| clip(c, -1.0, 1.0),
        Op::IsFinite => is_finite,
        Op::IsInf => |c| tested(c, "IsInf"),
        Op::IsNan => |c| tested(c, "IsNaN"),
        Op::LeakyRelu => |c| {
            let slope = c.attr("slope")?;
            c.same("LeakyRelu", &[("alpha", Attr::Float(slope))])
        },
        Op::Log10 => |c| logarithm(c, std::f64::consts::LN_10),
        Op::Log2 => |c| logarithm(c, std::f64::consts::LN_2),
        Op::Log1p => log1p,
        Op::LogSigmoid => |c| {
            let x = c.input(0)?;
            let negative = c.node("Neg", &[&x], &[])?;
            let soft = c.node("Softplus", &[&negative], &[])?;
            one(c.node("Neg", &[&soft], &[]))
        },
        Op::Mish => mish,
        Op::Relu6 => |c| clip(c, 0.0, 6.0),
        Op::Rsqrt => |c| {
            let x = c.input(0)?;
            let root = c.node("Sqrt", &[&x], &[])?;
            one(c.node("Reciprocal", &[&root], &[]))
        },
        Op::Silu => silu,
        Op::Softshrink => |c| {
            let lambda: f64 = c.attr("lambda")?;
            c.same("Shrink", &[("bias", Attr::Float(lambda)), ("lambd", Attr::Float(lambda))])
        },
        Op::Square => |c| {
            let (x, two) = (c.input(0)?, c.number(2.0)?);
            one(c.node("Pow", &[&x, &two], &[]))
        },
        Op::TanhShrink => |c| {
            let x = c.input(0)?;
            let tanh = c.node("Tanh", &[&x], &[])?;
            one(c.node("Sub", &[&x, &tanh], &[]))
        },
        Op::Trunc => |c| {
            let x = c.input(0)?;
            let (up, down) = (c.node("Ceil", &[&x], &[])?, c.node("Floor", &[&x], &[])?);
            let zero = c.number(0.0)?;
            let negative = c.is("Less", &[&x, &zero])?;
            one(c.node("Where", &[&negative, &up, &down], &[]))
        },
        _ => return None,
    })
}

/// Writes a node with an attribute of the same name.
fn with(c: &mut Call<'_>, op: &'static str, name: &'static str) -> Result<Vec<Val>> {
    let value = c.attr(name)?;
    c.same(op, &[(name, Attr::Float(value))])
}

fn clip(c: &mut Call<'_>, min: f64, max: f64) -> Result<Vec<Val>> {
    let x = c.input(0)?;
    let low = if min == f64::NEG_INFINITY { Val::none() } else { c.number(min)? };
    let high = if max == f64::INFINITY { Val::none() } else { c.number(max)? };
    one(c.node("Clip", &[&x, &low, &high], &[]))
}

fn celu(c: &mut Call<'_>) -> Result<Vec<Val>> {
    if c.dtype == DType::F32 {
        return with(c, "Celu", "alpha");
    }
    let (x, alpha) = (c.input(0)?, c.attr("alpha")?);
    let alpha = c.number(alpha)?;
    let scaled = c.node("Div", &[&x, &alpha], &[])?;
    let elu = c.node("Elu", &[&scaled], &[])?;
    one(c.node("Mul", &[&elu, &alpha], &[]))
}

/// `exp(x) - 1` is `tanh(x / 2) * (exp(x) + 1)`, which keeps the digits of small results.
fn expm1(c: &mut Call<'_>) -> Result<Vec<Val>> {
    let (x, half, unit) = (c.input(0)?, c.number(0.5)?, c.number(1.0)?);
    let half = c.node("Mul", &[&x, &half], &[])?;
    let tanh = c.node("Tanh", &[&half], &[])?;
    let power = c.node("Exp", &[&x], &[])?;
    let more = c.node("Add", &[&power, &unit], &[])?;
    one(c.node("Mul", &[&tanh, &more], &[]))
}

/// Near 0, `log(1 + x)` is `2 * atanh(x / (2 + x))`, which keeps the digits of small results.
fn log1p(c: &mut Call<'_>) -> Result<Vec<Val>> {
    let (x, unit, two, half) = (c.input(0)?, c.number(1.0)?, c.number(2.0)?, c.number(0.5)?);
    let more = c.node("Add", &[&x, &two], &[])?;
    let part = c.node("Div", &[&x, &more], &[])?;
    let tangent = c.node("Atanh", &[&part], &[])?;
    let near = c.node("Mul", &[&tangent, &two], &[])?;
    let sum = c.node("Add", &[&x, &unit], &[])?;
    let far = c.node("Log", &[&sum], &[])?;
    let size = c.node("Abs", &[&x], &[])?;
    let is_near = c.is("Less", &[&size, &half])?;
    one(c.node("Where", &[&is_near, &near, &far], &[]))
}

fn logarithm(c: &mut Call<'_>, of_base: f64) -> Result<Vec<Val>> {
    let x = c.input(0)?;
    let log = c.node("Log", &[&x], &[])?;
    let base = c.number(of_base)?;
    one(c.node("Div", &[&log, &base], &[]))
}

fn gelu(c: &mut Call<'_>) -> Result<Vec<Val>> {
    let by_tanh = c.attributes().has("form") && c.attr_text("form")? == "gelu_tanh";
    if c.writer.has("Gelu") {
        let form = if by_tanh { vec![("approximate", Attr::Text("tanh"))] } else { vec![] };
        return c.same("Gelu", &form);
    }
    let (x, half, unit) = (c.input(0)?, c.number(0.5)?, c.number(1.0)?);
    let bent = if by_tanh {
        let (three, cubic) = (c.number(3.0)?, c.number(0.044_715)?);
        let factor = c.number((2.0 / std::f64::consts::PI).sqrt())?;
        let cube = c.node("Pow", &[&x, &three], &[])?;
        let part = c.node("Mul", &[&cube, &cubic], &[])?;
        let sum = c.node("Add", &[&x, &part], &[])?;
        let scaled = c.node("Mul", &[&sum, &factor], &[])?;
        c.node("Tanh", &[&scaled], &[])?
    } else {
        let root = c.number(std::f64::consts::FRAC_1_SQRT_2)?;
        let scaled = c.node("Mul", &[&x, &root], &[])?;
        c.node("Erf", &[&scaled], &[])?
    };
    let more = c.node("Add", &[&bent, &unit], &[])?;
    let part = c.node("Mul", &[&x, &half], &[])?;
    one(c.node("Mul", &[&part, &more], &[]))
}

fn hard_swish(c: &mut Call<'_>) -> Result<Vec<Val>> {
    if c.writer.has("HardSwish") {
        return c.same("HardSwish", &[]);
    }
    let x = c.input(0)?;
    let gate = c.node("HardSigmoid", &[&x], &[("alpha", Attr::Float(1.0 / 6.0)), ("beta", Attr::Float(0.5))])?;
    one(c.node("Mul", &[&x, &gate], &[]))
}

fn mish(c: &mut Call<'_>) -> Result<Vec<Val>> {
    if c.writer.has("Mish") {
        return c.same("Mish", &[]);
    }
    let x = c.input(0)?;
    let soft = c.node("Softplus", &[&x], &[])?;
    let tanh = c.node("Tanh", &[&soft], &[])?;
    one(c.node("Mul", &[&x, &tanh], &[]))
}

fn silu(c: &mut Call<'_>) -> Result<Vec<Val>> {
    if c.writer.has("Swish") {
        return c.same("Swish", &[]);
    }
    let x = c.input(0)?;
    let gate = c.node("Sigmoid", &[&x], &[])?;
    one(c.node("Mul", &[&x, &gate], &[]))
}

/// A number minus itself is 0, unless it is infinite or none.
fn is_finite(c: &mut Call<'_>) -> Result<Vec<Val>> {
    let (x, zero) = (c.input(0)?, c.number(0.0)?);
    let rest = c.node("Sub", &[&x, &x], &[])?;
    one(c.is("Equal", &[&rest, &zero]))
}

/// Tests a number for a form. Runtimes test no bfloat16, and infinities of float16 only since opset 20.
fn tested(c: &mut Call<'_>, op: &'static str) -> Result<Vec<Val>> {
    let x = c.input(0)?;
    let to = if x.dtype.is_low() || !x.dtype.is_float() { DType::F32 } else { x.dtype };
    let x = c.writer.cast(&x, to)?;
    one(c.is(op, &[&x]))
}
