//! Copies of operands in the order in which tiles read them, widened to f32.

use super::blocks::load_some;
use crate::kernels::simd::{Lanes, Vector};

/// Terms that [`across`] transposes at a time; packed panels have room for a multiple of so many.
pub(crate) const STEP: usize = 8;

/// Packs a panel whose numbers follow one another in memory: `to[p * width + i] = from[p * row + i]` for `len` numbers i,
/// and 0 for those up to `width`, over `depth` rows p.
///
// SAFETY: the caller has the instructions of `V`; `from` is valid for all of that, and `to` for `depth * width` numbers and
// the rest of a vector.
#[inline(always)]
pub(crate) unsafe fn along<V: Vector, T: Lanes>(
    from: *const T,
    row: usize,
    len: usize,
    depth: usize,
    to: *mut f32,
    width: usize,
) {
    let whole = len == width && width.is_multiple_of(V::LANES);
    let mut rest = [T::default(); super::tile::TILE_WIDTH];
    for p in 0..depth {
        // SAFETY: the caller's promise; what does not fill vectors is read by way of `rest`. A store may reach into the
        // next row, which is written after it.
        unsafe {
            let mut from = from.add(p * row);
            if !whole {
                std::ptr::copy_nonoverlapping(from, rest.as_mut_ptr(), len);
                from = rest.as_ptr();
            }
            let mut at = 0;
            while at < width {
                V::store_f32(T::load(from.add(at)), to.add(p * width + at));
                at += V::LANES;
            }
        }
    }
}

/// Packs a panel whose numbers are `row` apart in memory: `to[p * width + i] = from[i * row + p]` for `len` numbers i, and
/// 0 for those up to `width`, over `depth` terms p. `rows` is memory to work in.
///
// SAFETY: the caller has the instructions of `V`; `from` is valid for all of that, `to` for `width` times `depth` rounded up
// to `STEP`, and `STEP` numbers more.
#[inline(always)]
pub(crate) unsafe fn across<V: Vector, T: Lanes>(
    from: *const T,
    row: usize,
    len: usize,
    depth: usize,
    to: *mut f32,
    width: usize,
    rows: &mut Eight,
) {
    let mut first = 0;
    while first < width {
        for (i, wide) in rows.iter_mut().enumerate() {
            if first + i < len {
                // SAFETY: row `first + i` is one of the caller's, and has `depth` numbers; `wide` has room for whole vectors.
                unsafe { widen::<V, T>(from.add((first + i) * row), depth, wide.as_mut_ptr()) };
            } else {
                wide[..depth].fill(0.0);
            }
        }
        // SAFETY: `to` has room for whole steps, and rows[..] have `DEPTH`, a multiple of `STEP`. Where `width` is no multiple
        // of it, a store reaches into the next term, which is written after it.
        unsafe {
            let mut p = 0;
            while p < depth {
                V::transpose(rows[0].as_ptr().add(p), super::DEPTH, to.add(p * width + first), width);
                p += STEP;
            }
        }
        first += STEP;
    }
}

/// Rows that [`across`] transposes together.
pub(crate) type Eight = [[f32; super::DEPTH]; STEP];

/// Widens `len` numbers.
///
// SAFETY: the caller has the instructions of `V`; `from` is valid for `len` numbers, and `to` for these in whole vectors.
#[inline(always)]
pub(crate) unsafe fn widen<V: Vector, T: Lanes>(from: *const T, len: usize, to: *mut f32) {
    let mut at = 0;
    // SAFETY: the caller's promise.
    unsafe {
        while at + V::LANES <= len {
            V::store_f32(T::load(from.add(at)), to.add(at));
            at += V::LANES;
        }
        if at < len {
            V::store_f32(load_some(from.add(at), len - at), to.add(at));
        }
    }
}
