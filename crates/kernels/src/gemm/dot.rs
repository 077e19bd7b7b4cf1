//! Dot products of rows with rows: both operands are read in place, along their rows.
//!
//! Each element is summed in as many parts as a vector has lanes: lane l sums terms l, l + lanes, ... in order, fused.
//! The upper half of the lanes is then added to the lower until one is left.

use super::{
    blocking::{UNROLL, with_constants},
    product::{Added, Product},
};
use crate::{
    arrays::array_of,
    float::VectorFloat,
    memory::{Pooled, with_scratch},
    simd,
    simd::{Kernel, Lanes, Simd, Width, load_first, prefetch},
    threads,
    threads::Shared,
};

/// Prefetch distance of a row of the right operand, in bytes. It streams from memory, and the hardware prefetcher is
/// too late for it: with this distance 16-bit rows are read 1.5 times as fast, and twice the distance is slower.
const AHEAD: usize = 2048;

/// Computes `a · bᵀ` for few rows of a, so that b is read once; `false` if there are no vectors.
pub(super) fn few_rows<T: VectorFloat>(product: &Product<T>, out: &mut [T]) -> bool {
    if simd::widest() == Width::One {
        return false;
    }
    let (m, k, n) = product.mkn;
    let (a, b) = product.operands(product.terms[0]);
    with_scratch(|[wide]| {
        let wide = wide.uninit(m * k);
        T::widen_into(a, wide);
        let (out, wide) = (Shared::new(out), &*wide);
        let a_rows: Vec<usize> = (0..m).map(|i| i * k).collect();
        threads::split(n, UNROLL, m * k * n, |columns| {
            let b_rows: Vec<usize> = columns.clone().map(|j| j * k).collect();
            let mut sums = Pooled::uninit(m * b_rows.len());
            let done = simd::run(Dots { a: wide, a_rows: &a_rows, b, b_rows: &b_rows, len: k, sums: &mut sums });
            assert!(done.is_ok(), "asked for before");
            for (i, sums) in sums.chunks_exact(columns.len()).enumerate() {
                for (j, &sum) in columns.clone().zip(sums) {
                    let sum = match product.added {
                        Added::Nothing => sum,
                        Added::ToColumns(x) => sum + x[j].widen(),
                        Added::ToRows(x) => sum + x[i].widen(),
                        Added::ToEach(x) => sum + x[i * n + j].widen(),
                    };
                    // SAFETY: column j belongs to this thread.
                    unsafe { out.at(i * n + j).write(T::narrow(sum)) };
                }
            }
        });
    });
    true
}

/// Dot products of every row of `a` with every row of `b`, each of `len` numbers. Rows may overlap.
pub struct Dots<'a, T> {
    pub a: &'a [f32],
    /// Start of each row.
    pub a_rows: &'a [usize],
    pub b: &'a [T],
    pub b_rows: &'a [usize],
    pub len: usize,
    /// Results with one row for each row of `a` and one column for each row of `b`.
    pub sums: &'a mut [f32],
}

impl<T: Lanes> Kernel for Dots<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Dots { a, a_rows, b, b_rows, len, sums } = self;
        assert!(a_rows.iter().all(|row| row + len <= a.len()) && b_rows.iter().all(|row| row + len <= b.len()));
        assert_eq!(sums.len(), a_rows.len() * b_rows.len(), "one place for each product");
        // With sixteen registers, sixteen sums would leave none for the operands.
        let columns = if S::REGISTERS == 16 { UNROLL / 2 } else { UNROLL };
        for (j, some) in b_rows.chunks(columns).enumerate() {
            for (i, few) in a_rows.chunks(UNROLL).enumerate() {
                let mut tile = [[0.0; UNROLL]; UNROLL];
                with_constants!((few.len(), some.len()), R, C => {
                    // SAFETY: R and C rows, which were asserted to be inside their slices.
                    unsafe { dots::<S, T, R, C>(simd, a, few, b, some, len, &mut tile) }
                });
                for (r, row) in tile[..few.len()].iter().enumerate() {
                    let at = (i * UNROLL + r) * b_rows.len() + j * columns;
                    sums[at..at + some.len()].copy_from_slice(&row[..some.len()]);
                }
            }
        }
    }
}

/// Computes the products of R rows of `a` with C rows of `b`.
///
/// # Safety
/// There are R rows of `a` and C rows of `b`, and each has `len` numbers inside its slice.
#[inline(always)]
unsafe fn dots<S: Simd, T: Lanes, const R: usize, const C: usize>(
    simd: S,
    a: &[f32],
    a_rows: &[usize],
    b: &[T],
    b_rows: &[usize],
    len: usize,
    tile: &mut [[f32; UNROLL]; UNROLL],
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let a: [*const f32; R] = array_of(|r| a.as_ptr().add(a_rows[r]));
        let b: [*const T; C] = array_of(|c| b.as_ptr().add(b_rows[c]));
        let mut sums = [[simd.splat(0.0); C]; R];
        let mut at = 0;
        while at + S::LANES <= len {
            for c in 0..C {
                prefetch(b[c].wrapping_add(at).wrapping_byte_add(AHEAD));
            }
            let right: [S::F32s; C] = array_of(|c| T::load(simd, b[c].add(at)));
            for r in 0..R {
                let left = simd.load_f32(a[r].add(at));
                for c in 0..C {
                    sums[r][c] = simd.mul_add(left, right[c], sums[r][c]);
                }
            }
            at += S::LANES;
        }
        if at < len {
            // Lanes after the last number add 0 times 0.
            let right: [S::F32s; C] = array_of(|c| load_first(simd, b[c].add(at), len - at));
            for r in 0..R {
                let left = load_first(simd, a[r].add(at), len - at);
                for c in 0..C {
                    sums[r][c] = simd.mul_add(left, right[c], sums[r][c]);
                }
            }
        }
        for r in 0..R {
            for c in 0..C {
                tile[r][c] = simd.sum(sums[r][c]);
            }
        }
    }
}
