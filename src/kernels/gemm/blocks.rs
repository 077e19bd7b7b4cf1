//! Products in blocks that fit into the caches, packed for the tiles.

use std::ops::Range;

use super::{
    Added, DEPTH, Layout, One, pack,
    scratch::{Scratch, with_scratch},
    tile::{self, Panel, TILE_WIDTH, Tile},
};
use crate::kernels::{
    simd::{self, Kernel, Lanes, Vector, Width},
    threads::{self, Shared},
};

/// Columns of the right operand that are packed together: with [`DEPTH`], half a MiB.
const COLUMNS: usize = 512;

/// Tiles of rows of the left operand that are packed together.
const TILES: usize = 16;

/// A whole product; `false` where there are no vectors.
pub(super) fn product<T: Lanes>(one: &One<T>, out: &mut [T]) -> bool {
    let width = simd::widest();
    if width == Width::One {
        return false;
    }
    let (m, k, n) = one.mkn;
    let work = one.terms.len() * m * k * n;
    let out = Shared::new(out);
    // SAFETY (of `Shared`): each region writes only the rows and columns that are its own.
    if n >= m {
        threads::split(n, TILE_WIDTH, work, |columns| region(width, one, 0..m, columns, out));
    } else {
        threads::split(m, TILES * tile::TILE_ROWS, work, |rows| region(width, one, rows, 0..n, out));
    }
    true
}

fn region<T: Lanes>(width: Width, one: &One<T>, rows: Range<usize>, columns: Range<usize>, out: Shared<'_, T>) {
    with_scratch(|[a, b, sums]| {
        let done = simd::run_with(width, Region { one, rows, columns, out, a, b, sums });
        assert!(done.is_ok(), "a width that the machine has");
    });
}

/// A whole product with vectors of one width, on one thread.
#[cfg(test)]
pub(super) fn with_width<T: Lanes>(width: Width, one: &One<T>, out: &mut [T]) {
    region(width, one, 0..one.mkn.0, 0..one.mkn.2, Shared::new(out));
}

/// A part of a product that one thread computes.
struct Region<'a, T> {
    one: &'a One<'a, T>,
    rows: Range<usize>,
    columns: Range<usize>,
    /// Of the whole product.
    out: Shared<'a, T>,
    a: &'a mut Scratch,
    b: &'a mut Scratch,
    sums: &'a mut Scratch,
}

/// A block of terms of the sums.
struct Block<'a, T> {
    a: &'a [T],
    b: &'a [T],
    terms: Range<usize>,
    first: bool,
    last: bool,
}

