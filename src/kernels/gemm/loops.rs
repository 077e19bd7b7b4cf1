//! The five loops of a packed matrix product, as in BLIS.
//!
//! From the outermost: blocks of `NC` columns, blocks of `KC` terms (for which the right operand is packed), blocks of `MC`
//! rows (for which the left one is packed); inside the [`macro_kernel`], tiles of `NR` columns and of `MR` rows. The loops
//! know neither the packed format ([`pack`](super::pack)) nor the registers ([`micro_kernel`](super::micro_kernel)).

use std::ops::Range;

use super::{
    blocking::{KC, MAX_MC, MAX_NR, NC, mc, parts},
    epilogue::Epilogue,
    micro_kernel::{Panel, TILE, micro_kernel},
    pack::{Operand, ROWS, Rows, pack_a, pack_b, packed_len, panel_len},
    product::Product,
};
use crate::kernels::{
    float::VectorFloat,
    memory::{Scratch, with_scratch},
    simd::{self, Kernel, Simd, Width},
    threads::{self, Shared},
};

/// A whole product; `false` where there are no vectors.
pub(super) fn product<T: VectorFloat>(product: &Product<T>, out: &mut [T]) -> bool {
    let width = simd::widest();
    if width == Width::One {
        return false;
    }
    let (m, k, n) = product.mkn;
    let work = product.terms.len() * m * k * n;
    let out = Shared::new(out);
    if n >= m {
        threads::split(n, MAX_NR, work, |columns| region(width, product, 0..m, columns, out));
    } else {
        threads::split(m, MAX_MC, work, |rows| region(width, product, rows, 0..n, out));
    }
    true
}

fn region<T: VectorFloat>(
    width: Width,
    product: &Product<T>,
    rows: Range<usize>,
    columns: Range<usize>,
    out: Shared<'_, T>,
) {
    with_scratch(|[a, b, partial]| {
        let done = simd::run_with(width, Region { product, rows, columns, out, a, b, partial });
        assert!(done.is_ok(), "a width that the machine has");
    });
}

/// A whole product with vectors of one width, on one thread.
#[cfg(test)]
pub(super) fn with_width<T: VectorFloat>(width: Width, product: &Product<T>, out: &mut [T]) {
    region(width, product, 0..product.mkn.0, 0..product.mkn.2, Shared::new(out));
}

/// The rows and columns of a product that one thread computes.
struct Region<'a, T> {
    product: &'a Product<'a, T>,
    rows: Range<usize>,
    columns: Range<usize>,
    /// Of the whole product.
    out: Shared<'a, T>,
    /// Packed operands.
    a: &'a mut Scratch,
    b: &'a mut Scratch,
    /// Sums of the blocks of terms so far, in rows of `NC`.
    partial: &'a mut Scratch,
}

impl<T: VectorFloat> Kernel for Region<'_, T> {
    type Output = ();

    /// The loops over blocks of columns, of terms, and of rows.
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Region { product, rows, columns, out, a, b, partial } = self;
        let (_, k, n) = product.mkn;
        let blocks = k.div_ceil(KC) * product.terms.len();
        // With one block there are no partial sums.
        let partial = if blocks > 1 { partial.uninit(rows.len() * NC).as_mut_ptr() } else { std::ptr::null_mut() };
        let mut space: Rows = ROWS;
        for columns in parts(columns, NC) {
            let terms = product.terms.iter().flat_map(|&term| parts(0..k, KC).map(move |range| (term, range)));
            for (block, (term, range)) in terms.enumerate() {
                let depth = range.len();
                let epilogue = Epilogue { first: block == 0, last: block + 1 == blocks, added: product.added, out, n };
                let b = b.uninit(packed_len(columns.len(), S::NR, depth));
                pack_b(simd, Operand::right(product, term), columns.clone(), range.clone(), b, &mut space);
                for some in parts(rows.clone(), mc::<S>()) {
                    let a = a.uninit(packed_len(some.len(), S::MR, depth));
                    pack_a(simd, Operand::left(product, term), some.clone(), range.clone(), a, &mut space);
                    let partial = partial.wrapping_add((some.start - rows.start) * NC);
                    // SAFETY: the operands were packed for these rows, columns and terms, which are this thread's own and
                    // inside the result; `partial` has a row of NC for each row unless there is one block.
                    unsafe { macro_kernel(simd, depth, (a, some), (b, columns.clone()), &epilogue, partial) };
                }
            }
        }
    }
}

/// The loops over tiles: a packed block of rows times a packed block of columns.
///
/// # Safety
/// `a` and `b` are the panels of `depth` terms of these rows and columns. For the rest see [`Epilogue::tile`]; rows of
/// partial sums are `NC` apart.
#[inline(always)]
unsafe fn macro_kernel<S: Simd, T: VectorFloat>(
    simd: S,
    depth: usize,
    (a, rows): (&[f32], Range<usize>),
    (b, columns): (&[f32], Range<usize>),
    epilogue: &Epilogue<T>,
    partial: *mut f32,
) {
    let (a_len, b_len) = (panel_len(S::MR, depth), panel_len(S::NR, depth));
    let mut tile = TILE;
    for (b, j) in b.chunks_exact(b_len).zip(columns.clone().step_by(S::NR)) {
        let count = S::NR.min(columns.end - j);
        let b = Panel { start: b.as_ptr(), row: S::NR, step: S::LANES };
        for (a, i) in a.chunks_exact(a_len).zip(rows.clone().step_by(S::MR)) {
            let size = (S::MR.min(rows.end - i), count);
            let a = Panel { start: a.as_ptr(), row: S::MR, step: 1 };
            let partial = partial.wrapping_add((i - rows.start) * NC + (j - columns.start));
            // SAFETY: the panels hold `depth` terms of whole tiles; the rest is the caller's promise.
            unsafe {
                micro_kernel(simd, (size.0, count.div_ceil(S::LANES)), depth, a, b, &mut tile);
                epilogue.tile(simd, &tile, size, (partial, NC), (i, j));
            }
        }
    }
}
