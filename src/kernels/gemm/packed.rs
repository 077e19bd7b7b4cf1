//! A right operand that is packed once for many products, as the weight of a recurrent layer at every step.

use super::{
    DEPTH, Gemm, Layout, pack,
    portable::Multiplied,
    scratch::Line,
    tile::{self, Panel, TILE_WIDTH, Tile},
};
use crate::{
    dtype::Real,
    kernels::{
        buffers::{Item, Lent, lend, room},
        simd::{self, Kernel, Lanes, Vector, Width},
    },
};

/// A matrix `k x n`, widened and in the order in which products read it.
///
/// Its products are sums in the order of all products (see [`gemm`](super)), also those of few rows, and are not rounded.
pub(crate) struct Packed<T: Gemm> {
    k: usize,
    n: usize,
    kept: Kept<T::Wide>,
}

enum Kept<R: Item> {
    Panels(Panels),
    /// Where there are no vectors, and for f64.
    Rows(Lent<R>),
}

impl<T: Gemm<Wide: Real>> Packed<T> {
    /// From `b`, which is stored as `n x k` where the layout says that it is transposed.
    pub fn new(layout: Layout, (k, n): (usize, usize), b: &[T]) -> Self {
        assert!(layout != Layout::TN && b.len() == k * n, "a right operand");
        let kept = match T::panels(simd::widest(), layout, (k, n), b) {
            Some(panels) => Kept::Panels(panels),
            None => {
                let at = |p: usize, j: usize| if layout == Layout::NT { j * k + p } else { p * n + j };
                let mut rows = room(k * n);
                rows.extend((0..k * n).map(|i| b[at(i / n, i % n)].widen()));
                Kept::Rows(rows.into())
            }
        };
        Packed { k, n, kept }
    }

    /// `out = a · b`, where row i of `a` are `k` numbers from `i * stride` on.
    pub fn multiply(&self, a: &[T::Wide], stride: usize, out: &mut [T::Wide]) {
        let (k, n) = (self.k, self.n);
        let rows = out.len() / n.max(1);
        assert!(out.len() == rows * n, "whole rows");
        if out.is_empty() {
            return;
        }
        assert!((rows - 1) * stride + k <= a.len(), "each row lies inside its slice");
        match &self.kept {
            Kept::Panels(panels) => T::by_panels(panels, a, stride, out),
            Kept::Rows(b) => {
                let mut together = lend(rows * k);
                for (i, row) in together.chunks_exact_mut(k.max(1)).enumerate() {
                    row.copy_from_slice(&a[i * stride..][..k]);
                }
                out.fill(T::Wide::default());
                Multiplied::add_product(Layout::NN, (rows, k, n), &together, b, out);
            }
        }
    }
}

/// Panels of as many columns as a tile has; [`DEPTH`] terms of all of them, then the next.
pub(crate) struct Panels {
    width: Width,
    k: usize,
    n: usize,
    lines: Lent<Line>,
}

impl Panels {
    /// `None` where there are no vectors.
    pub fn new<T: Lanes>(width: Width, layout: Layout, (k, n): (usize, usize), b: &[T]) -> Option<Self> {
        let lines = simd::run_with(width, Packing { layout, k, n, b }).ok()?;
        Some(Panels { width, k, n, lines })
    }

    pub fn multiply(&self, a: &[f32], stride: usize, out: &mut [f32]) {
        let done = simd::run_with(self.width, Product { b: self, a, stride, out });
        assert!(done.is_ok(), "a width that the machine has");
    }
}

/// The blocks of terms: where each begins, how many it has, and for how many there is room.
fn blocks(k: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..k).step_by(DEPTH).map(move |p| {
        let depth = DEPTH.min(k - p);
        (p, depth, depth.next_multiple_of(pack::STEP))
    })
}

struct Packing<'a, T> {
    layout: Layout,
    k: usize,
    n: usize,
    b: &'a [T],
}

impl<T: Lanes> Kernel for Packing<'_, T> {
    type Output = Lent<Line>;

    // SAFETY: everything read lies inside `b`, which has `k * n` numbers, everything written in the room that was made.
    #[inline(always)]
    unsafe fn run<V: Vector>(self) -> Lent<Line> {
        let Packing { layout, k, n, b } = self;
        assert!(b.len() == k * n);
        let width = V::TILE.1 * V::LANES;
        let columns = n.next_multiple_of(width);
        let mut lines = lend(Line::count(columns * k.next_multiple_of(pack::STEP) + 64));
        let to = Line::numbers_mut(&mut lines).as_mut_ptr();
        let mut eight: pack::Eight = [[0.0; DEPTH]; pack::STEP];
        for (p, depth, room) in blocks(k) {
            for j in (0..n).step_by(width) {
                let len = width.min(n - j);
                // SAFETY: columns j.. and rows p.. are inside `b`, and their panel has its place inside `to`.
                unsafe {
                    let to = to.add(p * columns + j * room);
                    match layout {
                        Layout::NT => {
                            pack::across::<V, T>(b.as_ptr().add(j * k + p), k, len, depth, to, width, &mut eight)
                        }
                        _ => pack::along::<V, T>(b.as_ptr().add(p * n + j), n, len, depth, to, width),
                    }
                }
            }
        }
        lines
    }
}

struct Product<'a> {
    b: &'a Panels,
    a: &'a [f32],
    stride: usize,
    out: &'a mut [f32],
}

impl Kernel for Product<'_> {
    type Output = ();

    // SAFETY: the rows of `a` lie inside their slice, as is asserted; the panels were packed for these vectors.
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Product { b, a, stride, out } = self;
        let (k, n) = (b.k, b.n);
        let (tile_rows, width) = (V::TILE.0, V::TILE.1 * V::LANES);
        let (rows, columns) = (out.len() / n, n.next_multiple_of(width));
        assert!((rows - 1) * stride + k <= a.len());
        let numbers = Line::numbers(&b.lines);
        assert!(numbers.len() >= columns * k.next_multiple_of(pack::STEP));
        if k == 0 {
            return out.fill(0.0);
        }
        let start = numbers.as_ptr();
        let mut tile: Tile = [[0.0; TILE_WIDTH]; tile::TILE_ROWS];
        for (p, depth, room) in blocks(k) {
            for j in (0..n).step_by(width) {
                let len = width.min(n - j);
                let panel = Panel { start: start.wrapping_add(p * columns + j * room), row: width, step: V::LANES };
                for i in (0..rows).step_by(tile_rows) {
                    let size = (tile_rows.min(rows - i), len.div_ceil(V::LANES));
                    // Rows of `a` are read where they lie: so few are not worth a copy.
                    let a = Panel { start: a.as_ptr().wrapping_add(i * stride + p), row: 1, step: stride };
                    // SAFETY: `depth` numbers from p on of the rows i.. are inside `a`, and the panel is packed.
                    unsafe { tile::tile::<V, _, _>(size, depth, a, panel, &mut tile) };
                    for (r, sums) in tile[..size.0].iter().enumerate() {
                        let to = &mut out[(i + r) * n + j..][..len];
                        match p {
                            0 => to.copy_from_slice(&sums[..len]),
                            _ => to.iter_mut().zip(sums).for_each(|(to, sum)| *to += sum),
                        }
                    }
                }
            }
        }
    }
}
