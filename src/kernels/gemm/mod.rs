//! Matrix products with f32 accumulation (f64 for f64), rounded once together with what is added to them.
//!
//! 16-bit operands are widened while they are packed for the registers. Every element is the same sum in the same order
//! whatever the tile, the vectors' width or the number of threads: products are fused and added one after the other
//! within blocks of [`DEPTH`] terms, and the blocks' sums one after the other. Products of rows with few rows, or with one,
//! take another order ([`dot`]). Where there are no vectors, and for f64, `matrixmultiply` multiplies widened copies.

pub(super) mod blocks;
pub(super) mod dot;
pub(super) mod pack;
mod packed;
pub(super) mod portable;
mod rows;
pub(super) mod scratch;
pub(super) mod tile;

use half::{bf16, f16};

pub(crate) use packed::Packed;
use packed::Panels;

use super::{simd::Width, threads};
use crate::dtype::Float;

/// Terms of a sum that are added up before they are added to the others.
pub(super) const DEPTH: usize = 256;

/// Rows of a product up to which its right operand is read once and not packed.
const FEW: usize = 8;

/// Rows of each operand that are multiplied together where one of them is read once.
const TOGETHER: usize = 4;

/// Runs code with two numbers, each from 1 to [`TOGETHER`], as constants of these names.
macro_rules! few {
    ($sizes:expr, $first:ident, $second:ident => $body:block) => {
        few!(@ $sizes, $first, $second, $body,
            (1, 1) (1, 2) (1, 3) (1, 4) (2, 1) (2, 2) (2, 3) (2, 4) (3, 1) (3, 2) (3, 3) (3, 4) (4, 1) (4, 2) (4, 3) (4, 4))
    };
    (@ $sizes:expr, $first:ident, $second:ident, $body:block, $(($a:literal, $b:literal))*) => {
        match $sizes {
            $( ($a, $b) => {
                const $first: usize = $a;
                const $second: usize = $b;
                $body
            } )*
            _ => unreachable!("no more than TOGETHER"),
        }
    };
}
use few;

/// Which of the operands is transposed before the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// `a · b`
    NN,
    /// `a · bᵀ`
    NT,
    /// `aᵀ · b`
    TN,
}

/// What is added to a product of `m x n` before it is rounded.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Added<'a, T> {
    Nothing,
    /// n numbers, one for each column.
    ToColumns(&'a [T]),
    /// As many numbers as the product has.
    ToEach(&'a [T]),
}

/// Several products of one size: result i is the sum over `terms[i]` of the products of those matrices of `a` and `b`,
/// each `m x k` times `k x n` after the layout's transposition, all contiguous.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Products<'a, T> {
    pub layout: Layout,
    pub mkn: (usize, usize, usize),
    pub a: &'a [T],
    pub b: &'a [T],
    pub terms: &'a [Vec<(usize, usize)>],
    /// To all results, which follow one another in [`ToEach`](Added::ToEach).
    pub added: Added<'a, T>,
}

/// One result of [`Products`].
#[derive(Clone, Copy)]
pub(crate) struct One<'a, T> {
    layout: Layout,
    mkn: (usize, usize, usize),
    a: &'a [T],
    b: &'a [T],
    terms: &'a [(usize, usize)],
    added: Added<'a, T>,
}

/// A type whose matrices are multiplied.
pub(crate) trait Gemm: Float<Wide: portable::Multiplied> {
    /// Computes one product with vectors; `false`, and nothing done, where there are none.
    fn with_vectors(one: &One<Self>, out: &mut [Self]) -> bool;
    /// Packs a right operand for many products; `None` where there are no vectors.
    fn panels(width: Width, layout: Layout, kn: (usize, usize), b: &[Self]) -> Option<Panels>;
    /// A product with such an operand, unrounded.
    fn by_panels(panels: &Panels, a: &[Self::Wide], stride: usize, out: &mut [Self::Wide]);
}

