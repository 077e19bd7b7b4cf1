//! How large errors may be, in the units of `units.rs`, and what differs from torch on purpose.

use precast::{DType, Op};

/// The bounds of a family: of f32, f16 and bf16, each forward and backward.
type Bounds = [[f64; 2]; 3];

const FAMILIES: &[(&str, Bounds)] = &[
    ("elementwise", [[4.0, 4.0], [0.51, 0.51], [0.51, 0.51]]),
    ("activations", [[4.0, 4.0], [0.51, 0.51], [0.51, 0.51]]),
    ("sums of two", [[4.0, 4.0], [0.51, 0.51], [0.51, 0.51]]),
    ("products", [[4.0, 4.0], [0.51, 0.51], [0.51, 0.51]]),
    ("places", [[0.5, 4.0], [0.5, 0.6], [0.5, 0.6]]),
    ("three factors", [[4.0, 4.0], [0.51, 0.51], [0.51, 0.51]]),
    ("convolutions", [[4.0, 4.0], [0.51, 0.51], [0.51, 0.51]]),
    ("pools", [[4.0, 4.0], [0.51, 0.51], [0.51, 0.51]]),
    ("sampling", [[4.0, 4.0], [0.51, 0.51], [0.51, 0.51]]),
    ("sums", [[4.0, 4.0], [0.51, 0.51], [0.51, 0.51]]),
    ("reductions", [[4.0, 4.0], [0.51, 0.51], [0.51, 0.51]]),
    ("norms", [[4.0, 4.0], [0.51, 0.51], [0.51, 0.51]]),
    ("losses", [[4.0, 4.0], [0.51, 0.51], [0.51, 0.51]]),
    ("recurrent", [[4.0, 4.0], [0.51, 0.51], [0.51, 0.51]]),
];

/// Ops with bounds of their own, and why.
const OPS: &[(Op, Bounds, &str)] = &[];

/// Ops whose numbers may be NaN, infinite, or a zero of another sign, where f64's are not; in which direction, and why.
pub const OTHER_KINDS: &[(Op, usize, &str)] = &[];

/// Ops whose gradient reads their 16-bit result, or another number that was rounded to 16 bit.
const KEPT: &[Op] = &[
    Op::Exp, Op::Expm1, Op::LogSoftmax, Op::Rsqrt, Op::Reciprocal, Op::Sigmoid, Op::Softmax, Op::Softmin, Op::Sqrt, Op::Tan, Op::Tanh,
];

/// Whether something on the way is rounded to the dtype of the result.
pub fn rounded_before(family: &str, op: Op, direction: usize) -> bool {
    // A recurrent layer rounds its state after each step.
    family == "recurrent" || (direction == 1 && KEPT.contains(&op))
}

/// Ops that choose among elements: where one is NaN, which of them gets the gradient is not compared. In torch it is the last NaN
/// of a window, all of two, and for a maximum along axes the gradient itself is NaN; here it is the first NaN, or half for each.
pub const GRADIENT_AT_NAN: &[Op] = &[
    Op::Max, Op::Min, Op::Maximum, Op::Minimum, Op::MaxPool1d, Op::MaxPool2d, Op::MaxPool3d, Op::AdaptiveMaxPool1d,
    Op::AdaptiveMaxPool2d, Op::AdaptiveMaxPool3d,
];

fn row(dtype: DType) -> usize {
    match dtype {
        DType::F32 => 0,
        DType::F16 => 1,
        _ => 2,
    }
}

/// The largest error that is allowed: forward for direction 0, backward for 1.
pub fn largest(family: &str, op: Op, dtype: DType, direction: usize) -> f64 {
    let own = OPS.iter().find(|(known, ..)| *known == op).map(|(_, bounds, _)| bounds);
    let all = || FAMILIES.iter().find(|(name, _)| *name == family).map(|(_, bounds)| bounds);
    own.or_else(all).expect("every family has bounds")[row(dtype)][direction]
}

/// Why numbers of another kind are allowed, if they are.
pub fn other_kinds(op: Op, direction: usize) -> Option<&'static str> {
    OTHER_KINDS.iter().find(|(known, which, _)| (*known, *which) == (op, direction)).map(|(.., why)| *why)
}
