//! Products of few rows with a right operand that is read once, row by row, and not packed. Each element is summed in
//! the same order as in [`loops`](super::loops), without AMX.

use std::ops::Range;

use super::{
    blocking::{KC, UNROLL, parts, with_constants},
    epilogue::Epilogue,
    factors::Places,
    product::{Layout, Product},
};
use crate::{
    arrays::array_of,
    float::VectorFloat,
    memory::{Scratch, with_scratch},
    simd,
    simd::{Kernel, Lanes, Simd, Width, load_first, prefetch},
    threads,
    threads::Shared,
};

/// Number of sums computed together, over all rows: they and the partial sums stay in the nearest cache.
const SUMS: usize = 4096;

/// Least number of columns; fewer do not fill a vector.
pub(super) const LEAST: usize = 16;

/// Computes `a · b` or `aᵀ · b` for few rows of the result; `false` if there are no vectors.
pub(super) fn few_rows<T: VectorFloat>(product: &Product<T>, out: &mut [T]) -> bool {
    let width = simd::widest();
    if width == Width::One {
        return false;
    }
    let (m, k, n) = product.mkn;
    with_left(product, |left| {
        let out = Shared::new(out);
        threads::split(n, LEAST, m * k * n, |columns| region(width, product, left, columns, out));
    });
    true
}

/// Calls `f` with the left operand widened, row by row.
fn with_left<T: VectorFloat>(product: &Product<T>, f: impl FnOnce(&[f32])) {
    let (m, k, _) = product.mkn;
    let (a, _) = product.operands(product.terms[0]);
    with_scratch(|[left]| {
        let left = left.uninit(m * k);
        if product.layout == Layout::TN {
            for (p, column) in a.chunks_exact(m).enumerate() {
                for (i, x) in column.iter().enumerate() {
                    left[i * k + p] = x.widen();
                }
            }
        } else {
            T::widen_into(a, left);
        }
        f(left);
    });
}

fn region<T: VectorFloat>(width: Width, product: &Product<T>, left: &[f32], columns: Range<usize>, out: Shared<'_, T>) {
    with_scratch(|[sums, partial]| {
        let done = simd::run_with(width, Columns { product, left, columns, out, sums, partial });
        assert!(done.is_ok(), "a width that the machine has");
    });
}

/// Computes a whole product with vectors of one width, on one thread.
#[cfg(test)]
pub(super) fn with_width<T: VectorFloat>(width: Width, product: &Product<T>, out: &mut [T]) {
    with_left(product, |left| region(width, product, left, 0..product.mkn.2, Shared::new(out)));
}

/// Columns of a product that one thread computes.
struct Columns<'a, T> {
    product: &'a Product<'a, T>,
    /// Left operand, m x k.
    left: &'a [f32],
    columns: Range<usize>,
    /// The whole product.
    out: Shared<'a, T>,
    /// Sums of one block of terms.
    sums: &'a mut Scratch,
    /// Sums of the previous blocks.
    partial: &'a mut Scratch,
}

impl<T: VectorFloat> Kernel for Columns<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Columns { product, left, columns, out, sums, partial } = self;
        let (m, k, n) = product.mkn;
        let (_, right) = product.operands(product.terms[0]);
        assert!(left.len() == m * k && columns.end <= n);
        // Number of sums in a row, a multiple of all vectors.
        let stride = SUMS / m.next_power_of_two();
        let (sums, partial) = (sums.uninit(m * stride), partial.uninit(m * stride));
        for columns in parts(columns, stride) {
            for terms in parts(0..k, KC) {
                let epilogue = Epilogue {
                    first: terms.start == 0,
                    last: terms.end == k,
                    added: product.added,
                    out,
                    places: Places::rows_of(n),
                };
                sums.fill(0.0);
                for rows in parts(0..m, UNROLL) {
                    for terms in parts(terms.clone(), UNROLL) {
                        let right = right[terms.start * n + columns.start..].as_ptr();
                        let left = &left[rows.start * k + terms.start..];
                        let sums = &mut sums[rows.start * stride..];
                        with_constants!((rows.len(), terms.len()), R, P => {
                            // SAFETY: these columns of P terms are inside the right operand; sums are rows of whole
                            // vectors.
                            unsafe { add::<S, T, R, P>(simd, (left, k), (right, n), (sums, stride), columns.len()) }
                        });
                    }
                }
                for i in 0..m {
                    for at in (0..columns.len()).step_by(S::LANES) {
                        let place = i * stride + at;
                        // SAFETY: sums and partial sums are rows of whole vectors; the elements are of these columns.
                        unsafe {
                            let sum = simd.load_f32(sums.as_ptr().add(place));
                            let count = S::LANES.min(columns.len() - at);
                            let partial = partial.as_mut_ptr().add(place);
                            let j = columns.start + at;
                            epilogue.vector(simd, sum, partial, (i, j), (j, count), count);
                        }
                    }
                }
            }
        }
    }
}

/// Adds P terms to `len` sums of each of R rows. Rows of the operands and of the sums are a stride apart.
///
/// # Safety
/// `right` is valid for reads of `len` elements in P rows. R rows of sums have `len` numbers, rounded up to whole
/// vectors.
#[inline(always)]
unsafe fn add<S: Simd, T: Lanes, const R: usize, const P: usize>(
    simd: S,
    (left, k): (&[f32], usize),
    (right, n): (*const T, usize),
    (sums, stride): (&mut [f32], usize),
    len: usize,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let factors: [[S::F32s; P]; R] = array_of(|r| array_of(|p| simd.splat(left[r * k + p])));
        let right: [*const T; P] = array_of(|p| right.wrapping_add(p * n));
        let sums = sums.as_mut_ptr();
        let mut at = 0;
        while at < len {
            let count = S::LANES.min(len - at);
            // The hardware prefetches along a row only, so the next rows are prefetched here.
            for p in 0..P {
                prefetch(right[p].wrapping_add(P * n + at));
            }
            let numbers: [S::F32s; P] = array_of(|p| load_first(simd, right[p].add(at), count));
            for r in 0..R {
                let to = sums.add(r * stride + at);
                let mut sum = simd.load_f32(to);
                for p in 0..P {
                    sum = simd.mul_add(factors[r][p], numbers[p], sum);
                }
                simd.store_f32(sum, to);
            }
            at += S::LANES;
        }
    }
}
