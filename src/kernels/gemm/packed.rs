//! A right operand that is packed once for many products, as the weight of a recurrent layer is for all steps.

use super::{dispatch::Gemm, panels::Panels, portable::MatrixMultiply, product::Layout};
use crate::kernels::{
    float::Real,
    memory::{Item, Pooled, with_capacity},
    simd,
};

/// A right operand `k x n`, widened and packed.
///
/// Its products are summed in the order of all products (see [`gemm`](super)), also those of few rows, and are not rounded.
pub(crate) struct Packed<T: Gemm> {
    k: usize,
    n: usize,
    storage: Storage<T::Wide>,
}

enum Storage<R: Item> {
    Panels(Panels),
    /// Where there are no vectors, and for f64.
    Rows(Pooled<R>),
}

impl<T: Gemm<Wide: Real>> Packed<T> {
    /// From `b`, which is stored as `n x k` where the layout says that it is transposed.
    pub fn new(layout: Layout, (k, n): (usize, usize), b: &[T]) -> Self {
        assert!(layout != Layout::TN && b.len() == k * n, "a right operand");
        let storage = match T::panels(simd::widest(), layout, (k, n), b) {
            Some(panels) => Storage::Panels(panels),
            None => {
                let at = |p: usize, j: usize| if layout == Layout::NT { j * k + p } else { p * n + j };
                let mut rows = with_capacity(k * n);
                rows.extend((0..k * n).map(|i| b[at(i / n, i % n)].widen()));
                Storage::Rows(rows.into())
            }
        };
        Packed { k, n, storage }
    }

    /// `out = a · b`, where row i of `a` are `k` numbers from `i * stride` on.
    pub fn multiply(&self, a: &[T::Wide], stride: usize, out: &mut [T::Wide]) {
        let (k, n) = (self.k, self.n);
        let rows = out.len() / n.max(1);
        assert!(out.len() == rows * n, "whole rows");
        if out.is_empty() {
            return;
        }
        assert!((rows - 1) * stride + k <= a.len(), "each row is inside its slice");
        match &self.storage {
            Storage::Panels(panels) => T::multiply_panels(panels, a, stride, out),
            Storage::Rows(b) => {
                let mut gathered = Pooled::uninit(rows * k);
                for (i, row) in gathered.chunks_exact_mut(k.max(1)).enumerate() {
                    row.copy_from_slice(&a[i * stride..][..k]);
                }
                out.fill(T::Wide::default());
                MatrixMultiply::add_product(Layout::NN, (rows, k, n), &gathered, b, out);
            }
        }
    }
}
