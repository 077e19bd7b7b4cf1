//! Sums over a whole parameter, in fixed parts, so that no bit depends on the number of threads.

use std::ops::Range;

use crate::{
    float::Real,
    reduce::Squares,
    simd::{Body, vectorized},
    threads,
    threads::Shared,
};

/// Calls `f` with each of the parts of `0..len` and of some slices of that length, and adds up the squares that it
/// returns, in the order of the parts.
pub fn squares_by_parts<R: Real, const N: usize, const K: usize>(
    len: usize,
    slices: [&mut [R]; N],
    f: impl Fn(Range<usize>, [&mut [R]; N]) -> [Squares; K] + Sync,
) -> [Squares; K] {
    assert!(slices.iter().all(|slice| slice.len() == len), "slices of one length");
    let slices = slices.map(|slice| Shared::new(slice));
    let sums = threads::by_parts(&[len], [Squares::NONE; K], |_, range| {
        // SAFETY: parts do not overlap, and each goes to one thread.
        let parts = slices.map(|slice| unsafe { slice.part(range.start, range.len()) });
        f(range, parts)
    });
    let mut total = [Squares::NONE; K];
    for (_, sum) in sums {
        total.iter_mut().zip(sum).for_each(|(total, part)| *total += part);
    }
    total
}

/// Number of columns that are summed together.
const COLUMNS: usize = 256;

/// Computes, for each column of a matrix, the sum of the squares of its elements, one after another in f64.
pub fn square_sums_of_columns<R: Real>(matrix: &[R], columns: usize) -> Vec<f64> {
    let mut sums = vec![0.0; columns];
    threads::chunks(&mut sums, COLUMNS, matrix.len() * threads::PASSED, |part, sums| {
        for row in matrix.chunks_exact(columns) {
            vectorized(AddSquares { row: &row[part * COLUMNS..][..sums.len()], sums });
        }
    });
    sums
}

struct AddSquares<'a, R> {
    row: &'a [R],
    sums: &'a mut [f64],
}

impl<R: Real> Body for AddSquares<'_, R> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        for (sum, x) in self.sums.iter_mut().zip(self.row) {
            let x = x.as_f64();
            *sum += x * x;
        }
    }
}
