//! A tensor plus a multiple of a product or quotient, rounded once.

use crate::{
    Op, Tensor,
    error::Result,
    ops::{Call, call, composed::composed, elementwise::pairwise::broadcast_shape, one_float_dtype},
};

/// Computes `x + value * f(a, b)`; the three shapes broadcast.
fn plus(
    call: Call<'_>,
    value: f64,
    f: impl Fn(&Tensor, &Tensor) -> Result<Tensor> + Send + Sync + 'static,
) -> Result<Tensor> {
    composed(call, |inputs| {
        one_float_dtype(inputs)?;
        broadcast_shape(&broadcast_shape(inputs[0].shape(), inputs[1].shape())?, inputs[2].shape())?;
        Ok(move |inputs: &[Tensor]| inputs[0].add(&(f(&inputs[1], &inputs[2])? * value)?))
    })
}

impl Tensor {
    /// Computes `self + value * a * b`, rounded once. Shapes broadcast; floating dtypes promote.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not broadcast,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for an integer or boolean tensor.
    pub fn addcmul(&self, a: &Tensor, b: &Tensor, value: f64) -> Result<Tensor> {
        plus(call!(Op::Addcmul, &[self, a, b]; value), value, Tensor::mul)
    }

    /// Computes `self + value * a / b`, rounded once. Shapes broadcast; floating dtypes promote.
    ///
    /// # Errors
    /// As for [`addcmul`](Tensor::addcmul).
    pub fn addcdiv(&self, a: &Tensor, b: &Tensor, value: f64) -> Result<Tensor> {
        plus(call!(Op::Addcdiv, &[self, a, b]; value), value, Tensor::div)
    }
}
