//! How large errors may be, in the units of `units.rs`, and what differs from torch on purpose.

use precast::{DType, Op};

/// The bounds of a family: of f32, f16 and bf16, each forward and backward.
type Bounds = [[f64; 2]; 3];

const FAMILIES: &[(&str, Bounds)] = &[
    ("elementwise", [[4.0, 4.0], [0.6, 0.6], [0.6, 0.6]]),
    ("products", [[4.0, 4.0], [0.6, 0.6], [0.6, 0.6]]),
    ("places", [[0.5, 4.0], [0.5, 0.6], [0.5, 0.6]]),
    ("three factors", [[4.0, 4.0], [0.6, 0.6], [0.6, 0.6]]),
    ("convolutions", [[4.0, 4.0], [0.6, 0.6], [0.6, 0.6]]),
    ("pools", [[4.0, 4.0], [0.6, 0.6], [0.6, 0.6]]),
    ("sampling", [[4.0, 4.0], [0.6, 0.6], [0.6, 0.6]]),
    ("sums", [[4.0, 4.0], [0.6, 0.6], [0.6, 0.6]]),
    ("reductions", [[4.0, 4.0], [0.6, 0.6], [0.6, 0.6]]),
    ("norms", [[4.0, 4.0], [0.6, 0.6], [0.6, 0.6]]),
    ("losses", [[4.0, 4.0], [0.6, 0.6], [0.6, 0.6]]),
    ("recurrent", [[4.0, 4.0], [0.6, 0.6], [0.6, 0.6]]),
];

/// Ops with bounds of their own, and why.
const OPS: &[(Op, Bounds, &str)] = &[];

/// Ops whose numbers may be NaN, infinite, or a zero of another sign, where f64's are not; in which direction, and why.
pub const OTHER_KINDS: &[(Op, usize, &str)] = &[];

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
