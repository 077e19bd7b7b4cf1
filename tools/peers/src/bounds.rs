//! Bounds on errors, in the units of `units.rs`, and exclusions from the comparison, with their reasons.

use precast::{DType, Op};

/// Bounds by family: for f32 forward and backward, then for f16 and bf16 forward and backward.
const FAMILIES: &[(&str, [f64; 2], [f64; 2])] = &[
    ("elementwise", [4.0, 4.0], [0.505, 0.505]),
    ("activations", [6.0, 6.0], [0.505, 0.505]),
    ("sums of two", [4.0, 6.0], [0.505, 0.505]),
    ("products", [8.0, 8.0], [0.505, 0.505]),
    ("three factors", [8.0, 8.0], [0.505, 0.505]),
    ("convolutions", [8.0, 8.0], [0.505, 0.505]),
    ("places", [2.0, 4.0], [0.505, 0.505]),
    ("pools", [4.0, 4.0], [0.505, 0.505]),
    ("sampling", [8.0, 16.0], [0.505, 0.505]),
    ("sums", [4.0, 4.0], [0.505, 0.505]),
    ("reductions", [6.0, 8.0], [0.505, 0.505]),
    ("norms", [8.0, 8.0], [0.505, 0.505]),
    ("losses", [6.0, 8.0], [0.505, 0.505]),
    ("recurrent", [8.0, 8.0], [1.0, 2.0]),
];

/// Bound for 16-bit gradients that read a number rounded to 16 bits: half a unit for it, and their own.
const KEPT_BOUND: f64 = 1.5;

/// Ops whose gradient reads their 16-bit result, or, in attention, multiplies weights and gradients of scores in 16
/// bits. torch's fused attention rounds them as well; its plain one, which is measured here, does not.
const KEPT: &[Op] = &[
    Op::Exp,
    Op::Expm1,
    Op::LogSoftmax,
    Op::Reciprocal,
    Op::Rsqrt,
    Op::ScaledDotProductAttention,
    Op::Sigmoid,
    Op::Softmax,
    Op::Softmin,
    Op::Sqrt,
    Op::Tan,
    Op::Tanh,
];

/// Ops with individual bounds: the dtype, the direction, the bound, and the reason.
const OPS: &[(Op, DType, usize, f64, &str)] = &[
    (
        Op::HardSwish,
        DType::Bf16,
        0,
        1.0,
        "six times the largest number overflows before it is divided by six; so in torch",
    ),
    (
        Op::ScaledDotProductAttention,
        DType::F16,
        1,
        4.0,
        "its products multiply weights in f16, which loses digits of those below 2^-14; torch's plain kernel keeps f32",
    ),
];

/// Ops that select elements: with NaN, the choice of the element that gets the gradient is not compared. In torch it is
/// the last NaN of a window, all of two, and for a maximum along axes the gradient itself is NaN; here it is the first
/// NaN, or half for each.
const CHOOSING: &[Op] = &[
    Op::Max,
    Op::Min,
    Op::Maximum,
    Op::Minimum,
    Op::MaxPool1d,
    Op::MaxPool2d,
    Op::MaxPool3d,
    Op::AdaptiveMaxPool1d,
    Op::AdaptiveMaxPool2d,
    Op::AdaptiveMaxPool3d,
];

/// Ops whose gradients are not compared among zeros, infinities, subnormal and the largest numbers, with the reason.
pub const PLAIN_GRADIENTS: &[(Op, &str)] = &[
    (Op::Addcdiv, "as of a division"),
    (Op::Atan2, "the slopes at infinity are 0, their limits; torch has NaN"),
    (Op::BceWithLogits, "as its results"),
    (Op::Div, "the slope overflows before it is multiplied by a small gradient"),
    (Op::Fmod, "as of a remainder"),
    (Op::Gelu, "the slopes at infinity are 0 and 1, its limits; torch has NaN"),
    (Op::Hypot, "the slope at infinity is 1, its limit; torch has NaN"),
    (Op::Log10, "the slope of a subnormal number overflows just before the exact one does"),
    (Op::Mish, "as of gelu"),
    (Op::Pow, "a power of a subnormal number overflows in f32 before it is multiplied; so in torch"),
    (Op::Remainder, "the whole quotient is infinite where the divisor is 0; torch has NaN"),
    (Op::Rsqrt, "the slope at -0 is minus infinity; torch cubes the result and has infinity"),
    (Op::Silu, "as of gelu"),
    (Op::Square, "twice the largest number overflows before it is multiplied"),
    (Op::Softsign, "the slope at infinity is 0, its limit; torch has NaN"),
];

