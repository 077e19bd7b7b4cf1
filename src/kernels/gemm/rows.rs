//! Products of few rows with a right operand that is read once, row by row as it lies in memory. Each element is the sum that
//! [`blocks`](super::blocks) takes, in the same order.

use std::ops::Range;

use super::{
    DEPTH, Layout, One, TOGETHER,
    blocks::{load_some, settle},
    few,
    scratch::{Scratch, with_scratch},
};
use crate::kernels::{
    simd::{self, Kernel, Lanes, Vector, Width, prefetch},
    threads::{self, Shared},
};

/// Sums that are taken side by side, for all rows: with those of the blocks before they stay in the nearest cache.
const SUMS: usize = 4096;

/// Columns below which there is no vector to fill.
pub(super) const LEAST: usize = 16;

/// `a · b` or `aᵀ · b` for few rows of the result; `false` where there are no vectors.
pub(super) fn few_rows<T: Lanes>(one: &One<T>, out: &mut [T]) -> bool {
    let width = simd::widest();
    if width == Width::One {
        return false;
    }
    let (m, k, n) = one.mkn;
    with_left(one, |left| {
        let out = Shared::new(out);
        threads::split(n, LEAST, m * k * n, |columns| region(width, one, left, columns, out));
    });
    true
}

/// Gives `f` the left operand widened, row by row.
fn with_left<T: Lanes>(one: &One<T>, f: impl FnOnce(&[f32])) {
    let (m, k, _) = one.mkn;
    let (a, _) = one.operands(one.terms[0]);
    with_scratch(|[left]| {
        let left = left.room(m * k);
        if one.layout == Layout::TN {
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

fn region<T: Lanes>(width: Width, one: &One<T>, left: &[f32], columns: Range<usize>, out: Shared<'_, T>) {
    with_scratch(|[block, sums]| {
        let done = simd::run_with(width, Columns { one, left, columns, out, block, sums });
        assert!(done.is_ok(), "a width that the machine has");
    });
}

/// A whole product with vectors of one width, on one thread.
#[cfg(test)]
pub(super) fn with_width<T: Lanes>(width: Width, one: &One<T>, out: &mut [T]) {
    with_left(one, |left| region(width, one, left, 0..one.mkn.2, Shared::new(out)));
}

/// Some columns of a product.
struct Columns<'a, T> {
    one: &'a One<'a, T>,
    /// m x k.
    left: &'a [f32],
    columns: Range<usize>,
    /// Of the whole product.
    out: Shared<'a, T>,
    block: &'a mut Scratch,
    sums: &'a mut Scratch,
}

impl<T: Lanes> Kernel for Columns<'_, T> {
    type Output = ();

    // SAFETY: everything read lies inside the operands, as `products` checked; sums are whole vectors in rows with room for
    // them; what is written to `out` are elements of these columns.
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Columns { one, left, columns, out, block, sums } = self;
        let (m, k, n) = one.mkn;
        let (_, right) = one.operands(one.terms[0]);
        let most = SUMS / m.next_power_of_two();
        let block = block.room(m * most);
        let sums = sums.room(m * most);
        for j0 in columns.clone().step_by(most) {
            let len = most.min(columns.end - j0);
            for p0 in (0..k).step_by(DEPTH) {
                let terms = p0..(p0 + DEPTH).min(k);
                // The last block's sums are added where they are.
                let (first, last) = (p0 == 0, terms.end == k);
                block.fill(0.0);
                for i in (0..m).step_by(TOGETHER) {
                    let rows = i..(i + TOGETHER).min(m);
                    for p in terms.clone().step_by(TOGETHER) {
                        let some = p..(p + TOGETHER).min(terms.end);
                        let at = Place { rows: rows.clone(), terms: some, len, most };
                        let right = right.as_ptr().wrapping_add(j0);
                        few!((at.rows.len(), at.terms.len()), R, P => {
                            // SAFETY: as above.
                            unsafe { add::<V, T, R, P>(left, k, right, n, block, &at) }
                        });
                    }
                }
                for i in 0..m {
                    for at in (0..len).step_by(V::LANES) {
                        let place = i * most + at;
                        // SAFETY: as above.
                        unsafe {
                            let (sum, waiting) = (V::load_f32(block.as_ptr().add(place)), sums.as_mut_ptr().add(place));
                            let some = V::LANES.min(len - at);
                            settle(sum, (first, last), waiting, one.added, (i, j0 + at, n), some, out);
                        }
                    }
                }
            }
        }
    }
}

/// Some rows of the result, and some terms of their sums.
struct Place {
    rows: Range<usize>,
    terms: Range<usize>,
    /// Columns.
    len: usize,
    /// Sums in a row of the block.
    most: usize,
}

/// Adds P terms to the sums of R rows.
///
// SAFETY: the caller has the instructions of `V`; `right` is valid for `len` elements in each of the rows of these terms,
// which are `n` apart; `block` has rows of whole vectors.
#[inline(always)]
unsafe fn add<V: Vector, T: Lanes, const R: usize, const P: usize>(
    left: &[f32],
    k: usize,
    right: *const T,
    n: usize,
    block: &mut [f32],
    place: &Place,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut factors = [[V::splat(0.0); P]; R];
        for (r, factors) in factors.iter_mut().enumerate() {
            for (p, factor) in factors.iter_mut().enumerate() {
                *factor = V::splat(left[(place.rows.start + r) * k + place.terms.start + p]);
            }
        }
        let right: [*const T; P] = std::array::from_fn(|p| right.wrapping_add((place.terms.start + p) * n));
        let block = block.as_mut_ptr().add(place.rows.start * place.most);
        let mut at = 0;
        while at < place.len {
            let some = V::LANES.min(place.len - at);
            // The next rows, since the processor asks only for what follows in a row.
            for right in right {
                prefetch(right.wrapping_add(P * n + at));
            }
            let numbers: [V; P] = std::array::from_fn(|p| load_some(right[p].add(at), some));
            for (r, factors) in factors.iter().enumerate() {
                let to = block.add(r * place.most + at);
                let mut sum = V::load_f32(to);
                for (factor, number) in factors.iter().zip(&numbers) {
                    sum = V::mul_add(*factor, *number, sum);
                }
                V::store_f32(sum, to);
            }
            at += V::LANES;
        }
    }
}
