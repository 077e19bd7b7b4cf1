//! Products of bf16 by the tiles of AMX, in place of single terms: sixteen times as many in a cycle, in another order.
//!
//! A tile holds pairs as [`pairs`](super::pairs) packs them: those of the right operand have the format of its panels, and
//! those of the left one are packed row by row. [`Tiles::multiply`] defines the order of the sums. Blocks in which a number
//! or a sum could be subnormal are multiplied in f32 [in that order](InSteps), so that nothing is flushed to 0, and no bit
//! depends on the block in which a number is packed.

#![cfg_attr(
    not(all(target_arch = "x86_64", target_os = "linux")),
    allow(dead_code, reason = "AMX is used there alone")
)]

use std::ops::Range;

use half::bf16;

use super::{
    blocking::{KC, MAX_NR, MAX_ROWS, parts},
    micro_kernel::{AnyTile, Paired, Panel, TILE, Terms, Wide, micro_kernel},
    pack::{Operand, Packer, WHOLE, pack_panel, packed_len, panel_len},
    pairs::{ByWay, Noting, PairPacker, Ways, WaysKernel},
};
use crate::simd::{Pairs, Part, Simd, SizeRange, Sizes, TileKernel, Tiles};

/// Number of terms of a block. Tiles are multiplied so fast that adding up the sums of smaller blocks takes as long.
pub(super) const BLOCK: usize = 4 * KC;

impl<K: WaysKernel<bf16>> TileKernel for ByWay<bf16, K> {
    type Output = K::Output;
    #[inline(always)]
    fn run<S: Simd, P: Pairs<S>, X: Tiles<S>>(self, simd: S, pairs: P, tiles: X) -> K::Output {
        self.kernel.run(simd, Tiled { pairs: Paired(pairs), tiles })
    }
}

/// Way to multiply bf16 by tiles.
#[derive(Clone, Copy)]
pub struct Tiled<P, X> {
    pub pairs: Paired<P>,
    pub tiles: X,
}

impl<S: Simd, P: Pairs<S>, X: Tiles<S>> Terms<S> for Tiled<P, X> {
    const IN_LANE: usize = 2;
    const MR: usize = MAX_ROWS;
    const BLOCK: usize = BLOCK;

    #[inline(always)]
    fn apart<K: Part<S>>(self, simd: S, part: K) -> K::Output {
        self.pairs.apart(simd, part)
    }

    #[inline(always)]
    fn mul_add(self, simd: S, a: S::F32s, b: S::F32s, c: S::F32s) -> S::F32s {
        self.pairs.mul_add(simd, a, b, c)
    }

    #[inline(always)]
    unsafe fn tile(self, _: S, size: (usize, usize), depth: usize, a: *const f32, b: *const f32, to: &mut AnyTile) {
        // SAFETY: guaranteed by the caller; both panels were packed for whole tiles.
        unsafe { self.tiles.multiply(depth.div_ceil(WHOLE), size, a, b, to.as_mut_ptr()) };
    }
}

impl<S: Simd, P: Pairs<S>, X: Tiles<S>> Ways<S, bf16> for Tiled<P, X> {
    type Terms = Self;
    type Wide = InSteps;

    #[inline(always)]
    fn terms(self) -> Self {
        self
    }

    #[inline(always)]
    fn wide(self) -> InSteps {
        InSteps
    }

    #[inline(always)]
    fn pack(
        self,
        simd: S,
        operand: impl Operand<bf16>,
        range: Range<usize>,
        terms: Range<usize>,
        width: usize,
        to: &mut [f32],
    ) -> Option<SizeRange> {
        let lanes = terms.len().div_ceil(2);
        let sizes = self.pairs.pack(simd, operand, range.clone(), terms, width, to);
        if !lanes.is_multiple_of(WHOLE) {
            for panel in to.chunks_exact_mut(panel_len(width, lanes)).take(range.len().div_ceil(width)) {
                panel[lanes * width..].fill(0.0);
            }
        }
        sizes
    }

    #[inline(always)]
    fn pack_left<O: Operand<bf16>>(
        self,
        simd: S,
        operand: O,
        rows: Range<usize>,
        terms: Range<usize>,
        to: &mut [f32],
    ) -> Option<SizeRange> {
        let mut packer = Noting { packer: PairPacker(self.pairs.0), sizes: Sizes::none(simd) };
        let (depth, lanes) = (terms.len(), terms.len().div_ceil(2));
        assert!(depth > 0 && depth <= BLOCK && !rows.is_empty());
        assert!(to.len() >= packed_len(rows.len(), MAX_ROWS, lanes + O::BEYOND), "memory for all panels");
        for (panel, some) in parts(rows, MAX_ROWS).enumerate() {
            let len = panel_len(MAX_ROWS, lanes);
            // SAFETY: there is memory for all panels, as was asserted; contiguous rows have these terms.
            unsafe {
                let to = to.as_mut_ptr().add(panel * len);
                if let Some((from, stride)) = operand.contiguous_rows(some.clone(), terms.clone()) {
                    pack_rows(simd, &mut packer, (from, stride), (some.len(), depth), to);
                    continue;
                }
                pack_panel(simd, &mut packer, operand, some, terms.clone(), to, MAX_ROWS);
                let panel = std::slice::from_raw_parts_mut(to, len);
                panel[lanes * MAX_ROWS..].fill(0.0);
                for step in panel.chunks_exact_mut(STEP_LEN) {
                    lanes_to_rows(simd, step);
                }
            }
        }
        Some(operand.sizes().unwrap_or_else(|| self.pairs.0.noted(&packer.sizes)))
    }

