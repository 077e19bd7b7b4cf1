//! Packing: copies of operands, widened to f32, in the order in which the micro-kernel reads them.
//!
//! The packed format is a sequence of panels of `width` rows of the left operand (`MR`) or columns of the right one (`NR`).
//! Within a panel, the `width` numbers of a term follow one another, term after term. A panel has room for a multiple of
//! [`STEP`] terms, and rows or columns that are not there are 0. Where a lane holds a pair of terms ([`pairs`](super::pairs)),
//! the `width` pairs of two terms follow one another, and the last may have 0 as its second number.

use std::ops::Range;

use super::{
    blocking::{KC, MAX_NR, parts},
    micro_kernel::Wide,
    product::Layout,
};
use crate::kernels::{
    float::VectorFloat,
    simd::{Lanes, Simd, SizeRange, load_first},
};

/// Terms that [`pack_transposed`] transposes at a time.
pub(crate) const STEP: usize = 8;

/// Numbers after the last panel that stores of whole vectors may overwrite.
pub(crate) const SLACK: usize = 64;

/// Numbers of a panel.
pub(crate) const fn panel_len(width: usize, depth: usize) -> usize {
    width * depth.next_multiple_of(STEP)
}

/// Memory for the panels of `count` rows or columns.
pub(crate) const fn packed_len(count: usize, width: usize, depth: usize) -> usize {
    count.div_ceil(width) * panel_len(width, depth) + SLACK
}

/// An operand before it is packed.
pub(crate) trait Operand<T>: Copy {
    /// Lanes of terms after the panel that packing may overwrite.
    const BEYOND: usize = 0;
    /// The sizes of all numbers, or of some more, where they are known.
    fn sizes(&self) -> Option<SizeRange> {
        None
    }
    /// Packs rows of a left operand, or columns of a right one, to one panel of `width` that begins with `to`: `width` lanes of
    /// each lane of terms, 0 where there is no such row or column.
    ///
    /// # Safety
    /// `to` is valid for writes of [`panel_len`] numbers, of [`BEYOND`](Operand::BEYOND) lanes too, and [`SLACK`] more. There are at most [`KC`] terms, and at most `width`
    /// rows or columns, which is at most [`MAX_NR`].
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

/// A matrix in memory.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a, T> {
    matrix: &'a [T],
    /// Whether the numbers of one term follow one another. Otherwise the terms of one row or column do.
    contiguous: bool,
    /// Distance between terms where they are contiguous, else between rows or columns.
    stride: usize,
}

impl<'a, T> Matrix<'a, T> {
    /// An operand whose numbers of one term follow one another, or whose terms of one row or column do. A stride lies between
    /// two such sequences.
    pub fn new(matrix: &'a [T], contiguous: bool, stride: usize) -> Self {
        Matrix { matrix, contiguous, stride }
    }

    /// A right operand `k x n`, stored as `n x k` where the layout says that it is transposed.
    pub fn right(layout: Layout, (k, n): (usize, usize), b: &'a [T]) -> Self {
        let contiguous = layout != Layout::NT;
        Matrix::new(b, contiguous, if contiguous { n } else { k })
    }

    /// The index of a number of row or column `i` and of term `p`.
    fn index(&self, i: usize, p: usize) -> usize {
        if self.contiguous { p * self.stride + i } else { i * self.stride + p }
    }
}

impl<T: VectorFloat> Operand<T> for Matrix<'_, T> {
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
        // SAFETY: the numbers of these rows or columns and terms are inside the matrix, as was asserted; the rest is the
        // caller's promise.
        unsafe {
            if self.contiguous {
                pack_contiguous(simd, packer, from, self.stride, some.len(), terms.len(), to, width);
            } else {
                pack_transposed(simd, packer, from.as_ptr(), self.stride, some.len(), terms.len(), to, width);
            }
        }
    }
}

