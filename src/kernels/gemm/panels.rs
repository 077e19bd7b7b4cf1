//! A right operand whose panels are packed once for many products.

use super::{
    blocking::{KC, parts},
    micro_kernel::{Panel, TILE, Wide, micro_kernel},
    pack::{Matrix, ROWS, Rows, SLACK, STEP, pack_panels, panel_len},
    product::Layout,
};
use crate::kernels::{
    float::VectorFloat,
    memory::{Line, Pooled},
    simd::{self, Kernel, Simd, Width},
};

/// The panels of all columns for the first [`KC`] terms, then those for the next.
pub(crate) struct Panels {
    width: Width,
    k: usize,
    n: usize,
    lines: Pooled<Line>,
}

impl Panels {
    /// Packs `b` as [`Matrix::right`] reads it; `None` where there are no vectors.
    pub fn new<T: VectorFloat>(width: Width, layout: Layout, (k, n): (usize, usize), b: &[T]) -> Option<Self> {
        let lines = simd::run_with(width, Packing { layout, k, n, b }).ok()?;
        Some(Panels { width, k, n, lines })
    }

    /// `out = a · b`, where row i of `a` are `k` numbers from `i * stride` on. There are rows and columns.
    pub fn multiply(&self, a: &[f32], stride: usize, out: &mut [f32]) {
        let done = simd::run_with(self.width, Multiplication { b: self, a, stride, out });
        assert!(done.is_ok(), "a width that the machine has");
    }
}

/// Numbers of all panels of a matrix `k x n`.
fn panels_len(width: usize, k: usize, n: usize) -> usize {
    n.div_ceil(width) * panel_len(width, k)
}

struct Packing<'a, T> {
    layout: Layout,
    k: usize,
    n: usize,
    b: &'a [T],
}

impl<T: VectorFloat> Kernel for Packing<'_, T> {
    type Output = Pooled<Line>;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Pooled<Line> {
        let Packing { layout, k, n, b } = self;
        const { assert!(KC.is_multiple_of(STEP)) };
        let mut lines = Pooled::uninit(Line::count(panels_len(S::NR, k, n) + SLACK));
        let to = Line::numbers_mut(&mut lines);
        let mut space: Rows = ROWS;
        for terms in parts(0..k, KC).filter(|_| n > 0) {
            let to = &mut to[panels_len(S::NR, terms.start, n)..];
            let b = Matrix::right(layout, (k, n), b);
            pack_panels(simd, &mut Wide, b, 0..n, terms, S::NR, to, &mut space);
        }
        lines
    }
}

struct Multiplication<'a> {
    b: &'a Panels,
    a: &'a [f32],
    stride: usize,
    out: &'a mut [f32],
}

impl Kernel for Multiplication<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Multiplication { b, a, stride, out } = self;
        let (k, n) = (b.k, b.n);
        let rows = out.len() / n;
        assert!((rows - 1) * stride + k <= a.len(), "each row is inside its slice");
        if k == 0 {
            return out.fill(0.0);
        }
        let panels = Line::numbers(&b.lines);
        let mut tile = TILE;
        for terms in parts(0..k, KC) {
            let (depth, first) = (terms.len(), terms.start == 0);
            let panels = panels[panels_len(S::NR, terms.start, n)..].chunks_exact(panel_len(S::NR, depth));
            for (columns, panel) in parts(0..n, S::NR).zip(panels) {
                let panel = Panel { start: panel.as_ptr(), row: S::NR, step: S::LANES };
                for some in parts(0..rows, S::MR) {
                    let size = (some.len(), columns.len().div_ceil(S::LANES));
                    // Rows of `a` are read in place: so few are not worth packing.
                    let a = &a[some.start * stride + terms.start..];
                    let a = Panel { start: a.as_ptr(), row: 1, step: stride };
                    // SAFETY: `depth` numbers of these rows are inside `a`, as was asserted, and the panel is packed.
                    unsafe { micro_kernel(simd, Wide, size, depth, a, panel, &mut tile) };
                    for (i, sums) in some.zip(&tile) {
                        let to = &mut out[i * n + columns.start..][..columns.len()];
                        match first {
                            true => to.copy_from_slice(&sums[..columns.len()]),
                            false => to.iter_mut().zip(sums).for_each(|(to, sum)| *to += sum),
                        }
                    }
                }
            }
        }
    }
}