    #[inline(always)]
    unsafe fn at_each(self, simd: S, from: *const bf16, distance: usize, to: *mut f32) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.pairs.at_each(simd, from, distance, to) };
    }
}

/// One f32 per lane, added in the order of [`Tiles::multiply`].
#[derive(Clone, Copy)]
pub struct InSteps;

impl<S: Simd> Terms<S> for InSteps {
    const IN_LANE: usize = 1;
    const BLOCK: usize = BLOCK;

    #[inline(always)]
    fn apart<P: Part<S>>(self, simd: S, part: P) -> P::Output {
        simd.apart(part)
    }

    #[inline(always)]
    fn mul_add(self, simd: S, a: S::F32s, b: S::F32s, c: S::F32s) -> S::F32s {
        simd.mul_add(a, b, c)
    }

    #[inline(always)]
    unsafe fn tile(
        self,
        simd: S,
        (rows, columns): (usize, usize),
        depth: usize,
        a: *const f32,
        b: *const f32,
        to: &mut AnyTile,
    ) {
        let size = (rows, columns.div_ceil(S::LANES));
        let mut sums = [TILE; 2];
        for first in (0..depth).step_by(2 * WHOLE) {
            let len = (depth - first).min(2 * WHOLE);
            for (i, sums) in sums.iter_mut().enumerate() {
                // Every other term: the first numbers of pairs, or the second.
                let a = Panel { start: a.wrapping_add((first + i) * S::MR), row: 2 * S::MR, step: 1 };
                let b = Panel { start: b.wrapping_add((first + i) * S::NR), row: 2 * S::NR, step: S::LANES };
                // SAFETY: the panels have these terms, as the caller guarantees.
                unsafe { micro_kernel(simd, Wide, size, (len + 1 - i) / 2, a, b, sums) };
            }
            for row in 0..rows {
                for column in (0..columns).step_by(S::LANES) {
                    // SAFETY: a vector from `column` is inside a row of a tile.
                    unsafe {
                        let at = |row: &[f32; MAX_NR]| simd.load_f32(row.as_ptr().add(column));
                        let mut sum = simd.add(at(&sums[0][row]), at(&sums[1][row]));
                        sum = simd.add(if first == 0 { simd.splat(0.0) } else { at(&to[row]) }, sum);
                        simd.store_f32(sum, to[row].as_mut_ptr().add(column));
                    }
                }
            }
        }
    }
}

/// Numbers of a step of the left operand: two tiles.
const STEP_LEN: usize = MAX_ROWS * WHOLE;

/// Packs rows of contiguous terms into a panel of tiles; 0 for missing rows and terms.
///
/// # Safety
/// `from` is valid for reads of `depth` numbers of `count` rows that are `stride` apart, and `to` for writes of a panel.
#[inline(always)]
unsafe fn pack_rows<S: Simd, K: Packer<S, bf16>>(
    simd: S,
    packer: &mut K,
    (from, stride): (*const bf16, usize),
    (count, depth): (usize, usize),
    to: *mut f32,
) {
    let whole = 2 * S::LANES;
    for (step, first) in (0..depth).step_by(2 * WHOLE).enumerate() {
        for row in 0..MAX_ROWS {
            for lane in (0..WHOLE).step_by(S::LANES) {
                let at = first + 2 * lane;
                // SAFETY: guaranteed by the caller.
                unsafe {
                    let vector = match depth.saturating_sub(at).min(whole) {
                        0 => simd.splat(0.0),
                        _ if row >= count => simd.splat(0.0),
                        terms => packer.of_row(simd, from.add(row * stride + at), terms),
                    };
                    simd.store_f32(vector, to.add(step * STEP_LEN + row * WHOLE + lane));
                }
            }
        }
    }
}

/// Transposes a step from the format of panels, lane by lane, to that of tiles, row by row.
#[inline(always)]
fn lanes_to_rows<S: Simd>(simd: S, step: &mut [f32]) {
    let mut lanes = [0f32; STEP_LEN];
    lanes.copy_from_slice(step);
    for row in (0..MAX_ROWS).step_by(8) {
        for lane in (0..WHOLE).step_by(8) {
            // SAFETY: eight lanes of these eight rows are inside the step, in both orders.
            unsafe {
                let from = lanes.as_ptr().add(lane * MAX_ROWS + row);
                simd.transpose(from, MAX_ROWS, step.as_mut_ptr().add(row * WHOLE + lane), WHOLE);
            }
        }
    }
}
