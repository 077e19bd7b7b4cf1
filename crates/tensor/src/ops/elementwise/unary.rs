//! Functions of one tensor, applied to each element.

use precast_kernels::{
    elementwise::{
        Function, Saved, Slope, Times, Unary, Value, Zero, map, math,
        math::{density, normal, sigmoid},
    },
    float::Real,
};

use crate::{
    Op, Tensor,
    catalogue::Attributes,
    error::{Error, Result},
    ops::{Call, call, dispatch, elements, elementwise::Path, float_kernel, saved},
    tensor::Forward,
};

/// Runs a differentiable elementwise op, with one rounding forward and one backward.
pub(in crate::ops) fn unary<F: Unary>(call: Call<'_>, f: F) -> Result<Tensor> {
    let slope: Box<dyn Function> = match F::SAVED {
        Saved::Nothing if F::FLAT => Box::new(Zero),
        Saved::Nothing => Box::new(Times(f.slope(0.0))),
        _ => Box::new(Slope(f)),
    };
    map_one(call, &Value(f), F::SAVED, slope)
}

/// Runs [`unary`] with compiled functions. `slope` takes the gradient and the saved tensor.
fn map_one(call: Call<'_>, value: &dyn Function, kept: Saved, slope: Box<dyn Function>) -> Result<Tensor> {
    dispatch(call, |inputs| {
        let x = &inputs[0];
        let value = float_kernel!(x, x.shape(), |s: T| map(value, &[s]))?;
        let saved = saved(kept, x, &value);
        Ok(Forward::new(value, saved, move |back| {
            let grad = float_kernel!(back.grad, back.grad.shape(), |grad: T| match back.saved {
                [kept] => map(&*slope, &[grad, &elements::<T>(kept)]),
                _ => map(&*slope, &[grad]),
            })?;
            Ok(vec![Some(Tensor::from_array(grad))])
        }))
    })
}

