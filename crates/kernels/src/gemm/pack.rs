//! Packing: copies of operands, widened to f32, in the order in which the micro-kernel reads them.
//!
//! The packed format is a sequence of panels of `width` rows of the left operand (`MR`) or columns of the right one
//! (`NR`). Within a panel, the `width` numbers of a term are consecutive, term by term. A panel has room for a multiple
//! of [`WHOLE`] terms, and missing rows or columns are 0. If a lane holds a pair of terms ([`pairs`](super::pairs)), the
//! `width` pairs of two terms are consecutive, and the second number of the last may be 0.

use std::{marker::PhantomData, ops::Range};

use super::{
    blocking::{KC, MAX_NR, parts},
    micro_kernel::{Terms, Wide},
    product::Layout,
};
use crate::{
    float::VectorFloat,
    simd::{Lanes, Part, Simd, SizeRange, load_first},
};

/// Number of terms that [`pack_transposed`] transposes at a time.
pub const STEP: usize = 8;

/// Number of lanes of terms of which a panel has whole multiples: those of a tile of AMX.
pub const WHOLE: usize = 16;

/// Numbers after the last panel that stores of whole vectors may overwrite.
pub const SLACK: usize = 64;

/// Returns the number of elements of a panel.
pub const fn panel_len(width: usize, depth: usize) -> usize {
    width * depth.next_multiple_of(WHOLE)
}

/// Returns the memory for the panels of `count` rows or columns.
pub const fn packed_len(count: usize, width: usize, depth: usize) -> usize {
    count.div_ceil(width) * panel_len(width, depth) + SLACK
}

/// An operand before packing.
pub trait Operand<T>: Copy {
    /// Lanes of terms after the panel that packing may overwrite.
    const BEYOND: usize = 0;
    /// Returns the size range of all numbers, or of a superset, if known.
    fn sizes(&self) -> Option<SizeRange> {
        None
    }
    /// Returns the first term of the first of these rows and the distance between rows, if the terms of each are
    /// contiguous and inside the operand.
    #[cfg_attr(
        not(all(target_arch = "x86_64", target_os = "linux")),
        allow(dead_code, reason = "AMX is used there alone")
    )]
    fn contiguous_rows(&self, _some: Range<usize>, _terms: Range<usize>) -> Option<(*const T, usize)> {
        None
    }
    /// Packs rows of a left operand, or columns of a right one, into one panel of `width` that begins at `to`: `width`
    /// lanes for each lane of terms, 0 for missing rows or columns.
    ///
    /// # Safety
    /// `to` is valid for writes of [`panel_len`] numbers, including [`BEYOND`](Operand::BEYOND) lanes, and [`SLACK`]
    /// more. There are at most [`KC`] terms, and at most `width` rows or columns, which is at most [`MAX_NR`].
    #[allow(clippy::too_many_arguments)]
    unsafe fn pack_panel<S: Simd, K: Packer<S, T>>(
        self,
        simd: S,
        packer: &mut K,
        some: Range<usize>,
        terms: Range<usize>,
        to: *mut f32,
        width: usize,
    );
}

/// Matrix in memory.
#[derive(Clone, Copy)]
pub struct Matrix<'a, T> {
    matrix: &'a [T],
    /// `true` when the numbers of one term are contiguous. Otherwise the terms of one row or column are.
    contiguous: bool,
    /// Distance between terms if they are contiguous, else between rows or columns.
    stride: usize,
}

impl<'a, T> Matrix<'a, T> {
    /// Creates an operand in which the numbers of one term, or else the terms of one row or column, are contiguous.
    /// Such sequences are a stride apart.
    pub fn new(matrix: &'a [T], contiguous: bool, stride: usize) -> Self {
        Matrix { matrix, contiguous, stride }
    }

    /// Creates a right operand `k x n`, stored as `n x k` if the layout is transposed.
    pub fn right(layout: Layout, (k, n): (usize, usize), b: &'a [T]) -> Self {
        let contiguous = layout != Layout::NT;
        Matrix::new(b, contiguous, if contiguous { n } else { k })
    }

