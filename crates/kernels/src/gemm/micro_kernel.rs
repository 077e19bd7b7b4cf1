//! Micro-kernel: a tile of `MR x NR` sums that stays in registers over all terms of a block.

use super::blocking::{KC, MAX_MR, MAX_NR, MAX_ROWS};
use crate::simd::{Pairs, Part, Simd};

/// Tile in memory.
pub type Tile = [[f32; MAX_NR]; MAX_MR];

/// Tile of any packed operands in memory.
pub type AnyTile = [[f32; MAX_NR]; MAX_ROWS];

/// Initial tile.
pub const TILE: Tile = [[0.0; MAX_NR]; MAX_MR];

/// Initial tile of any packed operands.
pub const ANY_TILE: AnyTile = [[0.0; MAX_NR]; MAX_ROWS];

/// Location of a micro-kernel operand: for each term, the numbers for the rows of a tile or for its vectors of columns.
pub trait Source: Copy {
    type Term: Copy;
    /// `true` if the numbers are in one place, term by term.
    const IS_PACKED: bool;
    /// Returns the part of the address common to all numbers of term `p`.
    ///
    /// # Safety
    /// Term `p` exists.
    unsafe fn term(self, p: usize) -> Self::Term;
    /// Returns the address of the number of row `i`, or of the first number of vector `i`.
    fn at(self, term: Self::Term, i: usize) -> *const f32;
}

/// A panel: `row` numbers per term, with those of consecutive `i` being `step` apart.
#[derive(Clone, Copy)]
pub struct Panel {
    pub start: *const f32,
    pub row: usize,
    pub step: usize,
}

impl Source for Panel {
    type Term = *const f32;
    const IS_PACKED: bool = true;

    #[inline(always)]
    unsafe fn term(self, p: usize) -> *const f32 {
        self.start.wrapping_add(p * self.row)
    }

    #[inline(always)]
    fn at(self, term: *const f32, i: usize) -> *const f32 {
        term.wrapping_add(i * self.step)
    }
}

/// Numbers of an image, without im2col: row or vector `i` has its own start, and all of them are read at the offset of
/// a term.
#[derive(Clone, Copy)]
pub struct Windows<const N: usize> {
    pub starts: [*const f32; N],
    pub offsets: *const usize,
}

impl<const N: usize> Source for Windows<N> {
    type Term = usize;
    const IS_PACKED: bool = false;

    #[inline(always)]
    unsafe fn term(self, p: usize) -> usize {
        // SAFETY: there is an offset for each term.
        unsafe { *self.offsets.add(p) }
    }

    #[inline(always)]
    fn at(self, term: usize, i: usize) -> *const f32 {
        self.starts[i].wrapping_add(term)
    }
}

/// Content of a lane of an operand, and its multiplication.
pub trait Terms<S: Simd>: Copy {
    /// Number of terms in a lane.
    const IN_LANE: usize;
    /// Number of rows of a panel of the left operand.
    const MR: usize = S::MR;
    /// Number of terms that are packed and added up together.
    const BLOCK: usize = KC;
    /// Runs a part with the instructions of these terms, in one copy for all callers.
    fn apart<P: Part<S>>(self, simd: S, part: P) -> P::Output;
    /// Computes `c` plus the products of these terms, in order, rounding each sum.
    fn mul_add(self, simd: S, a: S::F32s, b: S::F32s, c: S::F32s) -> S::F32s;
    /// Computes the sums of the first `rows` rows and `columns` columns of two panels.
    ///
    /// # Safety
    /// `a` and `b` are panels of `depth` lanes of terms, of `MR` rows and `S::NR` columns.
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
        let Some((to, _)) = to.split_first_chunk_mut() else { unreachable!("a tile of the micro-kernel is smaller") };
        let a = Panel { start: a, row: S::MR, step: 1 };
        let b = Panel { start: b, row: S::NR, step: S::LANES };
        // SAFETY: guaranteed by the caller.
        unsafe { micro_kernel(simd, self, (rows, columns.div_ceil(S::LANES)), depth, a, b, to) };
    }
}

/// One f32 per lane.
#[derive(Clone, Copy)]
pub struct Wide;

impl<S: Simd> Terms<S> for Wide {
    const IN_LANE: usize = 1;
    #[inline(always)]
    fn apart<P: Part<S>>(self, simd: S, part: P) -> P::Output {
        simd.apart(part)
    }
    #[inline(always)]
    fn mul_add(self, simd: S, a: S::F32s, b: S::F32s, c: S::F32s) -> S::F32s {
        simd.mul_add(a, b, c)
    }
}

/// One pair of bf16 per lane.
#[derive(Clone, Copy)]
pub struct Paired<P>(pub P);

