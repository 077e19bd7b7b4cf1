//! Making tensors from numbers, and reading numbers out of them.

use half::{bf16, f16};
use ndarray::{ArrayD, IxDyn};

use super::{Array, Tensor, array::Stored, recording, with_array};
use crate::{
    DType,
    error::{Error, Result},
    kernels::{memory::uninit_vec, strides::row_major},
};

/// Rust element types that tensors are made from and read into: f64, f32, f16, bf16, i64, bool.
#[allow(private_bounds, reason = "the six element types are all there are")]
pub trait TensorElement: Stored {}
impl TensorElement for f64 {}
impl TensorElement for f32 {}
impl TensorElement for f16 {}
impl TensorElement for bf16 {}
impl TensorElement for i64 {}
impl TensorElement for bool {}

impl Tensor {
    /// A tensor of the elements in row-major order, in their own dtype.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the number of elements is not the product of the shape.
    ///
    /// ```
    /// use precast::{DType, Tensor};
    /// let x = Tensor::from_vec(vec![1f32, 2., 3., 4., 5., 6.], &[2, 3])?;
    /// assert_eq!((x.shape(), x.dtype()), (&[2, 3][..], DType::F32));
    /// assert!(Tensor::from_vec(vec![1f32], &[2]).is_err());
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn from_vec<T: TensorElement>(data: Vec<T>, shape: &[usize]) -> Result<Tensor> {
        Array::from_vec(data, shape).map(Tensor::from_array)
    }

    /// A tensor of f64 numbers, rounded once to `dtype`.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the number of elements is not the product of the shape.
    pub fn from_f64(data: &[f64], shape: &[usize], dtype: DType) -> Result<Tensor> {
        // Making a tensor is no cast of one, so observers are not told.
        Ok(Tensor::from_array(Array::from_vec(data.to_vec(), shape)?.cast(dtype)))
    }

    /// A tensor of an ndarray's elements.
    pub fn from_ndarray<T: TensorElement>(array: ArrayD<T>) -> Tensor {
        Tensor::from_array(T::wrap(array.into_shared()))
    }

    /// A tensor with every element `value`, rounded once to `dtype`.
    ///
    /// # Panics
    /// When a tensor of that shape cannot exist in memory.
    pub fn full(shape: &[usize], value: f64, dtype: DType) -> Tensor {
        let one = f64::wrap(ndarray::arr0(value).into_dyn().into_shared()).cast(dtype);
        Tensor::from_array(with_array!(&one, a: T => {
            let mut data = uninit_vec(shape.iter().copied().try_fold(1, usize::checked_mul).expect("as many elements as memory has"));
            data.fill(*a.first().expect("a scalar has one element"));
            Array::from_vec::<T>(data, shape).expect("one element for each")
        }))
    }

    /// Zeros; as [`full`](Tensor::full).
    pub fn zeros(shape: &[usize], dtype: DType) -> Tensor {
        Tensor::full(shape, 0.0, dtype)
    }

    /// Ones; as [`full`](Tensor::full).
    pub fn ones(shape: &[usize], dtype: DType) -> Tensor {
        Tensor::full(shape, 1.0, dtype)
    }

    /// A scalar.
    pub fn scalar(value: f64, dtype: DType) -> Tensor {
        Tensor::full(&[], value, dtype)
    }

    /// The integers from 0 to `len - 1`.
    pub fn arange(len: usize) -> Tensor {
        Tensor::from_ndarray(ArrayD::from_shape_fn(IxDyn(&[len]), |i| i[0] as i64))
    }

    /// The elements in row-major order.
    ///
    /// # Errors
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when `T` is not the tensor's dtype; cast first.
    pub fn to_vec<T: TensorElement>(&self) -> Result<Vec<T>> {
        recording::read(self);
        match self.array().view::<T>() {
            Some(view) => Ok(view.iter().copied().collect()),
            None => Err(Error::dtype(format!("a {} tensor is read as {}; cast it first", self.dtype(), T::DTYPE))),
        }
    }

    pub(crate) fn to_vec_stored<T: Stored>(&self) -> Vec<T> {
        row_major(&self.array().view::<T>().expect("the caller opened this dtype"))
    }

    /// The elements in row-major order as f64: exact for every dtype but large integers.
    pub fn to_f64(&self) -> Vec<f64> {
        recording::read(self);
        let wide = self.array().cast(DType::F64);
        wide.view::<f64>().expect("cast to f64").iter().copied().collect()
    }

    /// The only element, as f64.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when there is not exactly one element.
    pub fn item(&self) -> Result<f64> {
        match self.to_f64()[..] {
            [x] => Ok(x),
            _ => Err(Error::shape(format!(
                "item() reads a tensor of one element; this has the shape {:?}",
                self.shape()
            ))),
        }
    }
}
