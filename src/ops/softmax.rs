//! Softmax and its logarithm.

use super::reduce::along;
use crate::{Op, Tensor, error::Result, kernels::softmax};

impl Tensor {
    /// `exp(x) / sum exp(x)` along an axis, in f32, with one rounding. Negative axes count from the end.
    ///
    /// Stable: the largest element is subtracted first, so minus infinity becomes exactly 0 and no finite input overflows.
    /// Where all elements are minus infinity, or one is plus infinity, there is no answer, and all are NaN.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when there is no such axis,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for an integer or boolean tensor.
    pub fn softmax(&self, axis: isize) -> Result<Tensor> {
        along(Op::Softmax, self, &[axis], false, softmax::Softmax)
    }

    /// `x - ln(sum exp(x))` along an axis, as [`softmax`](Tensor::softmax): minus infinity stays minus infinity.
    ///
    /// # Errors
    /// As [`softmax`](Tensor::softmax).
    pub fn log_softmax(&self, axis: isize) -> Result<Tensor> {
        along(Op::LogSoftmax, self, &[axis], false, softmax::LogSoftmax)
    }
}
