//! Choice of the kernel for a product.

use half::{bf16, f16};

use super::{
    dot, few_rows, loops,
    panels::Panels,
    portable::{self, MatrixMultiply},
    product::{Added, Layout, Product, Products},
};
use crate::{
    float::{Float, Real},
    simd::Width,
    threads,
};

/// Maximum number of rows of a product whose right operand is read once and not packed.
const FEW: usize = 8;

/// Element type of matrices that can be multiplied.
pub trait Gemm: Float<Wide: MatrixMultiply + Real> {
    /// Computes one product with vectors; `false`, without effect, if there are none.
    fn with_vectors(product: &Product<Self>, out: &mut [Self]) -> bool;
    /// Computes the same product without rounding.
    fn unrounded_with_vectors(product: &Product<Self, Self::Wide>, out: &mut [Self::Wide]) -> bool;
    /// Packs a right operand for many products; `None` if there are no vectors.
    fn panels(width: Width, layout: Layout, kn: (usize, usize), b: &[Self]) -> Option<Panels<'_, Self>>;
    /// Computes a product with such an operand, unrounded.
    fn multiply_panels(
        panels: &Panels<Self>,
        a: &[Self],
        stride: usize,
        added: Added<Self::Wide>,
        out: &mut [Self::Wide],
    );
}

macro_rules! gemm_with_vectors {
    ($($t:ty: $unrounded:path;)*) => { $(
        impl Gemm for $t {
            fn with_vectors(product: &Product<Self>, out: &mut [Self]) -> bool {
                let (m, _, n) = product.mkn;
                if product.terms.len() > 1 {
                    return loops::product(product, out);
                }
                match product.layout {
                    Layout::NT if m <= FEW => dot::few_rows(product, out),
                    _ if n == 1 => product.with_transposed(|row| Self::with_vectors(row, out)),
                    Layout::NN | Layout::TN if m <= FEW && n >= few_rows::LEAST => few_rows::few_rows(product, out),
                    _ => loops::product(product, out),
                }
            }
            fn unrounded_with_vectors(product: &Product<Self, f32>, out: &mut [f32]) -> bool {
                $unrounded(product, out)
            }
            fn panels(width: Width, layout: Layout, kn: (usize, usize), b: &[Self]) -> Option<Panels<'_, Self>> {
                Panels::new(width, layout, kn, b)
            }
            fn multiply_panels(panels: &Panels<Self>, a: &[Self], stride: usize, added: Added<f32>, out: &mut [f32]) {
                panels.multiply(a, stride, added, out)
            }
        }
    )* };
}
gemm_with_vectors! {
    f32: Self::with_vectors;
    f16: loops::product;
    bf16: loops::product;
}

impl Gemm for f64 {
    fn with_vectors(_: &Product<Self>, _: &mut [Self]) -> bool {
        false
    }
    fn unrounded_with_vectors(_: &Product<Self>, _: &mut [Self]) -> bool {
        false
    }
    fn panels(_: Width, _: Layout, _: (usize, usize), _: &[Self]) -> Option<Panels<'_, Self>> {
        None
    }
    fn multiply_panels(_: &Panels<Self>, _: &[f64], _: usize, _: Added<f64>, _: &mut [f64]) {
        unreachable!("panels of f64 are never packed")
    }
}

/// Computes all results of `p`, which are consecutive in `out`.
pub fn products<T: Gemm>(p: &Products<T>, out: &mut [T]) {
    let (m, k, n) = p.mkn;
    p.check(out.len());
    if out.is_empty() {
        return;
    }
    let work = p.terms.iter().map(Vec::len).sum::<usize>() * m * k * n;
    threads::chunks(out, m * n, work, |i, out| {
        let product = p.get(i);
        if k == 0 || product.terms.is_empty() || !T::with_vectors(&product, out) {
            portable::product(&product, out);
        }
    });
}

/// Computes the product of the matrices at the start of two slices, plus the addend, without rounding.
pub fn unrounded<T: Gemm>(
    layout: Layout,
    mkn: (usize, usize, usize),
    (a, b): (&[T], &[T]),
    added: Added<T::Wide>,
    out: &mut [T::Wide],
) {
    let (m, k, n) = mkn;
    assert_eq!(out.len(), m * n, "one place for each element");
    added.check(1, (m, n));
    if out.is_empty() {
        return;
    }
    let product = Product { layout, mkn, a, b, terms: &[(0, 0)], added };
    if k == 0 || !T::unrounded_with_vectors(&product, out) {
        portable::product(&product, out);
    }
}