/// Ops whose zeros may differ in sign from torch's, with the reason.
pub const SIGNS: &[(Op, &str)] = &[
    (Op::LogSigmoid, "what vanishes is negative, so -0; torch has 0"),
    (Op::Sign, "the sign of -0 is -0; torch has 0"),
    (Op::Softshrink, "what is shrunk to nothing is 0; torch has x times 0"),
    (Op::TanhShrink, "x - tanh(x) of a subnormal number is 0 in f64 and has the sign of x here"),
];

/// Ops whose results may be NaN, infinite or finite where the exact ones are not, with the reason.
pub const OTHER_KINDS: &[(Op, &str)] = &[
    (Op::BceWithLogits, "an infinite logit on the right side costs nothing; torch has NaN"),
    (Op::Gelu, "0 at minus infinity, its limit; torch has NaN"),
    (Op::HardSwish, "0 at minus infinity, its limit; torch has NaN"),
    (Op::HuberLoss, "as of l1_loss"),
    (Op::L1Loss, "equal infinities do not differ; torch has NaN"),
    (Op::Lerp, "an infinite end is met where the other is finite; torch has NaN"),
    (Op::Mish, "as of gelu"),
    (Op::MseLoss, "as of l1_loss"),
    (Op::Norm, "a length is finite where its squares are not; torch has infinity"),
    (Op::PoissonNllLoss, "far out the first term outgrows the second; torch has NaN"),
    (Op::Sign, "the sign of NaN is NaN; torch has 0"),
    (Op::Silu, "as of gelu"),
    (Op::SmoothL1Loss, "as of l1_loss"),
    (Op::SoftMarginLoss, "as of bce_with_logits"),
    (Op::Softsign, "-1 and 1 at infinity, its limits; torch has NaN"),
];

/// As [`OTHER_KINDS`], for gradients.
pub const OTHER_SLOPES: &[(Op, &str)] =
    &[(Op::Acosh, "the slope is NaN where the value is; torch has 0 at minus infinity")];

/// Returns the bound on errors: forward for direction 0, backward for 1.
pub fn largest(family: &str, op: Op, dtype: DType, direction: usize) -> f64 {
    if let Some((.., bound, _)) = OPS.iter().find(|own| (own.0, own.1, own.2) == (op, dtype, direction)) {
        return *bound;
    }
    let (_, full, low) = FAMILIES.iter().find(|known| known.0 == family).expect("every family has bounds");
    match dtype {
        DType::F32 => full[direction],
        _ if family != "recurrent" && rounded_before(family, op, direction) => KEPT_BOUND,
        _ => low[direction],
    }
}

/// Returns whether an intermediate result is rounded to the dtype of the result.
pub fn rounded_before(family: &str, op: Op, direction: usize) -> bool {
    // A recurrent layer rounds its state after each step.
    family == "recurrent" || (direction == 1 && KEPT.contains(&op))
}

/// Returns whether gradients of such inputs are compared.
pub fn compares_gradient(op: Op, any_special: bool, any_nan: bool) -> bool {
    let plain_only = PLAIN_GRADIENTS.iter().any(|(known, _)| *known == op);
    !(any_special && plain_only || any_nan && CHOOSING.contains(&op))
}

/// Returns whether zeros must have the sign of the exact ones.
pub fn compares_signs(op: Op) -> bool {
    SIGNS.iter().all(|(known, _)| *known != op)
}

/// Returns whether numbers of another kind than the exact ones are allowed.
pub fn allows_other_kinds(op: Op, direction: usize) -> bool {
    [OTHER_KINDS, OTHER_SLOPES][direction].iter().any(|(known, _)| *known == op)
}