/// How numbers become lanes of a panel.
pub(crate) trait Packer<S: Simd, T> {
    /// Terms of a lane: 1, or 2.
    const IN_LANE: usize;
    /// A vector of lanes, given the addresses of their numbers of each term, which lie in `N` pieces: 1, 2 or 4.
    ///
    /// # Safety
    /// The addresses, of which a packer of single terms has one, are valid for reads of `S::LANES / N` numbers.
    unsafe fn vector<const N: usize>(&mut self, simd: S, terms: [[*const T; N]; 2]) -> S::F32s;
    /// The lanes of the first `count` terms of one row; 0 after them.
    ///
    /// # Safety
    /// `count` is at most what a vector holds, and `from` is valid for reads of `count` numbers.
    unsafe fn of_row(&mut self, simd: S, from: *const T, count: usize) -> S::F32s;
}

impl<S: Simd, T: Lanes> Packer<S, T> for Wide {
    const IN_LANE: usize = 1;

    #[inline(always)]
    unsafe fn vector<const N: usize>(&mut self, simd: S, [from, _]: [[*const T; N]; 2]) -> S::F32s {
        // SAFETY: the caller's promise; `all` has room for any vector.
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
        // SAFETY: the caller's promise.
        unsafe { load_first(simd, from, count) }
    }
}

/// Packs rows or columns `range` of an operand to panels of `width`: `MR` rows of the left operand, `NR` columns of the right.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub(crate) fn pack_panels<S: Simd, T, K: Packer<S, T>, O: Operand<T>>(
    simd: S,
    packer: &mut K,
    operand: O,
    range: Range<usize>,
    terms: Range<usize>,
    width: usize,
    to: &mut [f32],
) {
    let (depth, lanes) = (terms.len(), terms.len().div_ceil(K::IN_LANE));
    assert!(depth > 0 && depth <= KC && width <= MAX_NR && !range.is_empty());
    assert!(to.len() >= packed_len(range.len(), width, lanes + O::BEYOND), "memory for all panels");
    for (panel, some) in parts(range, width).enumerate() {
        // SAFETY: `to` has memory for all panels and slack, as was asserted.
        unsafe {
            let to = to.as_mut_ptr().add(panel * panel_len(width, lanes));
            operand.pack_panel(simd, packer, some, terms.clone(), to, width);
        }
    }
}

/// Packs one panel whose numbers of a term are contiguous: `to[p * width + i] = from[p * stride + i]` for `len` numbers i
/// and `depth` terms p; 0 for i up to `width`. Where a lane holds a pair, p is its number, and it has two such terms.
///
/// # Safety
/// All these numbers are inside `from`, and `to` is valid for writes of `width` numbers for each lane of terms and a vector
/// more. `width` is at most [`MAX_NR`].
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub(crate) unsafe fn pack_contiguous<S: Simd, T: Lanes, K: Packer<S, T>>(
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
    // What vectors read. Numbers that do not fill them are read together with those after them, whose lanes are overwritten.
    let read = width.next_multiple_of(S::LANES);
    for p in 0..depth.div_ceil(K::IN_LANE) {
        // SAFETY: the caller's promise. Where numbers are missing, or none follow, they are read from a padded copy. A store
        // may reach into the next term, which is written after it.
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

/// Packs one panel whose numbers of a row or column are contiguous: `to[p * width + i] = from[i * stride + p]` for `len`
/// numbers i and `depth` terms p; 0 for i up to `width`. Pairs are as in [`pack_contiguous`].
///
/// # Safety
/// `from` is valid for reads of all these numbers, and `to` for writes of [`panel_len`] numbers and [`STEP`] more.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub(crate) unsafe fn pack_transposed<S: Simd, T: Lanes, K: Packer<S, T>>(
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
            // SAFETY: these terms of the rows are the caller's. `to` has room for whole steps. Where `width` is no multiple of
            // STEP, a store reaches into the next term, which is written after it.
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
/// `from` is valid for reads of `len` numbers, and `to` for writes of so many, rounded up to whole vectors.
#[inline(always)]
pub(crate) unsafe fn widen<S: Simd, T: Lanes>(simd: S, from: *const T, len: usize, to: *mut f32) {
    let mut at = 0;
    // SAFETY: the caller's promise.
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
