//! Block sizes, after BLIS (F. Van Zee, R. van de Geijn, "BLIS: a framework for rapidly instantiating BLAS
//! functionality", 2015). The tile sizes of the micro-kernel, `MR` and `NR`, belong to the vectors ([`Simd`]).

use crate::simd::Simd;

/// Number of terms of a sum that are packed and added up together.
pub const KC: usize = 256;

/// Number of columns of the right operand that are packed together: with [`KC`] terms, half a MiB of f32.
/// Tiles have four times as many terms.
pub(super) const NC: usize = 512;

/// Number of rows for which partial sums are kept: with [`NC`] columns, 4 MiB.
pub(super) const BAND: usize = 2048;

/// Returns the number of rows of the left operand that are packed together: with [`KC`] terms, 128 KiB of f32 at most.
pub(super) const fn mc<S: Simd>() -> usize {
    16 * S::MR
}

/// Largest [`mc`] of all vectors.
pub(super) const MAX_MC: usize = 16 * MAX_MR;

/// Largest `MR` of all vectors.
pub const MAX_MR: usize = 8;

/// Largest number of rows of a panel of the left operand: two tiles of AMX.
pub const MAX_ROWS: usize = 32;

/// Largest `NR` of all vectors.
pub const MAX_NR: usize = 32;

/// Number of rows of each operand that are multiplied together by the kernels that do not pack.
pub(super) const UNROLL: usize = 4;

/// Splits a range into parts of `size`, except for the last.
pub(super) fn parts(range: std::ops::Range<usize>, size: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let end = range.end;
    range.step_by(size).map(move |start| start..end.min(start + size))
}

/// Runs code with two numbers, each from 1 to [`UNROLL`], as constants of these names.
macro_rules! with_constants {
    ($sizes:expr, $first:ident, $second:ident => $body:block) => {
        with_constants!(@ $sizes, $first, $second, $body,
            (1, 1) (1, 2) (1, 3) (1, 4) (2, 1) (2, 2) (2, 3) (2, 4) (3, 1) (3, 2) (3, 3) (3, 4) (4, 1) (4, 2) (4, 3) (4, 4))
    };
    (@ $sizes:expr, $first:ident, $second:ident, $body:block, $(($a:literal, $b:literal))*) => {
        match $sizes {
            $( ($a, $b) => {
                const $first: usize = $a;
                const $second: usize = $b;
                $body
            } )*
            _ => unreachable!("no more than UNROLL"),
        }
    };
}
pub(super) use with_constants;
