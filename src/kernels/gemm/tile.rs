//! The innermost loops of a product: a tile of sums that stays in registers.

use crate::kernels::simd::Vector;

/// The largest tile of all vectors: rows, and f32 in a row.
pub(crate) const TILE_ROWS: usize = 8;
pub(crate) const TILE_WIDTH: usize = 32;

/// A tile after its sums were taken: rows of [`TILE_WIDTH`].
pub(crate) type Tile = [[f32; TILE_WIDTH]; TILE_ROWS];

/// Where the rows of the right operand are.
pub(crate) trait Rows: Copy {
    /// The start of row `p`.
    fn row(self, p: usize) -> *const f32;
}

/// Rows that follow one another.
#[derive(Clone, Copy)]
pub(crate) struct Panel {
    pub start: *const f32,
    pub width: usize,
}

impl Rows for Panel {
    #[inline(always)]
    fn row(self, p: usize) -> *const f32 {
        self.start.wrapping_add(p * self.width)
    }
}

/// Rows that may overlap: windows on one piece of memory.
#[derive(Clone, Copy)]
pub(crate) struct Windows<'a> {
    pub start: *const f32,
    pub offsets: &'a [usize],
}

impl Rows for Windows<'_> {
    #[inline(always)]
    fn row(self, p: usize) -> *const f32 {
        self.start.wrapping_add(self.offsets[p])
    }
}

/// `to[r][c] = Σ a[p * R + r] * row(p)[c]` over `depth` terms p, fused and in order, for `rows` rows and `vectors` vectors
/// of columns; R is the number of rows of a whole tile.
///
// SAFETY: the caller has the instructions of `V`, `a` has `depth` times R numbers, each of `depth` rows of `b` has `vectors`
// vectors, and neither `rows` nor `vectors` is more than `V::TILE`.
#[inline(always)]
pub(crate) unsafe fn tile<V: Vector, B: Rows>(
    (rows, vectors): (usize, usize),
    depth: usize,
    a: *const f32,
    b: B,
    to: &mut Tile,
) {
    macro_rules! sizes {
        ($(($rows:literal, $vectors:literal))*) => {
            match (rows, vectors) {
                // SAFETY: the caller's promise.
                $( ($rows, $vectors) => unsafe { sized::<V, B, $rows, $vectors>(depth, a, b, to) }, )*
                _ => unreachable!("no such tile"),
            }
        };
    }
    sizes! { (1, 1) (2, 1) (3, 1) (4, 1) (5, 1) (6, 1) (7, 1) (8, 1) (1, 2) (2, 2) (3, 2) (4, 2) (5, 2) (6, 2) (7, 2) (8, 2) }
}

// SAFETY: as `tile`.
#[inline(always)]
unsafe fn sized<V: Vector, B: Rows, const R: usize, const C: usize>(
    depth: usize,
    mut a: *const f32,
    b: B,
    to: &mut Tile,
) {
    const { assert!(R <= TILE_ROWS && C * V::LANES <= TILE_WIDTH) };
    if R > V::TILE.0 || C > V::TILE.1 {
        unreachable!("no such tile");
    }
    // SAFETY: the caller's promise; a row of the tile has room for C vectors.
    unsafe {
        let mut sums = [[V::splat(0.0); C]; R];
        for p in 0..depth {
            let row = b.row(p);
            let columns: [V; C] = std::array::from_fn(|c| V::load_f32(row.add(c * V::LANES)));
            for (r, sums) in sums.iter_mut().enumerate() {
                let factor = V::splat(*a.add(r));
                for (sum, &column) in sums.iter_mut().zip(&columns) {
                    *sum = V::mul_add(factor, column, *sum);
                }
            }
            a = a.add(V::TILE.0);
        }
        for (sums, to) in sums.into_iter().zip(to) {
            for (c, sum) in sums.into_iter().enumerate() {
                V::store_f32(sum, to.as_mut_ptr().add(c * V::LANES));
            }
        }
    }
}
