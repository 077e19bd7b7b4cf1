//! Conversions between tensors and numbers.

use half::{bf16, f16};
use ndarray::{ArrayD, IxDyn};
use precast_kernels::{
    memory,
    memory::{Elements, Pooled, uninit_vec},
    strides::row_major,
};

use super::{Array, Stored, Tensor, recording, with_array};
use crate::{
    DType,
    error::{Error, Result},
};

/// Rust element types that convert to and from tensors: f64, f32, f16, bf16, i64, bool.
#[allow(private_bounds, reason = "the six element types are all there are")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an element type of tensors",
    label = "allowed: `f64`, `f32`, `f16`, `bf16`, `i64` and `bool`",
    note = "convert the numbers first: those of `i32` and `usize` to `i64`, and those of `u8` to `i64` or `f32`"
)]
pub trait TensorElement: Stored {}
impl TensorElement for f64 {}
impl TensorElement for f32 {}
impl TensorElement for f16 {}
impl TensorElement for bf16 {}
impl TensorElement for i64 {}
impl TensorElement for bool {}

/// Creates an f32 vector of computed numbers.
fn numbers(count: usize, number: impl Fn(usize) -> f64) -> Result<Tensor> {
    let mut all = memory::reserved(count)
        .map_err(|_| Error::shape(format!("a tensor of shape {:?} does not fit into memory", [count])))?;
    all.extend((0..count).map(|i| number(i) as f32));
    Tensor::from_vec(all, &[count])
}

impl Tensor {
    /// Creates a tensor from elements in row-major order, in their own dtype. Numbers without a suffix are f64; parameters
    /// are f32, so write `1f32`.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the number of elements is not the product of the shape.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// use precast::{DType, Tensor};
    /// let x = Tensor::from_vec(vec![1f32, 2., 3., 4., 5., 6.], &[2, 3])?;
    /// assert_eq!((x.shape(), x.dtype()), (&[2, 3][..], DType::F32));
    /// assert!(Tensor::from_vec(vec![1f32], &[2]).is_err());
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn from_vec<T: TensorElement>(data: Vec<T>, shape: &[usize]) -> Result<Tensor> {
        Array::from_vec(data, shape).map(Tensor::from_array)
    }

    /// Creates a tensor from elements as [`from_vec`](Tensor::from_vec) does, which it copies into memory of this library.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the number of elements is not the product of the shape.
    pub fn from_slice<T: TensorElement>(data: &[T], shape: &[usize]) -> Result<Tensor> {
        Array::from_vec(memory::copied(data), shape).map(Tensor::from_array)
    }

    /// Creates a tensor from f64 numbers, rounded once to `dtype`.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the number of elements is not the product of the shape.
    pub fn from_f64(data: &[f64], shape: &[usize], dtype: DType) -> Result<Tensor> {
        // Creating a tensor is not a cast, so listeners are not notified.
        Ok(Tensor::from_array(Array::from_vec(data.to_vec(), shape)?.cast(dtype)))
    }

    /// Creates a tensor from the elements of an ndarray.
    pub fn from_ndarray<T: TensorElement>(array: ArrayD<T>) -> Tensor {
        Tensor::from_array(Array::from_ndarray(array))
    }

    /// Creates a tensor filled with `value`, rounded once to `dtype`.
    ///
    /// # Panics
    /// Panics if it does not fit into memory, as `Vec` does. [`try_full`](Tensor::try_full) returns an error instead.
    pub fn full(shape: &[usize], value: f64, dtype: DType) -> Tensor {
        Tensor::try_full(shape, value, dtype).expect("a tensor that fits into memory")
    }

    /// Creates a tensor as [`full`](Tensor::full) does, for a shape from an external source.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the tensor does not fit into memory.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// use precast::{DType, Tensor};
    /// let message = Tensor::try_full(&[usize::MAX, 2], 0.0, DType::F32).unwrap_err().to_string();
    /// assert!(message.ends_with("does not fit into memory"));
    /// ```
    pub fn try_full(shape: &[usize], value: f64, dtype: DType) -> Result<Tensor> {
        let too_large = || Error::shape(format!("a tensor of shape {shape:?} does not fit into memory"));
        let len = shape.iter().copied().try_fold(1, usize::checked_mul).ok_or_else(too_large)?;
        // The product of the other lengths is bounded even where one is 0.
        let bounded = shape.iter().filter(|&&axis| axis > 0).copied().try_fold(dtype.bytes(), usize::checked_mul);
        bounded.filter(|&bytes| bytes <= isize::MAX as usize).ok_or_else(too_large)?;
        let one = Array::from_vec(vec![value], &[])?.cast(dtype);
        with_array!(&one, a: T => {
            let mut data = memory::within_memory(|| uninit_vec(len)).map_err(|_| too_large())?;
            data.fill(*a.first().expect("a scalar has one element"));
            Array::from_vec::<T>(data, shape).map(Tensor::from_array)
        })
    }

    /// Creates a tensor of the same shape and dtype, filled with `value`.
    pub fn full_like(&self, value: f64) -> Tensor {
        Tensor::full(self.shape(), value, self.dtype())
    }

    /// Creates zeros of the same shape and dtype.
    pub fn zeros_like(&self) -> Tensor {
        self.full_like(0.0)
    }

    /// Creates ones of the same shape and dtype.
    pub fn ones_like(&self) -> Tensor {
        self.full_like(1.0)
    }

