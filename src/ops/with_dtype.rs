//! Ops whose caller names the dtype of the result. That is the caller's word: the input is cast to it, and no region has a
//! say.

use crate::{DType, Tensor, error::Result, precision::Frame, tensor::context};

fn named(x: &Tensor, dtype: DType, f: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let _off = context::enter(Frame::Off);
    f(&x.cast(dtype))
}

impl Tensor {
    /// [`softmax`](Tensor::softmax) of this tensor cast to `dtype`, in every region.
    ///
    /// # Errors
    /// As [`softmax`](Tensor::softmax).
    ///
    /// ```
    /// # use precast::{DType, Tensor};
    /// let scores = Tensor::zeros(&[2], DType::F16);
    /// assert_eq!(scores.softmax_as(-1, DType::F32)?.dtype(), DType::F32);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn softmax_as(&self, axis: isize, dtype: DType) -> Result<Tensor> {
        named(self, dtype, |x| x.softmax(axis))
    }

    /// [`log_softmax`](Tensor::log_softmax) of this tensor cast to `dtype`, in every region.
    ///
    /// # Errors
    /// As [`log_softmax`](Tensor::log_softmax).
    pub fn log_softmax_as(&self, axis: isize, dtype: DType) -> Result<Tensor> {
        named(self, dtype, |x| x.log_softmax(axis))
    }

    /// [`sum`](Tensor::sum) of this tensor cast to `dtype`, in every region.
    ///
    /// # Errors
    /// As [`sum`](Tensor::sum).
    pub fn sum_as(&self, axes: &[isize], keep_dims: bool, dtype: DType) -> Result<Tensor> {
        named(self, dtype, |x| x.sum(axes, keep_dims))
    }

    /// [`mean`](Tensor::mean) of this tensor cast to `dtype`, in every region.
    ///
    /// # Errors
    /// As [`mean`](Tensor::mean).
    pub fn mean_as(&self, axes: &[isize], keep_dims: bool, dtype: DType) -> Result<Tensor> {
        named(self, dtype, |x| x.mean(axes, keep_dims))
    }

    /// [`prod`](Tensor::prod) of this tensor cast to `dtype`, in every region.
    ///
    /// # Errors
    /// As [`prod`](Tensor::prod).
    pub fn prod_as(&self, axes: &[isize], keep_dims: bool, dtype: DType) -> Result<Tensor> {
        named(self, dtype, |x| x.prod(axes, keep_dims))
    }

    /// [`norm`](Tensor::norm) of this tensor cast to `dtype`, in every region.
    ///
    /// # Errors
    /// As [`norm`](Tensor::norm).
    pub fn norm_as(&self, p: f64, axes: &[isize], keep_dims: bool, dtype: DType) -> Result<Tensor> {
        named(self, dtype, |x| x.norm(p, axes, keep_dims))
    }

    /// [`cumsum`](Tensor::cumsum) of this tensor cast to `dtype`, in every region.
    ///
    /// # Errors
    /// As [`cumsum`](Tensor::cumsum).
    pub fn cumsum_as(&self, axis: isize, dtype: DType) -> Result<Tensor> {
        named(self, dtype, |x| x.cumsum(axis))
    }

    /// [`cumprod`](Tensor::cumprod) of this tensor cast to `dtype`, in every region.
    ///
    /// # Errors
    /// As [`cumprod`](Tensor::cumprod).
    pub fn cumprod_as(&self, axis: isize, dtype: DType) -> Result<Tensor> {
        named(self, dtype, |x| x.cumprod(axis))
    }
}
