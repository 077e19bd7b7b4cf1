//! Functions of one number, activations, choices and conversions.

use super::{
    super::{
        call::one,
        step::Call,
        value::{Item, Value, dtype_of},
    },
    Table,
    tools::{number, wrapping},
};
use crate::onnx::tensor::Elem;
use precast::{
    DType, Tensor,
    error::{Error, Result},
};

/// Rows of functions of one tensor.
macro_rules! unary {
    ($($op:literal $method:ident),* $(,)?) => {
        &[$(($op, |call| float(call, Tensor::$method))),*]
    };
}

pub(super) const PLAIN: Table = unary![
    "Acos" acos, "Acosh" acosh, "Asin" asin, "Asinh" asinh, "Atan" atan, "Atanh" atanh, "Ceil" ceil, "Cos" cos,
    "Cosh" cosh, "Erf" erf, "Exp" exp, "Floor" floor, "HardSwish" hard_swish, "Log" log, "Mish" mish,
    "Reciprocal" reciprocal, "Round" round, "Sigmoid" sigmoid, "Sin" sin, "Sinh" sinh, "Softplus" softplus,
    "Softsign" softsign, "Sqrt" sqrt, "Tan" tan, "Tanh" tanh,
];

pub(super) const OPS: Table = &[
    ("Abs", |call| of_any(call, Tensor::abs, |x| x.maximum(&number(x, 0.0).sub(x)?))),
    ("Cast", cast),
    ("CastLike", |call| converted(call, call.item(1)?.elem)),
    ("Celu", |call| {
        let alpha = call.float("alpha", 1.0)?;
        float(call, |x| x.celu(alpha))
    }),
    ("Clip", clip),
    ("Dropout", dropout),
    ("Elu", |call| {
        let alpha = call.float("alpha", 1.0)?;
        float(call, |x| x.elu(alpha))
    }),
    ("Gelu", |call| match call.text("approximate")?.unwrap_or("none") {
        "none" => float(call, Tensor::gelu),
        "tanh" => float(call, Tensor::gelu_tanh),
        other => Err(Error::value(format!("`approximate` is `{other}`; allowed: none, tanh"))),
    }),
    ("HardSigmoid", |call| {
        let (alpha, beta) = (call.float("alpha", 0.2)?, call.float("beta", 0.5)?);
        if (alpha - 1.0 / 6.0).abs() < 1e-7 && beta == 0.5 {
            return float(call, Tensor::hard_sigmoid);
        }
        float(call, |x| x.mul(&number(x, alpha))?.add(&number(x, beta))?.clamp(0.0, 1.0))
    }),
    ("Identity", |call| Ok(vec![call.inputs.first().cloned().ok_or_else(|| Error::value("input 0 is missing"))?])),
    ("IsInf", is_infinite),
    ("IsNaN", |call| {
        let x = call.x(0)?;
        one(x.ne(x)?, Elem::BOOL)
    }),
    ("LeakyRelu", |call| {
        let slope = call.float("alpha", 0.01)?;
        float(call, |x| x.leaky_relu(slope))
    }),
    ("Neg", |call| of_any(call, Tensor::neg, |x| number(x, 0.0).sub(x))),
    ("Not", |call| one(call.x(0)?.logical_not()?, Elem::BOOL)),
    ("PRelu", prelu),
    ("Relu", |call| of_any(call, Tensor::relu, |x| x.maximum(&number(x, 0.0)))),
    ("Selu", selu),
    ("Shrink", shrink),
    ("Sign", |call| of_any(call, Tensor::sign, |x| x.maximum(&number(x, -1.0))?.minimum(&number(x, 1.0)))),
    ("SwiGLU", |call| {
        let item = call.item(0)?;
        one(swish(&item.x, call.float("alpha", 1.0)?)?.mul(call.x(1)?)?, item.elem)
    }),
    ("Swish", |call| {
        let alpha = call.float("alpha", 1.0)?;
        float(call, |x| swish(x, alpha))
    }),
    ("ThresholdedRelu", |call| {
        let alpha = call.float("alpha", 1.0)?;
        float(call, |x| x.gt(&number(x, alpha))?.select(x, &number(x, 0.0)))
    }),
    ("Where", |call| {
        let elem = call.item(1)?.elem;
        one(call.x(0)?.select(call.x(1)?, call.x(2)?)?, elem)
    }),
];

/// Runs a function of floating numbers.
fn float(call: &Call<'_>, f: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    one(f(&item.x)?, item.elem)
}

/// Runs a function of floating numbers, or its counterpart for integers.
fn of_any(
    call: &Call<'_>,
    floats: impl FnOnce(&Tensor) -> Result<Tensor>,
    ints: impl FnOnce(&Tensor) -> Result<Tensor>,
) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let x = if item.is_int() { wrapping(ints(&item.x)?, item.elem)? } else { floats(&item.x)? };
    one(x, item.elem)
}

fn swish(x: &Tensor, alpha: f64) -> Result<Tensor> {
    if alpha == 1.0 { x.silu() } else { x.mul(&x.mul(&number(x, alpha))?.sigmoid()?) }
}

fn cast(call: &Call<'_>) -> Result<Vec<Value>> {
    let elem = match call.text("to") {
        // The first opset names the type.
        Ok(Some(name)) => *[Elem::F32, Elem::F64, Elem::F16, Elem::INT32, Elem::INT64, Elem::BOOL]
            .iter()
            .find(|elem| named(**elem).eq_ignore_ascii_case(name))
            .ok_or_else(|| call.refuse(&format!("the type `{name}` is unknown")))?,
        _ => {
            let to = call.maybe_int("to")?.ok_or_else(|| Error::value("its attribute `to` is missing"))?;
            Elem(i32::try_from(to).unwrap_or(-1))
        }
    };
    converted(call, elem)
}