    /// Returns the index of the number of row or column `i` and term `p`.
    fn index(&self, i: usize, p: usize) -> usize {
        if self.contiguous { p * self.stride + i } else { i * self.stride + p }
    }
}

impl<T: VectorFloat> Operand<T> for Matrix<'_, T> {
    #[inline(always)]
    fn contiguous_rows(&self, some: Range<usize>, terms: Range<usize>) -> Option<(*const T, usize)> {
        let inside = self.index(some.end - 1, terms.end - 1) < self.matrix.len();
        let first = self.index(some.start, terms.start);
        (!self.contiguous && inside).then(|| (self.matrix[first..].as_ptr(), self.stride))
    }

    #[inline(always)]
    unsafe fn pack_panel<S: Simd, K: Packer<S, T>>(
        self,
        simd: S,
        packer: &mut K,
        some: Range<usize>,
        terms: Range<usize>,
        to: *mut f32,
        width: usize,
    ) {
        assert!(self.index(some.end - 1, terms.end - 1) < self.matrix.len(), "inside the matrix");
        let from = &self.matrix[self.index(some.start, terms.start)..];
        // SAFETY: the numbers of these rows or columns and terms are inside the matrix, as was asserted; the rest is
        // guaranteed by the caller.
        unsafe {
            if self.contiguous {
                pack_contiguous(simd, packer, from, self.stride, some.len(), terms.len(), to, width);
            } else {
                pack_transposed(simd, packer, from.as_ptr(), self.stride, some.len(), terms.len(), to, width);
            }
        }
    }
}

/// Conversion of numbers to lanes of a panel.
pub trait Packer<S: Simd, T> {
    /// Terms per lane: 1 or 2.
    const IN_LANE: usize;
    /// Packs a vector of lanes, given the addresses of their numbers for each term, in `N` pieces: 1, 2 or 4.
    ///
    /// # Safety
    /// The addresses (for a packer of single terms, those of the first term) are valid for reads of `S::LANES / N`
    /// numbers.
    unsafe fn vector<const N: usize>(&mut self, simd: S, terms: [[*const T; N]; 2]) -> S::F32s;
    /// Packs the lanes of the first `count` terms of one row; 0 after them.
    ///
    /// # Safety
    /// `count` is at most the capacity of a vector, and `from` is valid for reads of `count` numbers.
    unsafe fn of_row(&mut self, simd: S, from: *const T, count: usize) -> S::F32s;
}

impl<S: Simd, T: Lanes> Packer<S, T> for Wide {
    const IN_LANE: usize = 1;

    #[inline(always)]
    unsafe fn vector<const N: usize>(&mut self, simd: S, [from, _]: [[*const T; N]; 2]) -> S::F32s {
        // SAFETY: guaranteed by the caller; `all` has room for any vector.
        unsafe {
            if N == 1 {
                return T::load(simd, from[0]);
            }
            let (mut all, length) = ([T::default(); 16], S::LANES / N);
            for (piece, from) in from.into_iter().enumerate() {
                std::ptr::copy_nonoverlapping(from, all.as_mut_ptr().add(piece * length), length);
            }
            T::load(simd, all.as_ptr())
        }
    }

    #[inline(always)]
    unsafe fn of_row(&mut self, simd: S, from: *const T, count: usize) -> S::F32s {
        // SAFETY: guaranteed by the caller.
        unsafe { load_first(simd, from, count) }
    }
}

/// Packs rows or columns `range` of an operand into panels of `width`: `MR` rows of the left operand, `NR` columns of
/// the right. Returns the packer.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub fn pack_panels<S: Simd, T, M: Terms<S>, K: Packer<S, T>, O: Operand<T>>(
    simd: S,
    lanes: M,
    packer: K,
    operand: O,
    range: Range<usize>,
    terms: Range<usize>,
    width: usize,
    to: &mut [f32],
) -> K {
    lanes.apart(simd, Panels { packer, operand, range, terms, width, to, of: PhantomData })
}