    /// Creates zeros, as [`full`](Tensor::full) does.
    pub fn zeros(shape: &[usize], dtype: DType) -> Tensor {
        Tensor::full(shape, 0.0, dtype)
    }

    /// Creates ones, as [`full`](Tensor::full) does.
    pub fn ones(shape: &[usize], dtype: DType) -> Tensor {
        Tensor::full(shape, 1.0, dtype)
    }

    /// Creates a scalar. A number becomes one in its own dtype by `Tensor::from`.
    pub fn scalar(value: f64, dtype: DType) -> Tensor {
        Tensor::full(&[], value, dtype)
    }

    /// Returns the integers from 0 to `len - 1` as i64; [`range`](Tensor::range) returns floating numbers.
    ///
    /// # Panics
    /// When they do not fit into memory.
    pub fn arange(len: usize) -> Tensor {
        let mut numbers = memory::room::<i64>(len);
        numbers.extend(0..len as i64);
        Tensor::from_ndarray(ArrayD::from_shape_vec(IxDyn(&[len]), numbers).expect("as many numbers"))
    }

    /// Returns the numbers `start`, `start + step` and so on up to but excluding `end`, in f32. Each is computed in f64
    /// and rounded once. (As `torch.arange` with three numbers.)
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) unless all are finite and the step leads from `start` towards
    /// `end`,
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the tensor does not fit into memory.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::Tensor;
    /// assert_eq!(Tensor::range(1.0, 2.0, 0.25)?.to_f64(), [1.0, 1.25, 1.5, 1.75]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn range(start: f64, end: f64, step: f64) -> Result<Tensor> {
        let count = ((end - start) / step).ceil();
        if ![start, end, step, count].iter().all(|x| x.is_finite()) || count < 0.0 {
            return Err(Error::value(format!(
                "a range from {start} to {end} in steps of {step}; allowed: finite numbers, and steps that lead from one to the other"
            )));
        }
        numbers(count as usize, |i| start + step * i as f64)
    }

    /// Returns `count` evenly spaced numbers from `start` to `end` inclusive, in f32. Each is computed in f64 and
    /// rounded once.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the tensor does not fit into memory.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::Tensor;
    /// assert_eq!(Tensor::linspace(0.0, 1.0, 5)?.to_f64(), [0.0, 0.25, 0.5, 0.75, 1.0]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn linspace(start: f64, end: f64, count: usize) -> Result<Tensor> {
        let last = count.saturating_sub(1);
        numbers(count, |i| match i {
            0 => start,
            i if i == last => end,
            i => start + (end - start) * (i as f64 / last as f64),
        })
    }

    /// Returns the identity matrix `[n, n]` in f32.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the tensor does not fit into memory.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::Tensor;
    /// assert_eq!(Tensor::eye(2)?.to_f64(), [1.0, 0.0, 0.0, 1.0]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn eye(n: usize) -> Result<Tensor> {
        let len = n
            .checked_mul(n)
            .ok_or_else(|| Error::shape(format!("a tensor of shape {:?} does not fit into memory", [n, n])))?;
        let flat = numbers(len, |i| if i / n == i % n { 1.0 } else { 0.0 })?;
        Array::from_vec(flat.to_buffer::<f32>(), &[n, n]).map(Tensor::from_array)
    }

    /// Returns the elements in row-major order.
    ///
    /// # Errors
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when `T` is not the tensor's dtype; cast first.
    pub fn to_vec<T: TensorElement>(&self) -> Result<Vec<T>> {
        recording::read(self);
        match self.array().view::<T>() {
            Some(view) => Ok(view.iter().copied().collect()),
            None => Err(Error::dtype(format!(
                "{} tensor is read as {}; cast it first",
                self.dtype().with_article(),
                T::DTYPE
            ))),
        }
    }

    /// Returns the elements in row-major order without a copy; `None` when `T` is not the tensor's dtype, or the elements
    /// do not follow one another in memory, as those of a transposed tensor.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// use precast::Tensor;
    /// let x = Tensor::from([[1.0, 2.0], [3.0, 4.0]]);
    /// assert_eq!(x.as_slice::<f32>(), Some(&[1.0, 2.0, 3.0, 4.0][..]));
    /// assert_eq!(x.as_slice::<f64>(), None);
    /// assert_eq!(x.t()?.as_slice::<f32>(), None);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn as_slice<T: TensorElement>(&self) -> Option<&[T]> {
        recording::read(self);
        self.array().slice()
    }

    pub(crate) fn to_buffer<T: Stored>(&self) -> Pooled<T> {
        row_major(&self.array().view::<T>().expect("the caller opened this dtype"))
    }

    /// Returns the elements in row-major order as f64. Exact for every dtype except large integers.
    pub fn to_f64(&self) -> Vec<f64> {
        recording::read(self);
        let wide = self.array().cast(DType::F64);
        wide.view::<f64>().expect("cast to f64").iter().copied().collect()
    }

    /// Returns the only element, as f64.
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

/// Returns the elements of a tensor of element type `T`, in row-major order.
pub(crate) fn elements<T: Stored>(x: &Tensor) -> Elements<'_, T> {
    match x.array().slice::<T>() {
        Some(slice) => Elements::Borrowed(slice),
        None => Elements::Pooled(x.to_buffer::<T>()),
    }
}
