//! Slopes of functions of one or two numbers, written with ops.
//!
//! They match those of `elementwise::unary` and `elementwise::arithmetic`, which document the value taken at each
//! corner.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, LN_2, LN_10};

use super::chain::{Chain, of};
use crate::{
    Op, Tensor,
    catalogue::Attributes,
    error::Result,
    ops::elementwise::unary::{SELU_ALPHA, SELU_SCALE},
};

/// Slopes of a function.
pub(super) enum Slope {
    Of1(fn(&Attributes, Chain) -> Result<Chain>),
    Of2(fn(Chain, Chain) -> [Chain; 2]),
}

/// Returns the slopes of an op, if it is a nonlinear function of one or two numbers.
pub(super) fn slope(op: Op) -> Option<Slope> {
    use Op::*;
    /// Defines a function of one number, without attributes or with the named ones.
    macro_rules! of1 {
        (|$x:ident $(, $name:ident)*| $slope:expr) => {
            Slope::Of1(|attributes, $x| {
                let _ = attributes;
                $(let $name: f64 = attributes.get(stringify!($name))?;)*
                Ok($slope)
            })
        };
    }
    Some(match op {
        // Steps.
        Sign | Floor | Ceil | Trunc | Round => of1!(|x| x.fixed() * 0.0),
        // Piecewise linear functions.
        Relu => of1!(|x| x.above(0.0)),
        Relu6 => of1!(|x| x.above(0.0) * x.below(6.0)),
        HardTanh => of1!(|x| x.above(-1.0) * x.below(1.0)),
        HardSigmoid => of1!(|x| x.above(-3.0) * x.below(3.0) / 6.0),
        HardSwish => of1!(|x| {
            let inside = x.above(-3.0) * x.below(3.0);
            inside * (2.0 * x.clone() + 3.0) / 6.0 + (1.0 - x.below(3.0))
        }),
        LeakyRelu => of1!(|x, slope| x.above(0.0) * (1.0 - slope) + slope),
        Softshrink => of1!(|x, lambda| x.abs().above(lambda)),
        Abs => of1!(|x| x.sign()),
        Clamp => of1!(|x, min, max| (1.0 - x.below(min)) * (1.0 - x.above(max))),
        // Exponentials for negative x.
        Elu => of1!(|x, alpha| (alpha * negative(&x).exp()).or(&below(&x), 1.0)),
        Celu => of1!(|x, alpha| (negative(&x) / alpha).exp().or(&below(&x), 1.0)),
        Selu => of1!(|x| (SELU_SCALE * SELU_ALPHA * negative(&x).exp()).or(&below(&x), SELU_SCALE)),
        // Sigmoids.
        Sigmoid => of1!(|x| x.clone().sigmoid() * (-x).sigmoid()),
        Tanh => of1!(|x| 1.0 - x.tanh().square()),
        TanhShrink => of1!(|x| x.tanh().square()),
        Softplus => of1!(|x| x.sigmoid()),
        LogSigmoid => of1!(|x| (-x).sigmoid()),
        Silu => of1!(|x| x.clone().sigmoid() * (1.0 + near(&x) * (-x).sigmoid())),
        Mish => of1!(|x| {
            let t = x.clone().softplus().tanh();
            t.clone() + near(&x) * (1.0 - t.square()) * x.sigmoid()
        }),
        Gelu => Slope::Of1(|attributes, x| Ok(if attributes.has("form") { gelu_tanh(x) } else { gelu(x) })),
        Softsign => of1!(|x| (1.0 + x.abs()).square().reciprocal()),
        // Exponentials and logarithms.
        Exp | Expm1 => of1!(|x| x.exp()),
        Log => of1!(|x| x.reciprocal()),
        Log2 => of1!(|x| (x * LN_2).reciprocal()),
        Log10 => of1!(|x| (x * LN_10).reciprocal()),
        Log1p => of1!(|x| (x + 1.0).reciprocal()),
        // Powers.
        Sqrt => of1!(|x| 0.5 / x.sqrt()),
        Rsqrt => of1!(|x| -0.5 / (x.clone().sqrt() * x)),
        Reciprocal => of1!(|x| -x.square().reciprocal()),
        Square => of1!(|x| 2.0 * x),
        // Angles.
        Sin => of1!(|x| x.cos()),
        Cos => of1!(|x| -x.sin()),
        Tan => of1!(|x| x.cos().square().reciprocal()),
        Asin => of1!(|x| ((1.0 - x.clone()) * (1.0 + x)).sqrt().reciprocal()),
        Acos => of1!(|x| -((1.0 - x.clone()) * (1.0 + x)).sqrt().reciprocal()),
        Atan => of1!(|x| (1.0 + x.square()).reciprocal()),
        Sinh => of1!(|x| x.cosh()),
        Cosh => of1!(|x| x.sinh()),
        Asinh => of1!(|x| (1.0 + x.square()).sqrt().reciprocal()),
        Acosh => of1!(|x| ((x.clone() - 1.0).sqrt() * (x + 1.0).sqrt()).reciprocal()),
        Atanh => of1!(|x| ((1.0 - x.clone()) * (1.0 + x)).reciprocal()),
        // Functions of the normal distribution.
        Erf => of1!(|x| FRAC_2_SQRT_PI * (-x.square()).exp()),
        Erfc => of1!(|x| -FRAC_2_SQRT_PI * (-x.square()).exp()),
        Erfinv => of1!(|x| x.erfinv().square().exp() / FRAC_2_SQRT_PI),
        // Functions of two numbers.
        Div => Slope::Of2(|a, b| [b.clone().reciprocal(), -(a / b.clone().square())]),
        Pow => Slope::Of2(|a, b| {
            let less = (b.clone() - 1.0).or(&(1.0 - b.is(0.0)), 0.0);
            let zero = a.is(0.0) * (1.0 - b.below(0.0));
            let positive = a.clone().or(&(1.0 - zero.clone()), 1.0);
            let of_exponent = (power(&positive, &b) * positive.log()).or(&(1.0 - zero), 0.0);
            [b * power(&a, &less), of_exponent]
        }),
        Maximum => Slope::Of2(|a, b| shares(a - b)),
        Minimum => Slope::Of2(|a, b| shares(b - a)),
        Fmod => Slope::Of2(|a, b| [1.0 + a.fixed() * 0.0, -(a / b).trunc()]),
        Remainder => Slope::Of2(|a, b| [1.0 + a.fixed() * 0.0, -(a / b).floor()]),
        Atan2 => Slope::Of2(|a, b| {
            let length = length(&a, &b);
            [b / length.clone() / length.clone(), -(a / length.clone() / length)]
        }),
        Hypot => Slope::Of2(|a, b| {
            let length = length(&a, &b);
            [a / length.clone(), b / length]
        }),
        _ => return None,
    })
}

