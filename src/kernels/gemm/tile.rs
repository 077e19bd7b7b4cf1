//! The innermost loops of a product: a tile of sums that stays in registers.

use crate::kernels::simd::Vector;

/// The largest tile of all vectors: rows, and f32 in a row.
pub(crate) const TILE_ROWS: usize = 8;
pub(crate) const TILE_WIDTH: usize = 32;

/// A tile after its sums were taken: rows of [`TILE_WIDTH`].
pub(crate) type Tile = [[f32; TILE_WIDTH]; TILE_ROWS];

/// Where the numbers of an operand are: of each term some, for the rows of a tile or for its vectors of columns.
pub(crate) trait Operand: Copy {
    type Term: Copy;
    /// What the numbers of term `p` have in common.
    // SAFETY: there is such a term.
    unsafe fn term(self, p: usize) -> Self::Term;
    /// The number of row `i`, or the first of vector `i`.
    fn at(self, term: Self::Term, i: usize) -> *const f32;
}

/// Numbers packed term by term, `row` of them for each; those of `i` are `step` apart.
#[derive(Clone, Copy)]
pub(crate) struct Panel {
    pub start: *const f32,
    pub row: usize,
    pub step: usize,
}

impl Operand for Panel {
    type Term = *const f32;

    // SAFETY: nothing is read.
    #[inline(always)]
    unsafe fn term(self, p: usize) -> *const f32 {
        self.start.wrapping_add(p * self.row)
    }

    #[inline(always)]
    fn at(self, term: *const f32, i: usize) -> *const f32 {
        term.wrapping_add(i * self.step)
    }
}

/// Numbers read where they lie: each from a start of its own, all at a term's offset from it.
#[derive(Clone, Copy)]
pub(crate) struct Windows<const N: usize> {
    pub starts: [*const f32; N],
    pub offsets: *const usize,
}

impl<const N: usize> Operand for Windows<N> {
    type Term = usize;

    // SAFETY: the caller's promise.
    #[inline(always)]
    unsafe fn term(self, p: usize) -> usize {
        // SAFETY: as above.
        unsafe { *self.offsets.add(p) }
    }

    #[inline(always)]
    fn at(self, term: usize, i: usize) -> *const f32 {
        self.starts[i].wrapping_add(term)
    }
}

/// The sums of `rows` rows and `vectors` vectors of columns: see [`sized`].
///
// SAFETY: as for `sized`; neither `rows` nor `vectors` is more than `V::TILE`.
#[inline(always)]
pub(crate) unsafe fn tile<V: Vector, A: Operand, B: Operand>(
    (rows, vectors): (usize, usize),
    depth: usize,
    a: A,
    b: B,
    to: &mut Tile,
) {
    macro_rules! sizes {
        ($(($rows:literal, $vectors:literal))*) => {
            match (rows, vectors) {
                // SAFETY: the caller's promise.
                $( ($rows, $vectors) if $rows <= V::TILE.0 => unsafe {
                    sized::<V, A, B, $rows, $vectors, TILE_WIDTH>(depth, a, b, to)
                }, )*
                _ => unreachable!("no such tile"),
            }
        };
    }
    sizes! { (1, 1) (2, 1) (3, 1) (4, 1) (5, 1) (6, 1) (7, 1) (8, 1) (1, 2) (2, 2) (3, 2) (4, 2) (5, 2) (6, 2) (7, 2) (8, 2) }
}

/// `to[r][c] = Σ a(p)[r] * b(p)[c]` over `depth` terms p, fused and in order, for R rows and C vectors of columns.
///
// SAFETY: the caller has the instructions of `V`; each of `depth` terms of `a` has R numbers, and each of `b` C vectors.
#[inline(always)]
pub(crate) unsafe fn sized<V: Vector, A: Operand, B: Operand, const R: usize, const C: usize, const WIDTH: usize>(
    depth: usize,
    a: A,
    b: B,
    to: &mut [[f32; WIDTH]; TILE_ROWS],
) {
    const { assert!(R <= TILE_ROWS && C * V::LANES <= WIDTH) };
    // SAFETY: the caller's promise; a row of the tile has room for C vectors.
    unsafe {
        let mut sums = [[V::splat(0.0); C]; R];
        for p in 0..depth {
            let (rows, columns) = (a.term(p), b.term(p));
            let columns: [V; C] = std::array::from_fn(|c| V::load_f32(b.at(columns, c)));
            for (r, sums) in sums.iter_mut().enumerate() {
                let factor = V::splat(*a.at(rows, r));
                for (sum, &column) in sums.iter_mut().zip(&columns) {
                    *sum = V::mul_add(factor, column, *sum);
                }
            }
        }
        for (sums, to) in sums.into_iter().zip(to) {
            for (c, sum) in sums.into_iter().enumerate() {
                V::store_f32(sum, to.as_mut_ptr().add(c * V::LANES));
            }
        }
    }
}