/// Packs panels as [`pack_panels`] does, with one f32 in a lane.
#[inline(always)]
pub fn pack_wide<S: Simd, T: Lanes, O: Operand<T>>(
    simd: S,
    operand: O,
    range: Range<usize>,
    terms: Range<usize>,
    width: usize,
    to: &mut [f32],
) {
    pack_panels(simd, Wide, Wide, operand, range, terms, width, to);
}

/// The arguments of [`pack_panels`], whose code depends on one operand alone.
struct Panels<'a, T, K, O> {
    packer: K,
    operand: O,
    range: Range<usize>,
    terms: Range<usize>,
    width: usize,
    to: &'a mut [f32],
    of: PhantomData<T>,
}

impl<S: Simd, T, K: Packer<S, T>, O: Operand<T>> Part<S> for Panels<'_, T, K, O> {
    type Output = K;

    #[inline(always)]
    fn run(self, simd: S) -> K {
        let Panels { mut packer, operand, range, terms, width, to, .. } = self;
        let (depth, lanes) = (terms.len(), terms.len().div_ceil(K::IN_LANE));
        assert!(depth > 0 && width <= MAX_NR && !range.is_empty());
        assert!(to.len() >= packed_len(range.len(), width, lanes + O::BEYOND), "memory for all panels");
        for (panel, some) in parts(range, width).enumerate() {
            // SAFETY: `to` has memory for all panels and slack, as was asserted.
            unsafe {
                let to = to.as_mut_ptr().add(panel * panel_len(width, lanes));
                pack_panel(simd, &mut packer, operand, some, terms.clone(), to, width);
            }
        }
        packer
    }
}

/// Packs one panel, [`KC`] terms after the other.
///
/// # Safety
/// As for [`Operand::pack_panel`], with any number of terms.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub(super) unsafe fn pack_panel<S: Simd, T, K: Packer<S, T>, O: Operand<T>>(
    simd: S,
    packer: &mut K,
    operand: O,
    some: Range<usize>,
    terms: Range<usize>,
    to: *mut f32,
    width: usize,
) {
    const { assert!(KC.is_multiple_of(2 * WHOLE)) };
    for block in parts(terms.clone(), KC) {
        let lane = (block.start - terms.start) / K::IN_LANE;
        // SAFETY: guaranteed by the caller.
        unsafe { operand.pack_panel(simd, packer, some.clone(), block, to.add(lane * width), width) };
    }
}

/// Packs one panel in which the numbers of a term are contiguous: `to[p * width + i] = from[p * stride + i]` for `len`
/// numbers i and `depth` terms p; 0 for i up to `width`. If a lane holds a pair, p is the index of the lane, which has
/// two such terms.
///
/// # Safety
/// All these numbers are inside `from`, and `to` is valid for writes of `width` numbers per lane of terms and one
/// vector more. `width` is at most [`MAX_NR`].
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn pack_contiguous<S: Simd, T: Lanes, K: Packer<S, T>>(
    simd: S,
    packer: &mut K,
    from: &[T],
    stride: usize,
    len: usize,
    depth: usize,
    to: *mut f32,
    width: usize,
) {
    let zeros = [T::default(); MAX_NR];
    let mut padded = [zeros; 2];
    // Numbers read by vectors. Those that do not fill a vector are read together with those after them, whose lanes are
    // overwritten.
    let read = width.next_multiple_of(S::LANES);
    for p in 0..depth.div_ceil(K::IN_LANE) {
        // SAFETY: guaranteed by the caller. If numbers are missing, or none follow, they are read from a padded copy. A
        // store may extend into the next term, which is written after it.
        unsafe {
            let mut terms = [zeros.as_ptr(); 2];
            for (i, term) in terms.iter_mut().enumerate().take(K::IN_LANE.min(depth - p * K::IN_LANE)) {
                let at = (p * K::IN_LANE + i) * stride;
                *term = from.as_ptr().add(at);
                if len < width || at + read > from.len() {
                    std::ptr::copy_nonoverlapping(*term, padded[i].as_mut_ptr(), len);
                    *term = padded[i].as_ptr();
                }
            }
            let mut at = 0;
            while at < width {
                let vector = packer.vector(simd, [[terms[0].add(at)], [terms[1].add(at)]]);
                simd.store_f32(vector, to.add(p * width + at));
                at += S::LANES;
            }
        }
    }
}

