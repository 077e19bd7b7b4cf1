//! The sizes of blocks, after BLIS (F. Van Zee, R. van de Geijn, "BLIS: a framework for rapidly instantiating BLAS
//! functionality", 2015). `MR` and `NR`, the sizes of the micro-kernel's tile, belong to the vectors ([`Simd`]).

use crate::kernels::simd::Simd;

/// Terms of a sum that are packed and added up together.
pub(crate) const KC: usize = 256;

/// Columns of the right operand that are packed together: with [`KC`] terms, half a MiB of f32.
pub(super) const NC: usize = 512;

/// Rows for which partial sums are kept: with [`NC`] columns, 4 MiB.
pub(super) const BAND: usize = 2048;

/// Rows of the left operand that are packed together: with [`KC`] terms, 128 KiB of f32 at most.
pub(super) const fn mc<S: Simd>() -> usize {
    16 * S::MR
}

/// The largest [`mc`] of all vectors.
pub(super) const MAX_MC: usize = 16 * MAX_MR;

/// The largest `MR` of all vectors.
pub(crate) const MAX_MR: usize = 8;

/// The largest `NR` of all vectors.
pub(crate) const MAX_NR: usize = 32;

/// Rows of each operand that are multiplied together by the kernels that do not pack.
pub(super) const UNROLL: usize = 4;

/// The parts of a range, each of `size` but for the last.
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
