//! Products whose operands are both read along their rows, as they lie in memory.
//!
//! Each element is summed in as many parts as a vector has lanes: lane l takes terms l, l + lanes, ... in order, fused; the
//! upper half of the lanes is then added to the lower until one is left.

use super::{Added, One, TOGETHER, blocks::load_some, few, scratch::with_scratch};
use crate::kernels::{
    buffers::lend,
    simd::{self, Kernel, Lanes, Vector, Width, prefetch},
    threads::{self, Shared},
};

/// How many bytes ahead a row of the right operand is asked for. It streams from memory, and the processor itself does not
/// ask early enough: with this, 16-bit rows come half as fast again, and twice as far is worse.
const AHEAD: usize = 2048;

/// `a · bᵀ` for few rows of a, so that b is read once; `false` where there are no vectors.
pub(super) fn few_rows<T: Lanes>(one: &One<T>, out: &mut [T]) -> bool {
    if simd::widest() == Width::One {
        return false;
    }
    let (m, k, n) = one.mkn;
    let (a, b) = one.operands(one.terms[0]);
    with_scratch(|[wide]| {
        let wide = wide.room(m * k);
        T::widen_into(a, wide);
        let (out, wide) = (Shared::new(out), &*wide);
        let a_rows: Vec<usize> = (0..m).map(|i| i * k).collect();
        threads::split(n, TOGETHER, m * k * n, |columns| {
            let b_rows: Vec<usize> = columns.clone().map(|j| j * k).collect();
            let mut sums = lend(m * b_rows.len());
            let done = simd::run(Dots { a: wide, a_rows: &a_rows, b, b_rows: &b_rows, len: k, sums: &mut sums });
            assert!(done.is_ok(), "asked for before");
            for (i, sums) in sums.chunks_exact(columns.len()).enumerate() {
                for (j, &sum) in columns.clone().zip(sums) {
                    let sum = match one.added {
                        Added::Nothing => sum,
                        Added::ToColumns(x) => sum + x[j].widen(),
                        Added::ToEach(x) => sum + x[i * n + j].widen(),
                    };
                    // SAFETY: column j is one of this thread's own.
                    unsafe { out.at(i * n + j).write(T::narrow(sum)) };
                }
            }
        });
    });
    true
}

/// The products of every row of `a` with every row of `b`, each of `len` numbers; rows may overlap.
pub(crate) struct Dots<'a, T> {
    pub a: &'a [f32],
    /// Where the rows begin.
    pub a_rows: &'a [usize],
    pub b: &'a [T],
    pub b_rows: &'a [usize],
    pub len: usize,
    /// One row for each of `a`, one column for each of `b`.
    pub sums: &'a mut [f32],
}

impl<T: Lanes> Kernel for Dots<'_, T> {
    type Output = ();

    // SAFETY: every row was checked to lie inside its slice.
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Dots { a, a_rows, b, b_rows, len, sums } = self;
        assert!(a_rows.iter().all(|row| row + len <= a.len()) && b_rows.iter().all(|row| row + len <= b.len()));
        assert_eq!(sums.len(), a_rows.len() * b_rows.len(), "one place for each product");
        // Sixteen sums leave no room for the operands in sixteen registers.
        let columns = if V::LANES == 8 { TOGETHER / 2 } else { TOGETHER };
        for (j, some) in b_rows.chunks(columns).enumerate() {
            for (i, few) in a_rows.chunks(TOGETHER).enumerate() {
                let mut tile = [[0.0; TOGETHER]; TOGETHER];
                few!((few.len(), some.len()), R, C => {
                    // SAFETY: as above.
                    unsafe { sized::<V, T, R, C>(a, few, b, some, len, &mut tile) }
                });
                for (r, row) in tile[..few.len()].iter().enumerate() {
                    let at = (i * TOGETHER + r) * b_rows.len() + j * columns;
                    sums[at..at + some.len()].copy_from_slice(&row[..some.len()]);
                }
            }
        }
    }
}

// SAFETY: the caller has the instructions of `V`, and R rows of `a` and C rows of `b` that lie inside their slices.
#[inline(always)]
unsafe fn sized<V: Vector, T: Lanes, const R: usize, const C: usize>(
    a: &[f32],
    a_rows: &[usize],
    b: &[T],
    b_rows: &[usize],
    len: usize,
    tile: &mut [[f32; TOGETHER]; TOGETHER],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let a: [*const f32; R] = std::array::from_fn(|r| a.as_ptr().add(a_rows[r]));
        let b: [*const T; C] = std::array::from_fn(|c| b.as_ptr().add(b_rows[c]));
        let mut sums = [[V::splat(0.0); C]; R];
        let mut at = 0;
        while at + V::LANES <= len {
            for b in b {
                prefetch(b.wrapping_add(at).wrapping_byte_add(AHEAD));
            }
            let right: [V; C] = std::array::from_fn(|c| T::load(b[c].add(at)));
            for (a, sums) in a.iter().zip(&mut sums) {
                let left = V::load_f32(a.add(at));
                for (sum, &right) in sums.iter_mut().zip(&right) {
                    *sum = V::mul_add(left, right, *sum);
                }
            }
            at += V::LANES;
        }
        if at < len {
            // Lanes behind the last number get nothing more: 0 times 0.
            let right: [V; C] = std::array::from_fn(|c| load_some(b[c].add(at), len - at));
            for (a, sums) in a.iter().zip(&mut sums) {
                let left = load_some(a.add(at), len - at);
                for (sum, &right) in sums.iter_mut().zip(&right) {
                    *sum = V::mul_add(left, right, *sum);
                }
            }
        }
        for (sums, to) in sums.into_iter().zip(tile) {
            for (sum, to) in sums.into_iter().zip(to) {
                *to = V::sum(sum);
            }
        }
    }
}
