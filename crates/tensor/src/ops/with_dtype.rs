//! Ops with an explicit result dtype. The requested dtype overrides any region: the input is cast to it.

use crate::{DType, Tensor, error::Result, precision::Frame, tensor::context};

fn named(x: &Tensor, dtype: DType, f: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let _off = context::enter(Frame::Off);
    f(&x.cast(dtype))
}

impl Tensor {
    /// Computes [`softmax`](Tensor::softmax) of this tensor cast to `dtype`, in every region.
    ///
    /// # Errors
    /// As for [`softmax`](Tensor::softmax).
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::{DType, Tensor};
    /// let scores = Tensor::zeros(&[2], DType::F16);
    /// assert_eq!(scores.softmax_as(-1, DType::F32)?.dtype(), DType::F32);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn softmax_as(&self, axis: isize, dtype: DType) -> Result<Tensor> {
        named(self, dtype, |x| x.softmax(axis))
    }

    /// Computes [`log_softmax`](Tensor::log_softmax) of this tensor cast to `dtype`, in every region.
    ///
    /// # Errors
    /// As for [`log_softmax`](Tensor::log_softmax).
    pub fn log_softmax_as(&self, axis: isize, dtype: DType) -> Result<Tensor> {
        named(self, dtype, |x| x.log_softmax(axis))
    }

    /// Computes [`sum`](Tensor::sum) of this tensor cast to `dtype`, in every region.
    ///
    /// # Errors
    /// As for [`sum`](Tensor::sum).
    pub fn sum_as(&self, axes: &[isize], keep_dims: bool, dtype: DType) -> Result<Tensor> {
        named(self, dtype, |x| x.sum(axes, keep_dims))
    }

    /// Computes [`mean`](Tensor::mean) of this tensor cast to `dtype`, in every region.
    ///
    /// # Errors
    /// As for [`mean`](Tensor::mean).
    pub fn mean_as(&self, axes: &[isize], keep_dims: bool, dtype: DType) -> Result<Tensor> {
        named(self, dtype, |x| x.mean(axes, keep_dims))
    }

    /// Computes [`prod`](Tensor::prod) of this tensor cast to `dtype`, in every region.
    ///
    /// # Errors
    /// As for [`prod`](Tensor::prod).
    pub fn prod_as(&self, axes: &[isize], keep_dims: bool, dtype: DType) -> Result<Tensor> {
        named(self, dtype, |x| x.prod(axes, keep_dims))
    }

    /// Computes [`norm`](Tensor::norm) of this tensor cast to `dtype`, in every region.
    ///
    /// # Errors
    /// As for [`norm`](Tensor::norm).
    pub fn norm_as(&self, p: f64, axes: &[isize], keep_dims: bool, dtype: DType) -> Result<Tensor> {
        named(self, dtype, |x| x.norm(p, axes, keep_dims))
    }

    /// Computes [`cumsum`](Tensor::cumsum) of this tensor cast to `dtype`, in every region.
    ///
    /// # Errors
    /// As for [`cumsum`](Tensor::cumsum).
    pub fn cumsum_as(&self, axis: isize, dtype: DType) -> Result<Tensor> {
        named(self, dtype, |x| x.cumsum(axis))
    }

    /// Computes [`cumprod`](Tensor::cumprod) of this tensor cast to `dtype`, in every region.
    ///
    /// # Errors
    /// As for [`cumprod`](Tensor::cumprod).
    pub fn cumprod_as(&self, axis: isize, dtype: DType) -> Result<Tensor> {
        named(self, dtype, |x| x.cumprod(axis))
    }
}
