//! A right operand packed once for many products, such as the weight of a recurrent layer for all steps.

use super::{
    dispatch::Gemm,
    panels::Panels,
    portable::MatrixMultiply,
    product::{Added, Layout},
};
use crate::{
    float::Real,
    memory::{Pooled, with_capacity},
    simd,
};

/// A packed right operand `k x n`.
///
/// Its products are summed in the order of all packed products (see [`gemm`](super)), even for few rows, and are not rounded.
pub struct Packed<'a, T: Gemm> {
    k: usize,
    n: usize,
    storage: Storage<'a, T>,
}

enum Storage<'a, T: Gemm> {
    Panels(Panels<'a, T>),
    /// Widened copy, for f64 and machines without vectors.
    Rows(Pooled<T::Wide>),
}

impl<'a, T: Gemm<Wide: Real>> Packed<'a, T> {
    /// Packs `b`, which is stored as `n x k` if the layout is transposed.
    pub fn new(layout: Layout, (k, n): (usize, usize), b: &'a [T]) -> Self {
        assert!(layout != Layout::TN && b.len() == k * n, "a right operand");
        let storage = match T::panels(simd::widest(), layout, (k, n), b) {
            Some(panels) => Storage::Panels(panels),
            None => {
                let at = |p: usize, j: usize| if layout == Layout::NT { j * k + p } else { p * n + j };
                let mut rows = with_capacity(k * n);
                rows.extend((0..k * n).map(|i| b[at(i / n, i % n)].widen()));
                Storage::Rows(rows)
            }
        };
        Packed { k, n, storage }
    }

    /// Computes `out = a · b`, plus one number per column if any are to be added. Row i of `a` consists of the `k`
    /// numbers from `i * stride`.
    pub fn multiply(&self, a: &[T], stride: usize, added: Option<&[T::Wide]>, out: &mut [T::Wide]) {
        let (k, n) = (self.k, self.n);
        let rows = out.len() / n.max(1);
        assert!(out.len() == rows * n, "whole rows");
        assert!(added.is_none_or(|added| added.len() == n), "one number for each column");
        if out.is_empty() {
            return;
        }
        assert!((rows - 1) * stride + k <= a.len(), "each row is inside its slice");
        match &self.storage {
            Storage::Panels(panels) if k > 0 => {
                T::multiply_panels(panels, a, stride, added.map_or(Added::Nothing, Added::ToColumns), out);
            }
            storage => {
                out.fill(T::Wide::default());
                if let Storage::Rows(b) = storage {
                    let mut gathered = Pooled::uninit(rows * k);
                    for (i, row) in gathered.chunks_exact_mut(k.max(1)).enumerate() {
                        T::widen_into(&a[i * stride..][..k], row);
                    }
                    T::Wide::add_product(Layout::NN, (rows, k, n), &gathered, b, out);
                }
                if let Some(added) = added {
                    out.iter_mut().zip(added.iter().cycle()).for_each(|(out, &added)| *out += added);
                }
            }
        }
    }
}