impl<T: Lanes> Kernel for Region<'_, T> {
    type Output = ();

    // SAFETY: everything read lies inside the operands, as `products` checked; everything written to scratch in the room
    // that was made for it; what is written to `out` are elements of this region.
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Region { one, rows, columns, out, a, b, sums } = self;
        let (m, k, n) = one.mkn;
        let (tile_rows, width) = (V::TILE.0, V::TILE.1 * V::LANES);
        let blocks = k.div_ceil(DEPTH) * one.terms.len();
        let mut eight: pack::Eight = [[0.0; DEPTH]; pack::STEP];
        let mut tile: Tile = [[0.0; TILE_WIDTH]; tile::TILE_ROWS];
        // A block's sums wait here for those of the next.
        let sums = if blocks > 1 { sums.room(rows.len() * COLUMNS).as_mut_ptr() } else { std::ptr::null_mut() };
        for j0 in columns.clone().step_by(COLUMNS) {
            let some = j0..(j0 + COLUMNS).min(columns.end);
            let terms = one.terms.iter().flat_map(|&term| (0..k).step_by(DEPTH).map(move |p| (term, p)));
            for (number, (term, p0)) in terms.enumerate() {
                let (left, right) = one.operands(term);
                let terms = p0..(p0 + DEPTH).min(k);
                let block = Block { a: left, b: right, terms, first: number == 0, last: number + 1 == blocks };
                let depth = block.terms.len();
                let room = depth.next_multiple_of(pack::STEP);
                let b = b.room(some.len().div_ceil(width) * width * room + 64).as_mut_ptr();
                for (panel, j) in some.clone().step_by(width).enumerate() {
                    let len = width.min(some.end - j);
                    // SAFETY: the columns j.. and rows p0.. are inside `right`; `b` has room for all panels.
                    unsafe {
                        let to = b.add(panel * width * room);
                        match one.layout {
                            Layout::NT => pack::across::<V, T>(
                                block.b.as_ptr().add(j * k + p0),
                                k,
                                len,
                                depth,
                                to,
                                width,
                                &mut eight,
                            ),
                            _ => pack::along::<V, T>(block.b.as_ptr().add(p0 * n + j), n, len, depth, to, width),
                        }
                    }
                }
                for i0 in rows.clone().step_by(TILES * tile_rows) {
                    let few = i0..(i0 + TILES * tile_rows).min(rows.end);
                    let a = a.room(few.len().div_ceil(tile_rows) * tile_rows * room + 64).as_mut_ptr();
                    for (panel, i) in few.clone().step_by(tile_rows).enumerate() {
                        let len = tile_rows.min(few.end - i);
                        // SAFETY: the rows i.. and columns p0.. are inside `left`; `a` has room for all panels.
                        unsafe {
                            let to = a.add(panel * tile_rows * room);
                            match one.layout {
                                Layout::TN => {
                                    pack::along::<V, T>(block.a.as_ptr().add(p0 * m + i), m, len, depth, to, tile_rows)
                                }
                                _ => pack::across::<V, T>(
                                    block.a.as_ptr().add(i * k + p0),
                                    k,
                                    len,
                                    depth,
                                    to,
                                    tile_rows,
                                    &mut eight,
                                ),
                            }
                        }
                    }
                    for (j_panel, j) in some.clone().step_by(width).enumerate() {
                        let len = width.min(some.end - j);
                        let panel = Panel { start: b.wrapping_add(j_panel * width * room), row: width, step: V::LANES };
                        for (i_panel, i) in few.clone().step_by(tile_rows).enumerate() {
                            let size = (tile_rows.min(few.end - i), len.div_ceil(V::LANES));
                            let start = a.wrapping_add(i_panel * tile_rows * room);
                            let a = Panel { start, row: tile_rows, step: 1 };
                            // SAFETY: both panels were packed above; rows i.. and columns j.. are this region's.
                            unsafe {
                                tile::tile::<V, _, _>(size, depth, a, panel, &mut tile);
                                let waiting = sums.wrapping_add((i - rows.start) * COLUMNS + (j - j0));
                                finish::<V, T>(&mut tile, (size.0, len), &block, waiting, one.added, (i, j), n, out);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// What becomes of a tile's sums: they are added to the blocks' before, and then wait for the next block or are rounded,
/// together with what is added to the product, and stored.
///
// SAFETY: the caller has the instructions of `V`; the tile's place is inside `out` and inside what is added; `waiting` has
// rows of COLUMNS, whole vectors, unless the block is both first and last.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
unsafe fn finish<V: Vector, T: Lanes>(
    tile: &mut Tile,
    (rows, len): (usize, usize),
    block: &Block<T>,
    waiting: *mut f32,
    added: Added<T>,
    (i, j): (usize, usize),
    n: usize,
    out: Shared<'_, T>,
) {
    for (r, row) in tile[..rows].iter_mut().enumerate() {
        let mut at = 0;
        while at < len {
            let some = V::LANES.min(len - at);
            let wait = waiting.wrapping_add(r * COLUMNS + at);
            // SAFETY: a vector at `at` is inside the tile's row and inside `waiting`; `some` elements are inside the others.
            unsafe {
                let sum = V::load_f32(row.as_ptr().add(at));
                settle(sum, (block.first, block.last), wait, added, (i + r, j + at, n), some, out);
            }
            at += V::LANES;
        }
    }
}

/// What becomes of a vector of a block's sums, whose first is that of row i and column j of n: it is added to what waits of
/// the blocks before the first, and waits itself before the last, or is rounded together with what is added to the product.
///
// SAFETY: the caller has the instructions of `V`; `waiting` is valid for a vector unless the block is both first and last;
// `some` elements from the place on are inside what is added and inside `out`, where they are the caller's own.
#[inline(always)]
pub(super) unsafe fn settle<V: Vector, T: Lanes>(
    mut sum: V,
    (first, last): (bool, bool),
    waiting: *mut f32,
    added: Added<T>,
    (i, j, n): (usize, usize, usize),
    some: usize,
    out: Shared<'_, T>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        if !first {
            sum = V::add(V::load_f32(waiting), sum);
        }
        if !last {
            return V::store_f32(sum, waiting);
        }
        match added {
            Added::Nothing => {}
            Added::ToColumns(x) => sum = V::add(sum, load_some(x.as_ptr().add(j), some)),
            Added::ToEach(x) => sum = V::add(sum, load_some(x.as_ptr().add(i * n + j), some)),
        }
        store_some(sum, out.at(i * n + j), some);
    }
}

/// The first `count` lanes of a vector from memory that holds no more.
///
// SAFETY: the caller has the instructions of `V`, and `from` is valid for `count` elements.
#[inline(always)]
pub(crate) unsafe fn load_some<V: Vector, T: Lanes>(from: *const T, count: usize) -> V {
    // SAFETY: the caller's promise; `all` has room for any vector.
    unsafe {
        if count == V::LANES {
            return T::load(from);
        }
        let mut all = [T::default(); 16];
        copy_some(from, all.as_mut_ptr(), count);
        T::load(all.as_ptr())
    }
}

/// The first `count` lanes of a vector to memory that has room for no more.
///
// SAFETY: the caller has the instructions of `V`, and `to` is valid for `count` elements.
#[inline(always)]
pub(crate) unsafe fn store_some<V: Vector, T: Lanes>(v: V, to: *mut T, count: usize) {
    // SAFETY: the caller's promise; `all` has room for any vector.
    unsafe {
        if count == V::LANES {
            return T::store(v, to);
        }
        let mut all = [T::default(); 16];
        T::store(v, all.as_mut_ptr());
        copy_some(all.as_ptr(), to, count);
    }
}

/// Copies fewer than 16 elements, by two copies of one size that may overlap: a call for so few would cost more.
///
// SAFETY: both are valid for `count` elements, and do not overlap.
#[inline(always)]
unsafe fn copy_some<T>(from: *const T, to: *mut T, count: usize) {
    macro_rules! sizes {
        ($($size:literal)*) => { $(
            if count >= $size {
                // SAFETY: the caller's promise, and `count` is at least the size and less than twice that.
                unsafe {
                    std::ptr::copy_nonoverlapping(from, to, $size);
                    std::ptr::copy_nonoverlapping(from.add(count - $size), to.add(count - $size), $size);
                }
                return;
            }
        )* };
    }
    sizes! { 8 4 2 1 }
}