/// Each row is `method Op (parameters) Path |x| value, Saved |saved| slope`, with the name of the struct after that of
/// the op where an op has several functions. `Path` is how 16-bit numbers reach the function: `Direct` through
/// registers ([`Unary::DIRECT`]), `Blocks` through blocks in the nearest cache. `flat` before the slope is
/// [`Unary::FLAT`].
macro_rules! unary_ops {
    ($($(#[$doc:meta])* $method:ident $op:ident $($struct:ident)? ($($parameter:ident),*) $path:ident |$x:ident| $value:expr,
        $kept:ident $($flat:ident)? |$k:ident| $slope:expr;)*) => { $(
        unary_ops!(@ [$(#[$doc])*] $method $op [$($struct)? $op] ($($parameter),*) $path |$x| $value,
            $kept $($flat)? |$k| $slope);
    )* };
    (@ $doc:tt $method:ident $op:ident [$struct:ident $($rest:ident)?] $parameters:tt $($function:tt)*) => {
        unary_ops!(@@ $doc $method $op $struct $parameters $($function)*);
    };
    (@@ [$(#[$doc:meta])*] $method:ident $op:ident $struct:ident ($($parameter:ident),*) $path:ident |$x:ident| $value:expr,
        $kept:ident $($flat:ident)? |$k:ident| $slope:expr) => {
        #[derive(Clone, Copy)]
        struct $struct { $($parameter: f64),* }
        impl Unary for $struct {
            const SAVED: Saved = Saved::$kept;
            const DIRECT: bool = matches!(Path::$path, Path::Direct);
            $(const FLAT: bool = { let $flat = true; $flat };)?
            #[inline(always)]
            fn value<R: Real>(self, $x: R) -> R {
                $(let $parameter = R::of(self.$parameter);)*
                $value
            }
            #[allow(unused_variables, reason = "not every slope reads every parameter")]
            #[inline(always)]
            fn slope<R: Real>(self, $k: R) -> R {
                $(let $parameter = R::of(self.$parameter);)*
                $slope
            }
        }
        impl Tensor {
            $(#[$doc])*
            ///
            /// # Errors
            /// [`ErrorKind::DType`](crate::ErrorKind::DType) for an integer or boolean tensor.
            pub fn $method(&self $(, $parameter: f64)*) -> Result<Tensor> {
                let attributes = || {
                    let mut attributes = Attributes::default();
                    $(attributes.set(stringify!($parameter), &$parameter);)*
                    // Identifies the function of an op with several.
                    if stringify!($struct) != stringify!($op) {
                        attributes.set("form", &stringify!($method).to_string());
                    }
                    attributes
                };
                let call = Call { op: Op::$op, inputs: &[self], attributes: &attributes, again: None };
                unary(call, $struct { $($parameter),* })
            }
        }
    };
}

// Comparisons below are written so that NaN takes the branch that keeps it, forward and backward. At infinity a
// function has its limit, and so does its slope.
unary_ops! {
    /// Computes `min(max(x, 0), 6)`. The slope at 0 and 6 is 0.
    relu6 Relu6 () Blocks |x| between(x, R::zero(), R::of(6.0)), Output flat |y| inside(y, R::zero(), R::of(6.0));
    /// Returns `x` where it is positive, `slope * x` elsewhere.
    leaky_relu LeakyRelu (slope) Direct |x| if x <= R::zero() { part(slope, x) } else { x },
        Input |x| if x <= R::zero() { slope } else { unit(x) };
    /// Returns `x` where it is positive, `alpha * (exp(x) - 1)` elsewhere.
    elu Elu (alpha) Blocks |x| if x <= R::zero() { alpha * math::expm1(x) } else { x },
        Input |x| if x <= R::zero() { alpha * math::exp(x) } else { unit(x) };
    /// Computes `scale * x` where `x` is positive, `scale * alpha * (exp(x) - 1)` elsewhere, with the constants that
    /// preserve mean 0 and variance 1 from layer to layer (Klambauer et al. 2017).
    selu Selu () Blocks |x| if x <= R::zero() { R::of(SELU_SCALE * SELU_ALPHA) * math::expm1(x) } else { R::of(SELU_SCALE) * x },
        Input |x| if x <= R::zero() { R::of(SELU_SCALE * SELU_ALPHA) * math::exp(x) } else { R::of(SELU_SCALE) * unit(x) };
    /// Returns `x` where it is positive, `alpha * (exp(x / alpha) - 1)` elsewhere: smooth for every alpha (Barron
    /// 2017).
    celu Celu (alpha) Blocks |x| if x <= R::zero() { alpha * math::expm1(x / alpha) } else { x },
        Input |x| if x <= R::zero() { math::exp(x / alpha) } else { unit(x) };
    /// Computes `x * Φ(x)` with the CDF Φ of the normal distribution, exact by the error function (Hendrycks, Gimpel
    /// 2016).
    gelu Gelu () Direct |x| raised(x) * normal(x), Input |x| normal(x) + bounded(x) * density(x);
    /// Computes [`gelu`](Tensor::gelu) with Φ approximated by `(1 + tanh(sqrt(2/π) (x + 0.044715 x³))) / 2`.
    gelu_tanh Gelu GeluTanh () Direct |x| raised(x) * normal_tanh(x).0,
        Input |x| { let (value, slope) = normal_tanh(x); value + bounded(x) * slope };
    /// Computes `x * sigmoid(x)`.
    silu Silu () Blocks |x| raised(x) * sigmoid(x), Input |x| { let s = sigmoid(x); s + bounded(x) * s * sigmoid(-x) };
    /// Computes `1 / (1 + exp(-x))`.
    sigmoid Sigmoid () Blocks |x| sigmoid(x), Output |y| y * (R::one() - y);
    /// Computes `tanh(x)`.
    tanh Tanh () Blocks |x| math::tanh(x), Output |y| R::one() - y * y;
    /// Computes `ln(1 + exp(x))`, without overflow.
    softplus Softplus () Blocks |x| softplus(x), Input |x| sigmoid(x);
    /// Computes `ln(sigmoid(x))`, without overflow.
    log_sigmoid LogSigmoid () Blocks |x| -softplus(-x), Input |x| sigmoid(-x);
    /// Computes `x * tanh(softplus(x))` (Misra 2019).
    mish Mish () Blocks |x| raised(x) * math::tanh(softplus(x)),
        Input |x| { let t = math::tanh(softplus(x)); t + bounded(x) * (R::one() - t * t) * sigmoid(x) };
    /// Computes `min(max(x + 3, 0), 6) / 6`. The slope at -3 and 3 is 0.
    hard_sigmoid HardSigmoid () Blocks |x| between(x + R::of(3.0), R::zero(), R::of(6.0)) / R::of(6.0),
        Input flat |x| inside(x, R::of(-3.0), R::of(3.0)) / R::of(6.0);
    /// Computes `x * min(max(x + 3, 0), 6) / 6`. The slope is 0 at -3 and 1 at 3.
    hard_swish HardSwish () Blocks
        |x| if x >= R::of(3.0) { x } else { raised(x) * between(x + R::of(3.0), R::zero(), R::of(6.0)) / R::of(6.0) },
        Input flat |x| if x <= R::of(-3.0) { R::zero() } else if x >= R::of(3.0) { R::one() }
            else { (R::of(2.0) * x + R::of(3.0)) / R::of(6.0) };
    /// Computes `min(max(x, -1), 1)`. The slope at -1 and 1 is 0.
    hard_tanh HardTanh () Blocks |x| between(x, -R::one(), R::one()), Output flat |y| inside(y, -R::one(), R::one());
    /// Computes `x / (1 + |x|)`.
    softsign Softsign () Blocks |x| { let x = bounded(x); x / (R::one() + x.abs()) }, Input |x| { let d = R::one() + x.abs(); (d * d).recip() };
    /// Computes `x - tanh(x)`.
    tanh_shrink TanhShrink () Blocks |x| tanh_shrink(x), Input |x| { let t = math::tanh(x); t * t };
    /// Moves `x` towards 0 by `lambda`, and returns 0 where `|x|` is at most `lambda`; the slope there is 0.
    softshrink Softshrink (lambda) Blocks |x| if x.abs() <= lambda { R::zero() } else { x - lambda * sign(x) },
        Input flat |x| if x.abs() <= lambda { R::zero() } else { unit(x) };
    /// Computes `exp(x)`.
    exp Exp () Blocks |x| math::exp(x), Output |y| y;
    /// Computes `exp(x) - 1`, accurate near 0.
    expm1 Expm1 () Blocks |x| math::expm1(x), Input |x| math::exp(x);
    /// Computes the natural logarithm: minus infinity at 0, NaN below.
    log Log () Blocks |x| x.ln(), Input |x| x.recip();
    /// Computes the logarithm to base 2.
    log2 Log2 () Blocks |x| x.log2(), Input |x| (x * R::of(std::f64::consts::LN_2)).recip();
    /// Computes the logarithm to base 10.
    log10 Log10 () Blocks |x| x.log10(), Input |x| R::of(std::f64::consts::LOG10_E) / x;
    /// Computes `ln(1 + x)`, accurate near 0.
    log1p Log1p () Blocks |x| x.ln_1p(), Input |x| (x + R::one()).recip();
    /// Computes the square root; NaN below 0. The slope at 0 is infinite.
    sqrt Sqrt () Blocks |x| x.sqrt(), Output |y| R::of(0.5) / y;
    /// Computes `1 / sqrt(x)`.
    rsqrt Rsqrt () Blocks |x| x.sqrt().recip(), Input |x| -(x.sqrt() * x * R::of(2.0)).recip();
    /// Computes `1 / x`.
    reciprocal Reciprocal () Blocks |x| x.recip(), Input |x| -(x * x).recip();
    /// Computes `x * x`.
    square Square () Blocks |x| x * x, Input |x| R::of(2.0) * x;
    /// Computes `|x|`. The slope at 0 is 0.
    abs Abs () Blocks |x| x.abs(), Input |x| sign(x);
    /// Computes `-x`.
    neg Neg () Direct |x| -x, Nothing |_x| -R::one();
    /// Returns the sign: -1, 0 or 1. The gradient is 0.
    sign Sign () Blocks |x| sign(x), Nothing flat |_x| R::zero();
    /// Rounds down to an integer. The gradient is 0.
    floor Floor () Blocks |x| x.floor(), Nothing flat |_x| R::zero();
    /// Rounds up to an integer. The gradient is 0.
    ceil Ceil () Blocks |x| x.ceil(), Nothing flat |_x| R::zero();
    /// Rounds towards 0 to an integer. The gradient is 0.
    trunc Trunc () Blocks |x| x.trunc(), Nothing flat |_x| R::zero();
    /// Rounds to the nearest integer, ties to even. The gradient is 0.
    round Round () Blocks |x| x.round_even(), Nothing flat |_x| R::zero();
    /// Computes the sine of x in radians.
    sin Sin () Blocks |x| x.sin(), Input |x| x.cos();
    /// Computes the cosine of x in radians.
    cos Cos () Blocks |x| x.cos(), Input |x| -x.sin();
    /// Computes the tangent of x in radians.
    tan Tan () Blocks |x| x.tan(), Input |x| { let c = x.cos(); (c * c).recip() };
    /// Computes the angle in radians whose sine is x; NaN outside [-1, 1].
    asin Asin () Blocks |x| x.asin(), Input |x| ((R::one() - x) * (R::one() + x)).sqrt().recip();
    /// Computes the angle in radians whose cosine is x; NaN outside [-1, 1].
    acos Acos () Blocks |x| x.acos(), Input |x| -((R::one() - x) * (R::one() + x)).sqrt().recip();
    /// Computes the angle in radians, between -π/2 and π/2, whose tangent is x.
    atan Atan () Blocks |x| x.atan(), Input |x| (R::one() + x * x).recip();
    /// Computes the hyperbolic sine.
    sinh Sinh () Blocks |x| x.sinh(), Input |x| x.cosh();
    /// Computes the hyperbolic cosine.
    cosh Cosh () Blocks |x| x.cosh(), Input |x| x.sinh();
    /// Computes the inverse hyperbolic sine.
    asinh Asinh () Blocks |x| math::asinh(x), Input |x| x.hypot(R::one()).recip();
    /// Computes the inverse hyperbolic cosine; NaN below 1.
    acosh Acosh () Blocks |x| math::acosh(x), Input |x| ((x - R::one()).sqrt() * (x + R::one()).sqrt()).recip();
    /// Computes the inverse hyperbolic tangent: infinite at -1 and 1, NaN outside.
    atanh Atanh () Blocks |x| math::atanh(x), Input |x| ((R::one() - x) * (R::one() + x)).recip();
    /// Computes the error function.
    erf Erf () Blocks |x| math::erf(x), Input |x| R::of(std::f64::consts::FRAC_2_SQRT_PI) * math::exp(-x * x);
    /// Computes `1 - erf(x)`, accurate where that is small.
    erfc Erfc () Blocks |x| x.erfc(), Input |x| -R::of(std::f64::consts::FRAC_2_SQRT_PI) * math::exp(-x * x);
    /// Computes the inverse error function: infinite at -1 and 1, NaN outside.
    erfinv Erfinv () Blocks |x| erfinv(x), Input |x| {
        let y = erfinv(x);
        R::of(std::f64::consts::FRAC_2_SQRT_PI).recip() * math::exp(y * y)
    };
    /// Raises `x` to a power. NaN for negative `x` unless the exponent is an integer.
    powf Pow (exponent) Blocks |x| x.powf(exponent), Input |x| power_slope(x, exponent);
}

pub(in crate::ops) const SELU_ALPHA: f64 = 1.673_263_242_354_377_2;
pub(in crate::ops) const SELU_SCALE: f64 = 1.050_700_987_355_480_5;

#[derive(Clone, Copy)]
struct Clamp {
    min: f64,
    max: f64,
}

impl Unary for Clamp {
    const SAVED: Saved = Saved::Input;
    const FLAT: bool = true;
    #[inline(always)]
    fn value<R: Real>(self, x: R) -> R {
        between(x, R::of(self.min), R::of(self.max))
    }
    #[inline(always)]
    fn slope<R: Real>(self, x: R) -> R {
        if x < R::of(self.min) || x > R::of(self.max) { R::zero() } else { unit(x) }
    }
}

impl Tensor {
    /// Computes `min(max(x, min), max)`. The bounds may be infinite. The slope at the bounds is 1.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when `min` is above `max` or one is NaN,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for an integer or boolean tensor.
    pub fn clamp(&self, min: f64, max: f64) -> Result<Tensor> {
        if min.is_nan() || max.is_nan() || min > max {
            let message = format!("the lower bound {min} is not below the upper bound {max}");
            return Err(Error::value(message).in_op(Op::Clamp.name()));
        }
        unary(call!(Op::Clamp, &[self]; min, max), Clamp { min, max })
    }
}

/// Returns 1, or NaN where x is.
#[inline(always)]
fn unit<R: Real>(x: R) -> R {
    if x.is_nan() { x } else { R::one() }
}

#[inline(always)]
pub(in crate::ops) fn sign<R: Real>(x: R) -> R {
    if x == R::zero() || x.is_nan() { x } else { x.signum() }
}

#[inline(always)]
fn between<R: Real>(x: R, low: R, high: R) -> R {
    if x < low {
        low
    } else if x > high {
        high
    } else {
        x
    }
}

/// Returns x, or the least finite number for minus infinity, so that its product with a factor that decays faster than
/// x grows is 0 rather than NaN.
#[inline(always)]
fn raised<R: Real>(x: R) -> R {
    if x < R::min_value() { R::min_value() } else { x }
}

/// Returns x, or the nearest finite number if x is infinite.
#[inline(always)]
pub(in crate::ops) fn bounded<R: Real>(x: R) -> R {
    between(x, R::min_value(), R::max_value())
}

/// Computes d(a^b)/da; 0 for b = 0, even where a is 0.
#[inline(always)]
pub(in crate::ops) fn power_slope<R: Real>(a: R, b: R) -> R {
    if b == R::zero() { R::zero() } else { part(a.powf(b - R::one()), b) }
}

/// Computes `part * x`, with 0 for `part = 0` even if x is infinite.
#[inline(always)]
pub(in crate::ops) fn part<R: Real>(part: R, x: R) -> R {
    part * if part == R::zero() { bounded(x) } else { x }
}

/// Returns 1 strictly between the bounds, else 0.
#[inline(always)]
fn inside<R: Real>(x: R, low: R, high: R) -> R {
    if x <= low || x >= high { R::zero() } else { unit(x) }
}

/// Computes `ln(1 + exp(x))` without overflow.
#[inline(always)]
pub(in crate::ops) fn softplus<R: Real>(x: R) -> R {
    if x.is_nan() { x } else { x.max(R::zero()) + math::exp(-x.abs()).ln_1p() }
}

/// Computes `x - tanh(x)` in f64. Near 0, where that cancels, it uses the series of tanh.
#[inline(always)]
fn tanh_shrink<R: Real>(x: R) -> R {
    const SERIES: [f64; 7] = [
        1.0 / 3.0,
        -2.0 / 15.0,
        17.0 / 315.0,
        -62.0 / 2835.0,
        1382.0 / 155_925.0,
        -21_844.0 / 6_081_075.0,
        929_569.0 / 638_512_875.0,
    ];
    let wide = x.as_f64();
    if wide.abs() < 0.1 {
        let square = wide * wide;
        return R::of(SERIES.iter().rev().fold(0.0, |sum, term| sum * square + term) * square * wide);
    }
    R::of(wide - wide.tanh())
}

/// Computes the inverse of the error function in f64 with Winitzki's approximation ("A handy approximation for the
/// error function and its inverse", 2008; accurate to 0.002) and three of Halley's steps. Each step triples the digits.
#[inline(always)]
fn erfinv<R: Real>(x: R) -> R {
    let wide = x.as_f64();
    let a = wide.abs();
    if a.is_nan() || a >= 1.0 {
        return if a == 1.0 { x / R::zero() } else { R::nan() };
    }
    let (log, scale) = ((-a * a).ln_1p(), 0.147);
    let half = 2.0 / (std::f64::consts::PI * scale) + log / 2.0;
    let mut y = ((half * half - log / scale).sqrt() - half).max(0.0).sqrt();
    for _ in 0..3 {
        // Near 1 by the complement, which loses no digits.
        let error = if a < 0.5 { math::erf(y) - a } else { (1.0 - a) - Real::erfc(y) };
        let newton = error / (std::f64::consts::FRAC_2_SQRT_PI * (-y * y).exp());
        y -= newton / (1.0 + y * newton);
    }
    R::of(y.copysign(wide))
}

/// Computes `(1 + tanh(u)) / 2` with `u = sqrt(2/π) (x + 0.044715 x³)`, and its slope, as sigmoid(2u), which does not
/// cancel.
#[inline(always)]
fn normal_tanh<R: Real>(x: R) -> (R, R) {
    let scale = R::of(2.0 * std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2);
    let cubic = R::of(0.044715);
    // Beyond these bounds the value is 0 or 1 and the slope 0; x² and x³ would overflow.
    let x = between(x, R::of(-100.0), R::of(100.0));
    let twice_u = scale * (x + cubic * x * x * x);
    let value = sigmoid(twice_u);
    (value, value * sigmoid(-twice_u) * scale * (R::one() + R::of(3.0) * cubic * x * x))
}
