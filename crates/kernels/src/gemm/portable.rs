//! Path for f64, and for machines without vectors: widened copies, multiplied by `matrixmultiply`.

use super::product::{Added, Layout, Product};
use crate::{
    float::{Float, Real},
    memory::Pooled,
};

pub(super) fn product<W, T, O>(product: &Product<T, O>, out: &mut [O])
where
    W: MatrixMultiply + Real,
    T: Float<Wide = W>,
    O: Float<Wide = W>,
{
    let mut sums = Pooled::<W>::zeros(out.len());
    for &term in product.terms {
        let (a, b) = product.operands(term);
        MatrixMultiply::add_product(product.layout, product.mkn, &T::widen_slice(a), &T::widen_slice(b), &mut sums);
    }
    match product.added {
        Added::Nothing => {}
        Added::ToColumns(x) => {
            for row in sums.chunks_exact_mut(x.len()) {
                row.iter_mut().zip(x).for_each(|(sum, x)| *sum += x.widen());
            }
        }
        Added::ToRows(x) => {
            for (row, x) in sums.chunks_exact_mut(product.mkn.2).zip(x) {
                row.iter_mut().for_each(|sum| *sum += x.widen());
            }
        }
        Added::ToEach(x) => sums.iter_mut().zip(x).for_each(|(sum, x)| *sum += x.widen()),
    }
    O::narrow_into(&sums, out);
}

/// Type that `matrixmultiply` multiplies.
pub trait MatrixMultiply: Sized {
    /// Computes `c += a · b`, all contiguous.
    fn add_product(layout: Layout, mkn: (usize, usize, usize), a: &[Self], b: &[Self], c: &mut [Self]);
}

macro_rules! multiplied {
    ($t:ty, $multiply:path) => {
        impl MatrixMultiply for $t {
            fn add_product(layout: Layout, (m, k, n): (usize, usize, usize), a: &[$t], b: &[$t], c: &mut [$t]) {
                assert!(a.len() == m * k && b.len() == k * n && c.len() == m * n, "matrices fill their slices");
                let of_rows = |columns: usize| (columns as isize, 1);
                let of_columns = |rows: usize| (1, rows as isize);
                let (a_steps, b_steps) = match layout {
                    Layout::NN => (of_rows(k), of_rows(n)),
                    Layout::NT => (of_rows(k), of_columns(k)),
                    Layout::TN => (of_columns(m), of_rows(n)),
                };
                let (a, b, c) = (a.as_ptr(), b.as_ptr(), c.as_mut_ptr());
                // SAFETY: each matrix fills its slice, and `c` is borrowed mutably.
                unsafe {
                    $multiply(m, k, n, 1.0, a, a_steps.0, a_steps.1, b, b_steps.0, b_steps.1, 1.0, c, n as isize, 1)
                }
            }
        }
    };
}
multiplied!(f32, matrixmultiply::sgemm);
multiplied!(f64, matrixmultiply::dgemm);
