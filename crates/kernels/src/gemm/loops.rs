//! The five loops of a packed matrix product, as in BLIS.
//!
//! From the outermost: bands of rows, blocks of `NC` columns, blocks of terms (for which the right operand is
//! packed), blocks of `MC` rows (for which the left one is packed); inside the [`macro_kernel`], tiles of `NR` columns
//! and `MR` rows. The loops are independent of the packed format ([`pack`](super::pack)) and the registers
//! ([`micro_kernel`](super::micro_kernel)).

use std::ops::Range;

use super::{
    blocking::{BAND, MAX_MC, MAX_NR, NC, mc, parts},
    epilogue::Epilogue,
    factors::Factors,
    micro_kernel::{ANY_TILE, Terms},
    pack::{Operand, pack_wide, packed_len, panel_len},
    pairs::{Multiply, Ways, WaysKernel, are_exact, are_normal},
};
use crate::{
    amx,
    float::VectorFloat,
    memory::{Line, Scratch, with_scratch},
    simd,
    simd::{Part, Simd, Width, prefetch_second},
    threads,
    threads::Shared,
};

/// Computes a whole product; `false` if there are no vectors.
pub fn product<T, F>(factors: &F, out: &mut [F::Out]) -> bool
where
    T: Multiply,
    F: Factors<Of = T, Out: VectorFloat>,
{
    let width = simd::widest();
    if width == Width::One {
        return false;
    }
    let amx = amx::uses_amx();
    regions(factors, out, |region| {
        let done = T::run(width, amx, region);
        assert!(done.is_ok(), "a width that the machine has");
    });
    true
}

/// Calls `run` with the regions of a product, on several threads if worthwhile.
pub fn regions<F: Factors<Out: Send>>(factors: &F, out: &mut [F::Out], run: impl Fn(Region<'_, F>) + Sync) {
    let (m, n) = factors.size();
    let (work, places) = (factors.depths().sum::<usize>() * m * n, factors.places());
    assert!(out.len() == m * n && places.hold(m, n), "a place for each result");
    let out = Shared::new(out);
    let region = |rows, columns| {
        with_scratch(|[a, b, partial, wide]| run(Region { factors, rows, columns, out, a, b, partial, wide }));
    };
    if n >= m {
        threads::split(n, MAX_NR, work, |columns| region(0..m, columns));
    } else {
        threads::split(m, MAX_MC, work, |rows| region(rows, 0..n));
    }
}

/// Computes a whole product on one thread, by a given way.
#[cfg(test)]
pub(super) fn on_one_thread<T: VectorFloat, R>(
    factors: &super::product::Product<T>,
    out: &mut [T],
    run: impl FnOnce(Region<'_, super::product::Product<'_, T>>) -> R,
) -> R {
    let (rows, columns, out) = (0..factors.mkn.0, 0..factors.mkn.2, Shared::new(out));
    with_scratch(|[a, b, partial, wide]| run(Region { factors, rows, columns, out, a, b, partial, wide }))
}

/// Rows and columns of a product that one thread computes.
pub struct Region<'a, F: Factors> {
    factors: &'a F,
    rows: Range<usize>,
    columns: Range<usize>,
    /// The whole product.
    out: Shared<'a, F::Out>,
    /// Packed operands.
    a: &'a mut Scratch,
    b: &'a mut Scratch,
    /// Sums of the blocks of terms so far, in rows of whole tiles.
    partial: &'a mut Scratch,
    /// Copy of the right operand in f32, for the blocks that need it.
    wide: &'a mut Scratch,
}