/// Computes the gradients of a function of one or two numbers.
pub(super) fn gradients(
    slope: &Slope,
    attributes: &Attributes,
    inputs: &[Tensor],
    needs: &[bool],
    grad: &Tensor,
) -> Result<Vec<Option<Tensor>>> {
    let times = |slope: Chain, x: &Tensor| Ok(Some(sum_to(&(of(grad) * slope).done()?, x.shape())?));
    match (slope, inputs) {
        (Slope::Of1(slope), [x]) => Ok(vec![times(slope(attributes, of(x))?, x)?]),
        (Slope::Of2(slopes), [a, b]) => {
            let each = slopes(of(a), of(b)).into_iter().zip([a, b]).zip(needs);
            each.map(|((slope, x), &needed)| if needed { times(slope, x) } else { Ok(None) }).collect()
        }
        // Power with a fixed exponent.
        (Slope::Of2(_), inputs) => {
            let (x, exponent) = (&inputs[0], attributes.get::<f64>("exponent")?);
            let slope = match exponent {
                0.0 => of(x).fixed() * 0.0,
                _ => exponent * of(x).then(|x| x.powf(exponent - 1.0)),
            };
            Ok(vec![times(slope, x)?])
        }
        (Slope::Of1(_), inputs) => unreachable!("a function of one number has {} inputs", inputs.len()),
    }
}

/// Sums over the axes along which a tensor of this shape was stretched.
fn sum_to(x: &Tensor, shape: &[usize]) -> Result<Tensor> {
    if x.shape() == shape {
        return Ok(x.clone());
    }
    let more = x.rank() - shape.len();
    let stretched = |&axis: &usize| axis < more || shape[axis - more] != x.shape()[axis];
    let axes: Vec<isize> = (0..x.rank()).filter(stretched).map(|axis| axis as isize).collect();
    let sum = if axes.is_empty() { x.clone() } else { x.sum(&axes, true)? };
    sum.reshape(shape)
}

fn power(a: &Chain, b: &Chain) -> Chain {
    let b = b.clone();
    a.clone().then(|a| a.pow(&b.done()?))
}

fn below(x: &Chain) -> Chain {
    1.0 - x.above(0.0)
}

/// Clamps x to bounds beyond which the exponentials it is multiplied with are 0, so that their product is 0 at
/// infinity.
fn near(x: &Chain) -> Chain {
    x.clone().then(|x| x.clamp(-1e4, 1e4))
}

/// Returns x where it is negative, else 0, so that no exponential of it overflows.
fn negative(x: &Chain) -> Chain {
    x.clone().or(&below(x), 0.0)
}

/// Returns the slopes of the larger of two numbers with this difference; one half each in a tie.
fn shares(difference: Chain) -> [Chain; 2] {
    let sign = difference.fixed().sign();
    [0.5 + 0.5 * sign.clone(), 0.5 - 0.5 * sign]
}

/// Computes the length of the hypotenuse, or 1 if that is 0.
fn length(a: &Chain, b: &Chain) -> Chain {
    let length = a.clone().hypot(b.clone());
    let positive = length.above(0.0);
    length.or(&positive, 1.0)
}

/// Computes `Φ(x) + x φ(x)`.
fn gelu(x: Chain) -> Chain {
    let value = 0.5 * (-x.clone() * FRAC_1_SQRT_2).then(|x| x.erfc());
    let density = 0.5 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2 * (-0.5 * near(&x).square()).exp();
    value + near(&x) * density
}

/// Computes the same with `Φ` approximated by a sigmoid of a cubic.
fn gelu_tanh(x: Chain) -> Chain {
    let scale = 2.0 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
    // Beyond these bounds the value is 0 or 1 and the slope 0.
    let inner = x.clone().then(|x| x.clamp(-100.0, 100.0));
    let cubic = scale * (inner.clone() + 0.044715 * inner.clone() * inner.clone().square());
    let value = cubic.clone().sigmoid();
    let slope = value.clone() * (-cubic).sigmoid() * scale * (1.0 + 3.0 * 0.044715 * inner.square());
    value + near(&x) * slope
}
