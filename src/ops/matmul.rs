//! Matrix products.

use super::{by_float, dispatch, elements, one_float_dtype};
use crate::{
    Op, Tensor,
    dtype::Float,
    error::{Error, Result},
    kernels::gemm::{Gemm, Layout, product},
    tensor::{Array, Forward, Stored},
};

/// The products of `batch` pairs of matrices, each `m x k` times `k x n` after the layout's transposition, rounded once.
/// Both tensors have one floating dtype.
pub(super) fn products(
    layout: Layout,
    batch: usize,
    mkn: (usize, usize, usize),
    a: &Tensor,
    b: &Tensor,
    shape: &[usize],
) -> Result<Array> {
    fn go<T: Stored + Float>(
        layout: Layout,
        batch: usize,
        (m, k, n): (usize, usize, usize),
        a: &Tensor,
        b: &Tensor,
    ) -> Vec<T>
    where
        T::Wide: Gemm,
    {
        let (a, b) = (elements::<T>(a), elements::<T>(b));
        let pair = |i: usize| {
            let (a, b) = (&a[i * m * k..(i + 1) * m * k], &b[i * k * n..(i + 1) * k * n]);
            T::narrow_vec(product(layout, (m, k, n), a, b))
        };
        if batch == 1 { pair(0) } else { (0..batch).flat_map(pair).collect() }
    }
    by_float!(a, T => Array::from_vec(go::<T>(layout, batch, mkn, a, b), shape))
}

impl Tensor {
    /// The product of two matrices: `[m, k] · [k, n] -> [m, n]`, accumulated in f32, rounded once.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the tensors are not matrices that fit,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when their dtypes differ and no policy casts them.
    pub fn matmul(&self, other: &Tensor) -> Result<Tensor> {
        dispatch(Op::MatMul, &[self, other], |inputs| {
            one_float_dtype(inputs)?;
            let [a, b] = inputs else { unreachable!("two inputs") };
            let (&[m, k], &[k2, n]) = (a.shape(), b.shape()) else {
                return Err(Error::shape(format!("needs two matrices, got {:?} and {:?}", a.shape(), b.shape())));
            };
            if k != k2 {
                return Err(Error::shape(format!(
                    "{:?} and {:?} do not fit: {k} columns meet {k2} rows",
                    a.shape(),
                    b.shape()
                )));
            }
            let value = products(Layout::NN, 1, (m, k, n), a, b, &[m, n])?;
            Ok(Forward::new(value, vec![a.clone(), b.clone()], move |back| {
                let [a, b] = back.saved else { unreachable!("two saved") };
                let grad = |i: usize, layout, mkn, x: &Tensor, y: &Tensor, shape: &[usize]| -> Result<Option<Tensor>> {
                    if !back.needs[i] {
                        return Ok(None);
                    }
                    Ok(Some(Tensor::from_array(products(layout, 1, mkn, x, y, shape)?)))
                };
                Ok(vec![
                    grad(0, Layout::NT, (m, n, k), back.grad, b, &[m, k])?,
                    grad(1, Layout::TN, (k, m, n), a, back.grad, &[k, n])?,
                ])
            }))
        })
    }
}
