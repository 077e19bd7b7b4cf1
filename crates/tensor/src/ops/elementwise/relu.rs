//! ReLU, which is computed within the pass of a norm before it, and whose gradient is computed within the pass that reads
//! it.

use precast_kernels::{
    elementwise::{Pointwise, map},
    float::Real,
};

use crate::{
    Op, Tensor,
    error::Result,
    ops::{call, dispatch, float_kernel},
    tensor::Forward,
};

#[derive(Clone, Copy)]
struct Relu;

impl Pointwise for Relu {
    const INPUTS: usize = 1;
    const DIRECT: bool = true;
    #[inline(always)]
    fn at<R: Real>(self, x: &[R]) -> R {
        // NaN stays.
        if x[0] < R::zero() { R::zero() } else { x[0] }
    }
}

impl Tensor {
    /// Computes `max(x, 0)`, with -0 for -0. The slope at 0 is 0.
    ///
    /// # Errors
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for an integer or boolean tensor.
    pub fn relu(&self) -> Result<Tensor> {
        dispatch(call!(Op::Relu, &[self]), |inputs| {
            let x = &inputs[0];
            let value = match x.unread_norm() {
                Some(norm) => norm.compute(true),
                None => float_kernel!(x, x.shape(), |s: T| map(&Relu, &[s]))?,
            };
            let kept = Tensor::from_array(value.clone());
            Ok(Forward::new(value, vec![kept], |back| Ok(vec![Some(back.grad.masked(&back.saved[0]))])))
        })
    }
}