fn named(elem: Elem) -> &'static str {
    match elem {
        Elem::F32 => "float",
        Elem::F64 => "double",
        other => other.name(),
    }
}

fn converted(call: &Call<'_>, elem: Elem) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    // A region may have rounded the tensor further: it stays so.
    if item.elem == elem {
        return Ok(vec![item.clone().into()]);
    }
    let dtype = dtype_of(elem)?;
    let x = item.x.cast(dtype);
    one(if elem.is_int() { wrapping(x, elem)? } else { x }, elem)
}

fn clip(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let x = &item.x;
    if call.opset() < 11 {
        let (min, max) = (call.float("min", f64::NEG_INFINITY)?, call.float("max", f64::INFINITY)?);
        return one(x.clamp(min, max)?, item.elem);
    }
    let bound = |index: usize, otherwise: f64| -> Result<Option<f64>> {
        match call.maybe(index)? {
            None => Ok(Some(otherwise)),
            Some(bound) if bound.known && bound.x.len() == 1 => Ok(Some(call.real(index)?)),
            Some(_) => Ok(None),
        }
    };
    if let (Some(min), Some(max)) = (bound(1, f64::NEG_INFINITY)?, bound(2, f64::INFINITY)?)
        && item.is_float()
        && min <= max
    {
        return one(x.clamp(min, max)?, item.elem);
    }
    let above = call.maybe_x(1)?.map_or_else(|| Ok(x.clone()), |min| x.maximum(min))?;
    one(call.maybe_x(2)?.map_or_else(|| Ok(above.clone()), |max| above.minimum(max))?, item.elem)
}

fn dropout(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let trains = call.opset() >= 12 && call.maybe(2)?.is_some() && call.real(2)? != 0.0;
    let ratio = if trains && call.maybe(1)?.is_some() { call.real(1)? } else { 0.5 };
    if trains && ratio != 0.0 {
        return Err(call.refuse("it drops numbers at random, in training mode; export the model for evaluation"));
    }
    let elem = if call.opset() >= 10 { Elem::BOOL } else { item.elem };
    let mask = Tensor::try_full(item.x.shape(), 1.0, if elem == Elem::BOOL { DType::Bool } else { item.x.dtype() })?;
    Ok(vec![item.clone().into(), Item::computed(mask, elem).into()])
}

fn is_infinite(call: &Call<'_>) -> Result<Vec<Value>> {
    let x = call.x(0)?;
    let (negative, positive) = (call.flag("detect_negative", true)?, call.flag("detect_positive", true)?);
    let infinity = |sign: f64| number(x, sign * f64::INFINITY);
    let is = match (negative, positive) {
        (true, true) => x.abs()?.eq(&infinity(1.0))?,
        (false, true) => x.eq(&infinity(1.0))?,
        (true, false) => x.eq(&infinity(-1.0))?,
        (false, false) => x.ne(x)?.logical_and(&x.eq(x)?)?,
    };
    one(is, Elem::BOOL)
}

fn prelu(call: &Call<'_>) -> Result<Vec<Value>> {
    let (item, slope) = (call.item(0)?, call.x(1)?);
    let x = &item.x;
    let channels = x.shape().get(1).copied().unwrap_or(1);
    let leading = if call.opset() < 7 { 0 } else { (1 + slope.rank()).saturating_sub(x.rank()) };
    let axis = match call.opset() < 7 || slope.rank() + 1 == x.rank() || slope.rank() == x.rank() {
        true if x.rank() >= 2 => leading,
        _ => usize::MAX,
    };
    let along_channels = slope.len() == channels && slope.shape().get(axis) == Some(&channels);
    if item.is_float() && (slope.len() == 1 || along_channels) {
        return one(x.prelu(&slope.reshape(&[slope.len()])?)?, item.elem);
    }
    one(x.lt(&number(x, 0.0))?.select(&x.mul(slope)?, x)?, item.elem)
}

fn selu(call: &Call<'_>) -> Result<Vec<Value>> {
    let (alpha, gamma) = (call.maybe_float("alpha")?, call.maybe_float("gamma")?);
    let (alpha, gamma) = (alpha.unwrap_or(1.673_263_242_354_377_2), gamma.unwrap_or(1.050_700_987_355_480_5));
    if (alpha - 1.673_263_242).abs() < 1e-6 && (gamma - 1.050_700_987).abs() < 1e-6 {
        return float(call, Tensor::selu);
    }
    float(call, |x| x.elu(alpha)?.mul(&number(x, gamma)))
}

fn shrink(call: &Call<'_>) -> Result<Vec<Value>> {
    let (bias, lambda) = (call.float("bias", 0.0)?, call.float("lambd", 0.5)?);
    let item = call.item(0)?;
    if bias == lambda && item.is_float() && lambda >= 0.0 {
        return float(call, |x| x.softshrink(lambda));
    }
    let x = &if item.is_int() { item.x.cast(DType::F64) } else { item.x.clone() };
    let zero = number(x, 0.0);
    let above = x.gt(&number(x, lambda))?.select(&x.sub(&number(x, bias))?, &zero)?;
    let y = x.lt(&number(x, -lambda))?.select(&x.add(&number(x, bias))?, &above)?;
    let y = if item.is_int() { wrapping(y.cast(DType::I64), item.elem)? } else { y };
    one(y, item.elem)
}