macro_rules! gemm_with_vectors {
    ($($t:ty),*) => { $(
        impl Gemm for $t {
            fn with_vectors(one: &One<Self>, out: &mut [Self]) -> bool {
                let (m, _, n) = one.mkn;
                if one.terms.len() > 1 {
                    return blocks::product(one, out);
                }
                match one.layout {
                    Layout::NT if m <= FEW => dot::few_rows(one, out),
                    _ if n == 1 => one.turned(|one| Self::with_vectors(one, out)),
                    Layout::NN | Layout::TN if m <= FEW && n >= rows::LEAST => rows::few_rows(one, out),
                    _ => blocks::product(one, out),
                }
            }
            fn panels(width: Width, layout: Layout, kn: (usize, usize), b: &[Self]) -> Option<Panels> {
                Panels::new(width, layout, kn, b)
            }
            fn by_panels(panels: &Panels, a: &[f32], stride: usize, out: &mut [f32]) {
                panels.multiply(a, stride, out)
            }
        }
    )* };
}
gemm_with_vectors!(f32, f16, bf16);

impl Gemm for f64 {
    fn with_vectors(_: &One<Self>, _: &mut [Self]) -> bool {
        false
    }
    fn panels(_: Width, _: Layout, _: (usize, usize), _: &[Self]) -> Option<Panels> {
        None
    }
    fn by_panels(_: &Panels, _: &[f64], _: usize, _: &mut [f64]) {
        unreachable!("panels of f64 are never packed")
    }
}

/// All results of `p`, which follow one another in `out`.
pub(crate) fn products<T: Gemm>(p: &Products<T>, out: &mut [T]) {
    let (m, k, n) = p.mkn;
    assert_eq!(out.len(), p.terms.len() * m * n, "one place for each element");
    for &(a, b) in p.terms.iter().flatten() {
        assert!((a + 1) * m * k <= p.a.len() && (b + 1) * k * n <= p.b.len(), "a matrix lies outside its slice");
    }
    match p.added {
        Added::Nothing => {}
        Added::ToColumns(x) => assert_eq!(x.len(), n, "one number for each column"),
        Added::ToEach(x) => assert_eq!(x.len(), out.len(), "one number for each element"),
    }
    if out.is_empty() {
        return;
    }
    let one = |i: usize| {
        let added = match p.added {
            Added::ToEach(x) => Added::ToEach(&x[i * m * n..(i + 1) * m * n]),
            other => other,
        };
        One { layout: p.layout, mkn: p.mkn, a: p.a, b: p.b, terms: &p.terms[i], added }
    };
    let work = p.terms.iter().map(Vec::len).sum::<usize>() * m * k * n;
    threads::chunks(out, m * n, work, |i, out| {
        let one = one(i);
        if k == 0 || one.terms.is_empty() || !T::with_vectors(&one, out) {
            portable::product(&one, out);
        }
    });
}

impl<'a, T> One<'a, T> {
    /// The two matrices of a term.
    fn operands(&self, (a, b): (usize, usize)) -> (&'a [T], &'a [T]) {
        let (m, k, n) = self.mkn;
        (&self.a[a * m * k..(a + 1) * m * k], &self.b[b * k * n..(b + 1) * k * n])
    }

    /// The same elements as a row, where the product of one term is a column: `(a · b)ᵀ = bᵀ · aᵀ`.
    fn turned<R>(&self, f: impl FnOnce(&One<T>) -> R) -> R
    where
        T: Copy,
    {
        let (m, k, _) = self.mkn;
        let (a, b) = self.operands(self.terms[0]);
        // What was added to the one column.
        let repeated;
        let added = match self.added {
            Added::ToColumns(x) => {
                repeated = vec![x[0]; m];
                Added::ToColumns(&repeated[..])
            }
            other => other,
        };
        let layout = if self.layout == Layout::TN { Layout::NN } else { Layout::NT };
        f(&One { layout, mkn: (1, k, m), a: b, b: a, terms: &[(0, 0)], added })
    }
}

#[cfg(test)]
mod tests;