impl<S: Simd, P: Pairs<S>> Terms<S> for Paired<P> {
    const IN_LANE: usize = 2;
    #[inline(always)]
    fn apart<K: Part<S>>(self, simd: S, part: K) -> K::Output {
        self.0.apart(simd, part)
    }
    #[inline(always)]
    fn mul_add(self, _: S, a: S::F32s, b: S::F32s, c: S::F32s) -> S::F32s {
        self.0.mul_add_pairs(a, b, c)
    }
}

/// Computes the sums of `rows` rows and `vectors` vectors of columns; see [`micro_kernel_of`].
///
/// # Safety
/// `rows` is at most `S::MR` and `vectors` at most 2. Each of `depth` terms of `a` has `rows` numbers, and each term of
/// `b` has `vectors` vectors that are valid for reads.
#[inline(always)]
pub unsafe fn micro_kernel<S: Simd, M: Terms<S>, A: Source, B: Source>(
    simd: S,
    terms: M,
    (rows, vectors): (usize, usize),
    depth: usize,
    a: A,
    b: B,
    to: &mut Tile,
) {
    macro_rules! sizes {
        ($(($rows:literal, $vectors:literal))*) => {
            match (rows, vectors) {
                // SAFETY: guaranteed by the caller.
                $( ($rows, $vectors) if $rows <= S::MR => unsafe {
                    micro_kernel_of::<S, M, A, B, $rows, $vectors, MAX_NR>(simd, terms, depth, a, b, to)
                }, )*
                _ => unreachable!("no such tile"),
            }
        };
    }
    sizes! { (1, 1) (2, 1) (3, 1) (4, 1) (5, 1) (6, 1) (7, 1) (8, 1) (1, 2) (2, 2) (3, 2) (4, 2) (5, 2) (6, 2) (7, 2) (8, 2) }
}

/// Adds the products of term `p` to the sums.
///
/// # Safety
/// The term of `a` has R numbers, and that of `b` has C vectors that are valid for reads.
#[inline(always)]
unsafe fn add_term<S: Simd, M: Terms<S>, A: Source, B: Source, const R: usize, const C: usize>(
    simd: S,
    terms: M,
    p: usize,
    (a, b): (A, B),
    sums: &mut [[S::F32s; C]; R],
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let (rows, columns) = (a.term(p), b.term(p));
        let mut vectors = [simd.splat(0.0); C];
        for c in 0..C {
            vectors[c] = simd.load_f32(b.at(columns, c));
        }
        for r in 0..R {
            let factor = simd.splat(*a.at(rows, r));
            for c in 0..C {
                sums[r][c] = terms.mul_add(simd, factor, vectors[c], sums[r][c]);
            }
        }
    }
}

/// Computes `to[r][c] = Σ a(p)[r] * b(p)[c]` over `depth` lanes p of terms, fused and in order, for R rows and C
/// vectors of columns.
///
/// # Safety
/// Each of `depth` terms of `a` has R numbers, and each term of `b` has C vectors that are valid for reads.
// Iterators and closures are inlined only if all parts of the crate are optimized together, which incremental builds
// and `lto = "off"` do not do; without that, this took fifteen times as long.
#[inline(always)]
pub unsafe fn micro_kernel_of<
    S: Simd,
    M: Terms<S>,
    A: Source,
    B: Source,
    const R: usize,
    const C: usize,
    const WIDTH: usize,
>(
    simd: S,
    terms: M,
    depth: usize,
    a: A,
    b: B,
    to: &mut [[f32; WIDTH]; MAX_MR],
) {
    const { assert!(R <= MAX_MR && C * S::LANES <= WIDTH) };
    // SAFETY: guaranteed by the caller; a row of the tile has room for C vectors.
    unsafe {
        let mut sums = [[simd.splat(0.0); C]; R];
        let mut p = 0;
        // Four terms of the whole tile between two tests for the end: processors foresee the end of a loop of few rounds.
        if R == S::MR && C == 2 && M::IN_LANE == 1 && A::IS_PACKED && B::IS_PACKED {
            while p + 4 <= depth {
                add_term(simd, terms, p, (a, b), &mut sums);
                add_term(simd, terms, p + 1, (a, b), &mut sums);
                add_term(simd, terms, p + 2, (a, b), &mut sums);
                add_term(simd, terms, p + 3, (a, b), &mut sums);
                p += 4;
            }
        }
        while p < depth {
            add_term(simd, terms, p, (a, b), &mut sums);
            p += 1;
        }
        for r in 0..R {
            for c in 0..C {
                simd.store_f32(sums[r][c], to[r].as_mut_ptr().add(c * S::LANES));
            }
        }
    }
}
