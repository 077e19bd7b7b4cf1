//! A right operand whose panels are packed once for many products.

use std::sync::OnceLock;

use super::{
    blocking::{KC, mc, parts},
    epilogue::Epilogue,
    factors::Places,
    loops::macro_kernel,
    micro_kernel::Terms,
    pack::{Matrix, SLACK, WHOLE, pack_wide, packed_len, panel_len},
    pairs::{ByWay, Multiply, Ways, WaysKernel, are_exact, are_normal},
    product::{Added, Layout},
    tiles,
};
use crate::{
    amx,
    float::VectorFloat,
    memory::{Line, Pooled, Scratch, with_scratch},
    simd,
    simd::{Simd, SizeRange, Width},
    threads::Shared,
};

/// A right operand packed for the fastest way to multiply it, and in f32 once a product requires it.
pub struct Panels<'a, T> {
    width: Width,
    amx: bool,
    right: Right<'a, T>,
    packed: Packing,
    wide: OnceLock<Packing>,
}

/// A right operand `k x n`, stored as `n x k` if the layout is transposed.
#[derive(Clone, Copy)]
struct Right<'a, T> {
    layout: Layout,
    kn: (usize, usize),
    b: &'a [T],
    /// Number of terms of a block.
    block: usize,
}

/// Panels of all columns for the first block of terms, then those for the next.
struct Packing {
    lines: Pooled<Line>,
    /// Size range of each block of terms if its lanes hold pairs, else empty.
    sizes: Vec<SizeRange>,
}

impl Packing {
    /// Returns the panels of some terms, which begin a block.
    #[inline(always)]
    fn block<S: Simd>(&self, first: usize, in_lane: usize, n: usize) -> &[f32] {
        &Line::numbers(&self.lines)[panels_len(S::NR, first / in_lane, n)..]
    }
}

impl<'a, T: Multiply> Panels<'a, T> {
    /// Packs `b` as [`Matrix::right`] reads it; `None` if there are no vectors.
    pub fn new(width: Width, layout: Layout, kn: (usize, usize), b: &'a [T]) -> Option<Self> {
        let amx = amx::uses_amx() && T::HAS_TILES;
        let right = Right { layout, kn, b, block: if amx { tiles::BLOCK } else { KC } };
        let packed = T::run(width, amx, right).ok()?;
        Some(Panels { width, amx, right, packed, wide: OnceLock::new() })
    }

    /// Computes `out = a · b`, plus the addend. Row i of `a` consists of the `k` numbers from `i * stride`. There are
    /// rows, columns and terms.
    pub fn multiply(&self, a: &[T], stride: usize, added: Added<f32>, out: &mut [f32]) {
        with_scratch(|[left, partial]| {
            let done = T::run(self.width, self.amx, Multiplication { b: self, a, stride, added, out, left, partial });
            assert!(done.is_ok(), "a width that the machine has");
        });
    }

    /// Returns the panels in f32.
    fn wide(&self) -> &Packing {
        if self.packed.sizes.is_empty() {
            return &self.packed;
        }
        self.wide.get_or_init(|| {
            let packed = simd::run_with(self.width, ByWay::new(self.right));
            packed.unwrap_or_else(|_| unreachable!("a width that the machine has"))
        })
    }
}

/// Returns the number of elements of all panels of a matrix `k x n`.
fn panels_len(width: usize, k: usize, n: usize) -> usize {
    n.div_ceil(width) * panel_len(width, k)
}

impl<T: VectorFloat> WaysKernel<T> for Right<'_, T> {
    type Output = Packing;

    #[inline(always)]
    fn run<S: Simd, W: Ways<S, T>>(self, simd: S, ways: W) -> Packing {
        let Right { layout, kn: (k, n), b, block } = self;
        let in_lane = W::Terms::IN_LANE;
        assert!(block.is_multiple_of(2 * WHOLE));
        let mut lines = Pooled::uninit(Line::count(panels_len(S::NR, k.div_ceil(in_lane), n) + SLACK));
        let to = Line::numbers_mut(&mut lines);
        let mut sizes = Vec::new();
        for terms in parts(0..k, block).filter(|_| n > 0) {
            let to = &mut to[panels_len(S::NR, terms.start / in_lane, n)..];
            let b = Matrix::right(layout, (k, n), b);
            match ways.pack(simd, b, 0..n, terms.clone(), S::NR, to) {
                Some(of_block) => sizes.push(of_block),
                None => pack_wide(simd, b, 0..n, terms, S::NR, to),
            }
        }
        Packing { lines, sizes }
    }
}

struct Multiplication<'a, T> {
    b: &'a Panels<'a, T>,
    a: &'a [T],
    stride: usize,
    added: Added<'a, f32>,
    out: &'a mut [f32],
    /// Packed left operand.
    left: &'a mut Scratch,
    /// Sums of the blocks of terms so far.
    partial: &'a mut Scratch,
}

impl<T: Multiply> WaysKernel<T> for Multiplication<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, W: Ways<S, T>>(self, simd: S, ways: W) {
        let Multiplication { b, a, stride, added, out, left, partial } = self;
        let (k, n) = b.right.kn;
        let rows = out.len() / n;
        added.check(1, (rows, n));
        assert!(out.len() == rows * n && (rows - 1) * stride + k <= a.len(), "each row is inside its slice");
        let (out, places) = (Shared::new(out), Places::rows_of(n));
        let row = n.next_multiple_of(S::NR);
        for some in parts(0..rows, mc::<S>()) {
            let partial =
                if k > b.right.block { partial.uninit(some.len() * row).as_mut_ptr() } else { std::ptr::null_mut() };
            for (block, terms) in parts(0..k, b.right.block).enumerate() {
                let (depth, first) = (terms.len(), terms.start);
                let epilogue = Epilogue { first: first == 0, last: terms.end == k, added, out, places };
                let from = Matrix::new(a, false, stride);
                let room = |rows| packed_len(some.len(), rows, depth);
                let a = left.uninit(room(S::MR).max(room(W::Terms::MR)));
                let mut exact = false;
                if let Some(b_sizes) = b.packed.sizes.get(block).filter(|b_sizes| are_normal(b_sizes))
                    && let Some(a_sizes) = ways.pack_left(simd, from, some.clone(), terms.clone(), a)
                {
                    exact = are_exact(a_sizes, *b_sizes);
                }
                // SAFETY: the operands were packed for these rows and terms and for all columns; the rows are inside
                // the result, which belongs to this call; `partial` has a row for each row unless there is one block.
                unsafe {
                    if exact {
                        let in_lane = W::Terms::IN_LANE;
                        let b = b.packed.block::<S>(first, in_lane, n);
                        let a = (&*a, some.clone());
                        macro_kernel(
                            simd,
                            ways.terms(),
                            depth.div_ceil(in_lane),
                            a,
                            (b, 0..n),
                            &epilogue,
                            (partial, row),
                        );
                        continue;
                    }
                    pack_wide(simd, from, some.clone(), terms, S::MR, a);
                    let b = b.wide().block::<S>(first, 1, n);
                    macro_kernel(simd, ways.wide(), depth, (a, some.clone()), (b, 0..n), &epilogue, (partial, row));
                }
            }
        }
    }
}