impl<T: VectorFloat, F: Factors<Of = T, Out: VectorFloat>> WaysKernel<T> for Region<'_, F> {
    type Output = ();

    /// Loops over bands of rows, and over blocks of columns, terms and rows.
    #[inline(always)]
    fn run<S: Simd, W: Ways<S, T>>(self, simd: S, ways: W) {
        let Region { factors, rows, columns, out, a, b, partial, wide } = self;
        let blocks: usize = factors.depths().map(|depth| depth.div_ceil(W::Terms::BLOCK)).sum();
        let (added, places) = (factors.added(), factors.places());
        let bands =
            parts(rows, BAND).flat_map(|rows| parts(columns.clone(), NC).map(move |columns| (rows.clone(), columns)));
        for (rows, columns) in bands {
            let stride = columns.len().next_multiple_of(S::NR);
            // With one block there are no partial sums.
            let partial =
                if blocks > 1 { partial.uninit(rows.len() * stride).as_mut_ptr() } else { std::ptr::null_mut() };
            let terms = factors.depths().enumerate();
            let terms =
                terms.flat_map(|(which, depth)| parts(0..depth, W::Terms::BLOCK).map(move |range| (which, range)));
            for (block, (which, range)) in terms.enumerate() {
                let depth = range.len();
                let epilogue = Epilogue { first: block == 0, last: block + 1 == blocks, added, out, places };
                let (left, right) = factors.pair(which);
                let len = packed_len(columns.len(), S::NR, depth + <F::Right as Operand<T>>::BEYOND);
                let b = b.uninit(if W::Terms::IN_LANE > 1 { len } else { 0 });
                let b_sizes = ways.pack(simd, right, columns.clone(), range.clone(), S::NR, b);
                // Right operand in f32, packed on demand.
                let (mut unpacked, mut wide) = (Some(&mut *wide), &[][..]);
                for some in parts(rows.clone(), mc::<S>()) {
                    let room = |rows| packed_len(some.len(), rows, depth + <F::Left as Operand<T>>::BEYOND);
                    let a = a.uninit(room(S::MR).max(room(W::Terms::MR)));
                    let partial = partial.wrapping_add((some.start - rows.start) * stride);
                    // No closure: the compiler keeps one as large as this out of line, without vector instructions.
                    let mut exact = false;
                    if let Some(b_sizes) = b_sizes.filter(are_normal)
                        && let Some(a_sizes) = ways.pack_left(simd, left, some.clone(), range.clone(), a)
                    {
                        exact = are_exact(a_sizes, b_sizes);
                    }
                    // SAFETY: the operands were packed for these rows, columns and terms, which belong to this thread
                    // and are inside the result; `partial` has a row for each row unless there is one block.
                    unsafe {
                        if exact {
                            let lanes = depth.div_ceil(W::Terms::IN_LANE);
                            let (a, b) = ((&*a, some), (&*b, columns.clone()));
                            macro_kernel(simd, ways.terms(), lanes, a, b, &epilogue, (partial, stride));
                            continue;
                        }
                        pack_wide(simd, left, some.clone(), range.clone(), S::MR, a);
                        if let Some(scratch) = unpacked.take() {
                            let panels = scratch.uninit(len);
                            pack_wide(simd, right, columns.clone(), range.clone(), S::NR, panels);
                            wide = panels;
                        }
                        macro_kernel(
                            simd,
                            ways.wide(),
                            depth,
                            (a, some),
                            (wide, columns.clone()),
                            &epilogue,
                            (partial, stride),
                        );
                    }
                }
            }
        }
    }
}

/// Loops over tiles: a packed block of rows times a packed block of columns.
///
/// # Safety
/// `a` and `b` are the panels of `depth` lanes of terms of these rows and columns. For the rest see [`Epilogue::tile`].
#[inline(always)]
pub(super) unsafe fn macro_kernel<S: Simd, T: VectorFloat, M: Terms<S>>(
    simd: S,
    terms: M,
    depth: usize,
    a: (&[f32], Range<usize>),
    b: (&[f32], Range<usize>),
    epilogue: &Epilogue<T>,
    partial: (*mut f32, usize),
) {
    terms.apart(simd, MacroKernel { terms, depth, a, b, epilogue, partial });
}

/// The arguments of a [`macro_kernel`], whose code depends on no operand.
struct MacroKernel<'a, T, M> {
    terms: M,
    depth: usize,
    a: (&'a [f32], Range<usize>),
    b: (&'a [f32], Range<usize>),
    epilogue: &'a Epilogue<'a, T>,
    partial: (*mut f32, usize),
}

impl<S: Simd, T: VectorFloat, M: Terms<S>> Part<S> for MacroKernel<'_, T, M> {
    type Output = ();

    #[inline(always)]
    fn run(self, simd: S) {
        // SAFETY: only `macro_kernel` makes one, whose caller guarantees the panels and places.
        unsafe { self.tiles(simd) };
    }
}

impl<T: VectorFloat, M> MacroKernel<'_, T, M> {
    /// Computes all tiles.
    ///
    /// # Safety
    /// As for [`macro_kernel`].
    #[inline(always)]
    unsafe fn tiles<S: Simd>(self, simd: S)
    where
        M: Terms<S>,
    {
        let MacroKernel { terms, depth, a: (a, rows), b: (b, columns), epilogue, partial: (partial, stride) } = self;
        let epilogue = *epilogue;
        let (a_len, b_len) = (panel_len(M::MR, depth), panel_len(S::NR, depth));
        // Many single terms take long enough to prefetch what follows.
        let takes_long = M::IN_LANE == 1 && depth >= 64;
        // The part of the next panel of columns for each panel of rows; with few of those, the hardware is ahead.
        let part = if takes_long && rows.len() >= 8 * M::MR { b_len.div_ceil(rows.len().div_ceil(M::MR)) } else { 0 };
        let mut tile = ANY_TILE;
        for (b, j) in b.chunks_exact(b_len).zip(columns.clone().step_by(S::NR)) {
            let count = S::NR.min(columns.end - j);
            let mut next = b.as_ptr().wrapping_add(b_len);
            for (a, i) in a.chunks_exact(a_len).zip(rows.clone().step_by(M::MR)) {
                let size = (M::MR.min(rows.end - i), count);
                let partial = partial.wrapping_add((i - rows.start) * stride + (j - columns.start));
                epilogue.prefetch(takes_long, size, (partial, stride), (i, j));
                let mut line = 0;
                while line < part {
                    prefetch_second(next.wrapping_add(line));
                    line += Line::LEN;
                }
                next = next.wrapping_add(part);
                // SAFETY: the panels hold `depth` terms of whole tiles; the rest is guaranteed by the caller.
                unsafe {
                    terms.tile(simd, size, depth, a.as_ptr(), b.as_ptr(), &mut tile);
                    epilogue.tile(simd, &tile, size, (partial, stride), (i, j));
                }
            }
        }
    }
}