/// Number of numbers that a copy of a term may write after the last of the panel.
pub const COPIED: usize = 16;

/// Packs one panel as [`pack_contiguous`] does, of numbers that are not in one place: `copy` writes those of a term to a
/// row of zeros, and may write [`COPIED`] more.
///
/// # Safety
/// `to` is valid for writes of `width` numbers per lane of terms and one vector more.
#[inline(always)]
pub unsafe fn pack_copied<S: Simd, T: Lanes, K: Packer<S, T>>(
    simd: S,
    packer: &mut K,
    terms: Range<usize>,
    to: *mut f32,
    width: usize,
    copy: impl Fn(usize, &mut [T; MAX_NR + COPIED]),
) {
    // Many terms are copied before one is read: a load of data that several stores have just written waits for them.
    const TERMS: usize = 64;
    const { assert!(TERMS.is_multiple_of(2)) };
    let mut rows = [[T::default(); MAX_NR + COPIED]; TERMS];
    for first in terms.clone().step_by(TERMS) {
        let batch = first..terms.end.min(first + TERMS);
        for (row, term) in rows.iter_mut().zip(batch.clone()) {
            copy(term, row);
        }
        // SAFETY: the rows have `width` numbers; the caller guarantees room for the lanes of these terms.
        unsafe {
            let to = to.add((first - terms.start) / K::IN_LANE * width);
            pack_contiguous(simd, packer, rows.as_flattened(), MAX_NR + COPIED, width, batch.len(), to, width);
        }
    }
}

/// Packs one panel in which the numbers of a row or column are contiguous: `to[p * width + i] = from[i * stride + p]`
/// for `len` numbers i and `depth` terms p; 0 for i up to `width`. Pairs are as in [`pack_contiguous`].
///
/// # Safety
/// `from` is valid for reads of all these numbers, and `to` for writes of [`panel_len`] numbers and [`STEP`] more.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn pack_transposed<S: Simd, T: Lanes, K: Packer<S, T>>(
    simd: S,
    packer: &mut K,
    from: *const T,
    stride: usize,
    len: usize,
    depth: usize,
    to: *mut f32,
    width: usize,
) {
    let whole = S::LANES * K::IN_LANE;
    for first in (0..width).step_by(STEP) {
        let rows = STEP.min(len.saturating_sub(first));
        let from = from.wrapping_add(first * stride);
        for p in (0..depth).step_by(whole) {
            let count = whole.min(depth - p);
            // SAFETY: the caller guarantees these terms of the rows. `to` has room for whole steps. If `width` is not a
            // multiple of STEP, a store extends into the next term, which is written after it.
            unsafe {
                let mut vectors = [simd.splat(0.0); STEP];
                // Loops, because the compiler keeps closures as large as these out of line.
                if rows == STEP && count == whole {
                    for (i, vector) in vectors.iter_mut().enumerate() {
                        *vector = packer.of_row(simd, from.wrapping_add(i * stride + p), whole);
                    }
                } else {
                    for (i, vector) in vectors.iter_mut().enumerate().take(rows) {
                        *vector = packer.of_row(simd, from.wrapping_add(i * stride + p), count);
                    }
                }
                let to = to.add(p / K::IN_LANE * width + first);
                simd.store_transposed(vectors, to, width, count.div_ceil(K::IN_LANE));
            }
        }
    }
}

/// Widens `len` numbers.
///
/// # Safety
/// `from` is valid for reads of `len` numbers, and `to` for writes of `len` rounded up to whole vectors.
#[inline(always)]
pub unsafe fn widen<S: Simd, T: Lanes>(simd: S, from: *const T, len: usize, to: *mut f32) {
    let mut at = 0;
    // SAFETY: guaranteed by the caller.
    unsafe {
        while at + S::LANES <= len {
            simd.store_f32(T::load(simd, from.add(at)), to.add(at));
            at += S::LANES;
        }
        if at < len {
            simd.store_f32(load_first(simd, from.add(at), len - at), to.add(at));
        }
    }
}
