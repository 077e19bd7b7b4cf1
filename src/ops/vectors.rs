//! Vectors along an axis: their cross products, and the distances between them.

use super::{composed::composed, one_float_dtype, padding::checked_shape, pairwise::broadcast_shape, shape::axis_at};
use crate::{
    Op, Tensor,
    error::{Error, Result},
};

impl Tensor {
    /// The cross products of the vectors of length 3 along an axis, rounded once. The other axes broadcast; floating dtypes
    /// promote.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not fit or there are no 3 elements along the axis,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for an integer or boolean tensor.
    pub fn cross(&self, other: &Tensor, axis: isize) -> Result<Tensor> {
        composed(Op::Cross, &[self, other], |inputs| {
            one_float_dtype(inputs)?;
            let (a, b) = (inputs[0].shape(), inputs[1].shape());
            if a.len() != b.len() {
                return Err(Error::shape(format!("{a:?} and {b:?} have different numbers of axes")));
            }
            let at = axis_at(axis, a.len())?;
            if (a[at], b[at]) != (3, 3) {
                return Err(Error::shape(format!("axis {at} of {a:?} and {b:?} must have 3 elements")));
            }
            broadcast_shape(a, b)?;
            Ok(move |inputs: &[Tensor]| {
                let next = Tensor::from_vec(vec![1i64, 2, 0], &[3])?;
                let last = Tensor::from_vec(vec![2i64, 0, 1], &[3])?;
                let turned = |x: &Tensor, by: &Tensor| x.index_select(axis, by);
                let (a, b) = (&inputs[0], &inputs[1]);
                turned(a, &next)?.mul(&turned(b, &last)?)?.sub(&turned(a, &last)?.mul(&turned(b, &next)?)?)
            })
        })
    }

    /// The p-norms of the differences between every vector of one set and every one of another:
    /// `[..., m, d]`, `[..., n, d] -> [..., m, n]`, rounded once. Leading axes broadcast; floating dtypes promote.
    ///
    /// The gradient is 0 where the distance is.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not fit,
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when p is not above 0,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for an integer or boolean tensor.
    ///
    /// ```
    /// # use precast::Tensor;
    /// let x = Tensor::from_vec(vec![0f32, 0., 3., 4.], &[2, 2])?;
    /// assert_eq!(x.cdist(&x, 2.0)?.to_f64(), [0., 5., 5., 0.]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn cdist(&self, other: &Tensor, p: f64) -> Result<Tensor> {
        composed(Op::Cdist, &[self, other], |inputs| {
            one_float_dtype(inputs)?;
            if p.is_nan() || p <= 0.0 {
                return Err(Error::value(format!("p = {p}; allowed: above 0, or infinite")));
            }
            let (a, b) = (inputs[0].shape(), inputs[1].shape());
            let ([a_batch @ .., m, d], [b_batch @ .., n, bd]) = (a, b) else {
                return Err(Error::shape(format!("needs [..., m, d] and [..., n, d], got {a:?} and {b:?}")));
            };
            if d != bd {
                return Err(Error::shape(format!("{a:?} and {b:?} do not fit: vectors of length {d} and {bd}")));
            }
            let batch = broadcast_shape(a_batch, b_batch)
                .map_err(|_| Error::shape(format!("the leading axes of {a:?} and {b:?} do not broadcast")))?;
            checked_shape([&batch[..], &[*m, *n, *d]].concat())?;
            Ok(move |inputs: &[Tensor]| inputs[0].unsqueeze(-2)?.sub(&inputs[1].unsqueeze(-3)?)?.norm(p, &[-1], false))
        })
    }
}
