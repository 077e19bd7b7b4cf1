//! Softmax, its logarithm and related functions.

use precast_kernels::reduce::softmax;

use crate::{
    Op, Tensor,
    error::{Error, Result},
    ops::{
        call,
        composed::composed,
        index::shape::axis_at,
        reduce::{axes, sums::along},
    },
};

impl Tensor {
    /// Computes `exp(x) / sum exp(x)` along an axis, in f32, with one rounding. Negative axes count from the end.
    ///
    /// Stable: the largest element is subtracted first, so minus infinity becomes exactly 0 and no finite input
    /// overflows. If all elements are minus infinity, or one is plus infinity, the softmax is undefined and all results
    /// are NaN.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when there is no such axis,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for an integer or boolean tensor.
    pub fn softmax(&self, axis: isize) -> Result<Tensor> {
        along(call!(Op::Softmax, &[self]; axis), &[axis], false, softmax::Softmax)
    }

    /// Computes `x - ln(sum exp(x))` along an axis, like [`softmax`](Tensor::softmax). Minus infinity stays minus
    /// infinity.
    ///
    /// # Errors
    /// As for [`softmax`](Tensor::softmax).
    pub fn log_softmax(&self, axis: isize) -> Result<Tensor> {
        along(call!(Op::LogSoftmax, &[self]; axis), &[axis], false, softmax::LogSoftmax)
    }

    /// Computes [`softmax`](Tensor::softmax) of `-x`: the smallest element has the largest weight.
    ///
    /// # Errors
    /// As for [`softmax`](Tensor::softmax).
    pub fn softmin(&self, axis: isize) -> Result<Tensor> {
        composed(call!(Op::Softmin, &[self]; axis), |inputs| {
            axis_at(axis, inputs[0].rank())?;
            Ok(move |x: &[Tensor]| x[0].neg()?.softmax(axis))
        })
    }

    /// Computes `ln(sum exp(x))` along the axes (all if the list is empty), without overflow, with one rounding.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) for an axis that does not exist, is named twice, or has no
    /// elements,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for an integer or boolean tensor.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::Tensor;
    /// let x = Tensor::from_vec(vec![1000f32, 1000.], &[2])?;
    /// assert_eq!(x.logsumexp(&[0], false)?.item()? as f32, 1000.0 + 2f32.ln());
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn logsumexp(&self, axes: &[isize], keep_dims: bool) -> Result<Tensor> {
        composed(call!(Op::LogSumExp, &[self]; axes, keep_dims), |inputs| {
            let x = &inputs[0];
            let summed = axes::axes(axes, x.rank())?;
            if summed.iter().any(|&axis| x.shape()[axis] == 0) {
                return Err(Error::shape(format!("{:?} has no elements to sum", x.shape())));
            }
            let axes = axes.to_vec();
            Ok(move |inputs: &[Tensor]| {
                let x = &inputs[0];
                let largest = x.detach().max(&axes, true)?;
                // If all are minus infinity there is nothing to subtract.
                let shift = largest.is_finite()?.select(&largest, &Tensor::zeros(&[], x.dtype()))?;
                let log = x.sub(&shift)?.exp()?.sum(&axes, true)?.log()?.add(&shift)?;
                if keep_dims { Ok(log) } else { log.sum(&axes, false) }
            })
        })
    }

    /// Multiplies the first half of an axis by the sigmoid of the second: a gated linear unit (Dauphin et al. 2016).
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when there is no such axis or its length is odd,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for an integer or boolean tensor.
    pub fn glu(&self, axis: isize) -> Result<Tensor> {
        composed(call!(Op::Glu, &[self]; axis), |inputs| {
            let shape = inputs[0].shape();
            let len = shape[axis_at(axis, shape.len())?];
            if !len.is_multiple_of(2) {
                return Err(Error::shape(format!("axis {axis} of {shape:?} has no two halves")));
            }
            Ok(move |x: &[Tensor]| x[0].slice(axis, 0..len / 2)?.mul(&x[0].slice(axis, len / 2..len)?.sigmoid()?))
        })
    }
}
