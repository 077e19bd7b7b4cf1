//! Matrix products.

use super::{dispatch, elements, narrowed, widened};
use crate::{
    Op, Tensor,
    dtype::Float,
    error::{Error, Result},
    kernels::gemm::{Gemm, Strides},
    tensor::{Array, Forward, Stored, with_float},
};

/// Which of the operands is transposed before the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// `a · b`
    NN,
    /// `a · bᵀ`
    NT,
    /// `aᵀ · b`
    TN,
}

/// `c = a · b` for `batch` pairs of contiguous matrices: `m x k` times `k x n` after the layout's transposition.
pub(super) fn product<T: Float>(
    layout: Layout,
    batch: usize,
    (m, k, n): (usize, usize, usize),
    a: &[T],
    b: &[T],
) -> Vec<T::Wide>
where
    T::Wide: Gemm,
{
    let (a, b) = (widened(a), widened(b));
    let mut c = vec![T::Wide::default(); batch * m * n];
    let (sa, sb) = match layout {
        Layout::NN => (Strides::rows_of(k), Strides::rows_of(n)),
        Layout::NT => (Strides::rows_of(k), Strides::transposed(k)),
        Layout::TN => (Strides::transposed(m), Strides::rows_of(n)),
    };
    for i in 0..batch {
        let (a, b) = (&a[i * m * k..(i + 1) * m * k], &b[i * k * n..(i + 1) * k * n]);
        Gemm::gemm(m, k, n, a, sa, b, sb, &mut c[i * m * n..(i + 1) * m * n]);
    }
    c
}

/// [`product`] of two tensors of one dtype, rounded once.
pub(super) fn product_of(
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
        mkn: (usize, usize, usize),
        a: &Tensor,
        b: &Tensor,
        shape: &[usize],
    ) -> Result<Array>
    where
        T::Wide: Gemm,
    {
        Array::from_vec(narrowed::<T>(&product(layout, batch, mkn, &elements::<T>(a), &elements::<T>(b))), shape)
    }
    with_float!(a.array(), x: T => { let _ = x; go::<T>(layout, batch, mkn, a, b, shape) },
        else Err(Error::dtype(format!("needs floating tensors, got {}", a.dtype()))))
}

impl Tensor {
    /// The product of two matrices: `[m, k] · [k, n] -> [m, n]`, accumulated in f32, rounded once.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the tensors are not matrices that fit,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when their dtypes differ and no policy casts them.
    pub fn matmul(&self, other: &Tensor) -> Result<Tensor> {
        dispatch(Op::MatMul, &[self, other], |inputs| {
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
            let value = product_of(Layout::NN, 1, (m, k, n), a, b, &[m, n])?;
            Ok(Forward::new(value, vec![a.clone(), b.clone()], move |back| {
                let [a, b] = back.saved else { unreachable!("two saved") };
                let grad = |i: usize, layout, mkn, x: &Tensor, y: &Tensor, shape: &[usize]| -> Result<Option<Tensor>> {
                    if !back.needs[i] {
                        return Ok(None);
                    }
                    Ok(Some(Tensor::from_array(product_of(layout, 1, mkn, x, y, shape)?)))
                };
                Ok(vec![
                    grad(0, Layout::NT, (m, n, k), back.grad, b, &[m, k])?,
                    grad(1, Layout::TN, (k, m, n), a, back.grad, &[k, n])?,
                ])
            }))
        })
    }
}
