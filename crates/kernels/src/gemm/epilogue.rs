//! Epilogue: processing of the sums of a block of terms as they leave the registers.

use super::{blocking::MAX_NR, factors::Places, micro_kernel::AnyTile, product::Added};
use crate::{
    float::VectorFloat,
    simd::{Lanes, Simd, load_first, prefetch, store_first},
    threads::Shared,
};

/// Bytes between two rows of a result below which caches keep the lines of a tile.
const NEAR: usize = 4096;

/// Epilogue of one block of terms. The block's sums are added to those of the previous blocks. After the last block,
/// the addend of the product is added, and the result is rounded and stored; before it, the sums are kept as partial
/// sums.
#[derive(Clone, Copy)]
pub(super) struct Epilogue<'a, T> {
    /// `true` for the first and for the last block of terms.
    pub first: bool,
    pub last: bool,
    pub added: Added<'a, T>,
    /// The whole result.
    pub out: Shared<'a, T>,
    pub places: Places,
}

impl<T: VectorFloat> Epilogue<'_, T> {
    /// Runs the epilogue of a vector of sums. Its first `count` sums are those of row i from column j. Column j begins
    /// at `of_column` in the result, and `left` columns from there are in one block.
    ///
    /// # Safety
    /// `partial` is valid for reads and writes of a vector, unless the block is both the first and the last. The
    /// locations of these `count` columns are inside the result and the addend ([`Added::ToEach`] has one block of
    /// columns), and no other thread accesses these elements of the result.
    #[inline(always)]
    pub unsafe fn vector<S: Simd>(
        &self,
        simd: S,
        mut sum: S::F32s,
        partial: *mut f32,
        (i, j): (usize, usize),
        (of_column, left): (usize, usize),
        count: usize,
    ) {
        let at = i * self.places.row + of_column;
        // SAFETY: guaranteed by the caller.
        unsafe {
            if !self.first {
                sum = simd.add(simd.load_f32(partial), sum);
            }
            if !self.last {
                return simd.store_f32(sum, partial);
            }
            match self.added {
                Added::Nothing => {}
                Added::ToColumns(x) => sum = simd.add(sum, load_first(simd, x.as_ptr().add(j), count)),
                Added::ToRows(x) => sum = simd.add(sum, simd.splat(x[i].widen())),
                Added::ToEach(x) => sum = simd.add(sum, load_first(simd, x.as_ptr().add(at), count)),
            }
            if count <= left {
                return store_first(simd, sum, self.out.at(at), count);
            }
            // The columns are of several blocks.
            let mut all = [T::default(); 16];
            T::store(simd, sum, all.as_mut_ptr());
            let (mut done, mut len) = (0, left);
            while done < count {
                let to = self.out.at(i * self.places.row + self.places.of_column(j + done));
                std::ptr::copy_nonoverlapping(all.as_ptr().add(done), to, len);
                done += len;
                len = self.places.columns.min(count - done);
            }
        }
    }

    /// Prefetches where a tile is stored and, if it `takes_long`, the partial sums that are added to it. Of a tile that does
    /// not, only rows of the last block that are far apart: the hardware follows each alone.
    #[inline(always)]
    pub fn prefetch(
        &self,
        takes_long: bool,
        (rows, columns): (usize, usize),
        (partial, stride): (*mut f32, usize),
        (i, j): (usize, usize),
    ) {
        if takes_long && !(self.first && self.last) {
            for r in 0..rows {
                let first = partial.wrapping_add(r * stride);
                prefetch(first);
                prefetch(first.wrapping_add(columns - 1));
            }
        }
        if !self.last || !takes_long && self.places.row * size_of::<T>() < NEAR {
            return;
        }
        let of_column = self.places.of_column(j);
        for r in 0..rows {
            let first = self.out.at((i + r) * self.places.row + of_column);
            prefetch(first);
            prefetch(first.wrapping_add(columns - 1));
        }
    }

    /// Runs the epilogue of the first `rows` rows and `columns` columns of a tile whose first sum is that of row i and
    /// column j. Rows of partial sums are `stride` apart.
    ///
    /// # Safety
    /// As for [`vector`](Epilogue::vector), for each vector of the tile.
    #[inline(always)]
    pub unsafe fn tile<S: Simd>(
        &self,
        simd: S,
        tile: &AnyTile,
        (rows, columns): (usize, usize),
        (partial, stride): (*mut f32, usize),
        (i, j): (usize, usize),
    ) {
        // Partial sums have room for whole vectors.
        let whole = if self.last { columns == S::NR && columns <= self.places.left(j) } else { columns > S::LANES };
        if whole {
            // SAFETY: guaranteed by the caller.
            return unsafe { self.two_vectors(simd, &tile[..rows], (partial, stride), (i, j)) };
        }
        let mut at = 0;
        while at < columns {
            let column = (self.places.of_column(j + at), self.places.left(j + at));
            for (r, row) in tile[..rows].iter().enumerate() {
                let partial = partial.wrapping_add(r * stride + at);
                // SAFETY: a vector at `at` is inside the tile's row; the rest is guaranteed by the caller.
                unsafe {
                    let sum = simd.load_f32(row.as_ptr().add(at));
                    self.vector(simd, sum, partial, (i + r, j + at), column, S::LANES.min(columns - at));
                }
            }
            at += S::LANES;
        }
    }

    /// Runs the epilogue as [`tile`](Epilogue::tile) does, for rows of two whole vectors that are stored in one place.
    ///
    /// # Safety
    /// As for [`tile`](Epilogue::tile).
    #[inline(always)]
    unsafe fn two_vectors<S: Simd>(
        &self,
        simd: S,
        tile: &[[f32; MAX_NR]],
        (partial, stride): (*mut f32, usize),
        (i, j): (usize, usize),
    ) {
        // A loop for each case, so that all constants of the rounding stay in registers.
        macro_rules! each_row {
            ($r:ident, $to:expr, $stride:expr $(, $added:expr)?) => {
                for ($r, row) in tile.iter().enumerate() {
                    let mut sums = load_two(simd, row.as_ptr());
                    if !self.first {
                        sums = add_two(simd, load_two(simd, partial.wrapping_add($r * stride)), sums);
                    }
                    $( sums = add_two(simd, sums, $added); )?
                    store_two(simd, sums, $to.wrapping_add($r * $stride));
                }
            };
        }
        // SAFETY: guaranteed by the caller.
        unsafe {
            if !self.last {
                each_row!(r, partial, stride);
                return;
            }
            let (row, at) = (self.places.row, i * self.places.row + self.places.of_column(j));
            let out = self.out.at(at);
            match self.added {
                Added::Nothing => each_row!(r, out, row),
                Added::ToColumns(x) => {
                    let added = load_two(simd, x.as_ptr().add(j));
                    each_row!(r, out, row, added);
                }
                Added::ToRows(x) => each_row!(r, out, row, [simd.splat(x[i + r].widen()); 2]),
                Added::ToEach(x) => each_row!(r, out, row, load_two(simd, x.as_ptr().add(at + r * row))),
            }
        }
    }
}

/// Loads two vectors.
///
/// # Safety
/// `from` is valid for reads of two vectors.
#[inline(always)]
unsafe fn load_two<S: Simd, T: Lanes>(simd: S, from: *const T) -> [S::F32s; 2] {
    // SAFETY: guaranteed by the caller.
    unsafe { [T::load(simd, from), T::load(simd, from.add(S::LANES))] }
}

#[inline(always)]
fn add_two<S: Simd>(simd: S, a: [S::F32s; 2], b: [S::F32s; 2]) -> [S::F32s; 2] {
    [simd.add(a[0], b[0]), simd.add(a[1], b[1])]
}

/// Stores two vectors.
///
/// # Safety
/// `to` is valid for writes of two vectors.
#[inline(always)]
unsafe fn store_two<S: Simd, T: Lanes>(simd: S, v: [S::F32s; 2], to: *mut T) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        T::store(simd, v[0], to);
        T::store(simd, v[1], to.add(S::LANES));
    }
}
