//! Positions and classes as integers, and elements chosen by a mask. None but the chosen elements has a gradient.

use precast_kernels::memory::{room, zeros};

use crate::{
    DType, Op, Tensor,
    error::{Error, Result},
    ops::{call, dispatch, elements, index::pick::checked_indices, spatial::windows::checked_shape},
    tensor::{Array, Forward, fitting, recording, with_array},
};

impl Tensor {
    /// Returns i64 tensors `[..., classes]` that are 1 at the index of each element and 0 elsewhere; `cast` makes
    /// floating-point targets of them.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for an index outside `0..classes`,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when the tensor is not i64,
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the result does not fit into memory.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::Tensor;
    /// let labels = Tensor::from_vec(vec![2i64, 0], &[2])?;
    /// assert_eq!(labels.one_hot(3)?.to_f64(), [0., 0., 1., 1., 0., 0.]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn one_hot(&self, classes: usize) -> Result<Tensor> {
        dispatch(call!(Op::OneHot, &[self]; classes), |inputs| {
            let index = checked_indices(&inputs[0], classes)?;
            let shape = checked_shape([inputs[0].shape(), &[classes]].concat())?;
            let mut ones = zeros::<i64>(shape.iter().product());
            index.iter().enumerate().for_each(|(row, class)| ones[row * classes + class] = 1);
            Array::from_vec(ones, &shape).map(Forward::constant)
        })
    }

    /// Returns the positions of the elements that are not 0, in row-major order: i64 `[found, axes]`, one row for each.
    /// NaN is not 0.
    ///
    /// The shape depends on the values, so no graph records this.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the result does not fit into memory.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::Tensor;
    /// let x = Tensor::from_vec(vec![0f32, 3., 0., -1.], &[2, 2])?;
    /// assert_eq!(x.nonzero()?.to_vec::<i64>()?, [0, 1, 1, 1]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    #[doc(alias = "argwhere")]
    pub fn nonzero(&self) -> Result<Tensor> {
        let found = self.nonzero_offsets();
        let shape = checked_shape(vec![found.len(), self.rank()])?;
        let mut places = fitting(|| Ok(room(shape.iter().product()))).map_err(|error| error.in_op("nonzero"))?;
        for offset in found {
            let mut inner: usize = self.shape().iter().product();
            let mut rest = offset;
            for len in self.shape() {
                inner /= len;
                places.push((rest / inner) as i64);
                rest %= inner;
            }
        }
        Tensor::from_vec(places, &shape)
    }

    /// Returns the row-major positions of the elements that are not 0.
    fn nonzero_offsets(&self) -> Vec<usize> {
        recording::read(self);
        with_array!(self.array(), a: T => {
            let _ = a;
            let zero = T::default();
            elements::<T>(self).iter().enumerate().filter(|(_, x)| **x != zero).map(|(place, _)| place).collect()
        })
    }

    /// Counts the elements that are not 0. NaN is not 0.
    pub fn count_nonzero(&self) -> usize {
        self.nonzero_offsets().len()
    }

    /// Returns the elements at which a boolean tensor of the same shape is true, as a vector in row-major order. The
    /// others get the gradient 0.
    ///
    /// The shape depends on the values of the mask, so no graph records this.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes differ,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when the mask is not boolean.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::Tensor;
    /// let x = Tensor::from_vec(vec![1f32, -2., 3.], &[3])?;
    /// let positive = x.gt(0.0)?;
    /// assert_eq!(x.masked_select(&positive)?.to_f64(), [1., 3.]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn masked_select(&self, mask: &Tensor) -> Result<Tensor> {
        if mask.dtype() != DType::Bool {
            return Err(Error::dtype(format!("a mask is boolean, got {}; compare first, or cast", mask.dtype())));
        }
        if mask.shape() != self.shape() {
            return Err(Error::shape(format!("the mask {:?} differs from {:?}", mask.shape(), self.shape())));
        }
        let chosen: Vec<i64> = mask.nonzero_offsets().into_iter().map(|place| place as i64).collect();
        let count = chosen.len();
        self.reshape(&[-1isize])?.index_select(0, &Tensor::from_vec(chosen, &[count])?)
    }

    /// Returns the positions that sort each slice along an axis, as the second result of [`sort`](Tensor::sort).
    ///
    /// # Errors
    /// As for [`sort`](Tensor::sort).
    pub fn argsort(&self, axis: isize, descending: bool) -> Result<Tensor> {
        Ok(self.sort(axis, descending)?.1)
    }

    /// Returns the different elements in ascending order, as a vector. NaN differs from itself, so each stays, at the
    /// end.
    ///
    /// The shape depends on the values, so no graph records this.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::Tensor;
    /// assert_eq!(Tensor::from_vec(vec![3i64, 1, 3], &[3])?.unique().to_f64(), [1., 3.]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn unique(&self) -> Tensor {
        recording::read(self);
        Tensor::from_array(with_array!(self.array(), a: T => {
            let _ = a;
            let mut all: Vec<T> = elements::<T>(self).to_vec();
            // Numbers have an order, and NaN comes after them.
            let is_nan = |x: &T| x.partial_cmp(x).is_none();
            all.sort_by(|a, b| a.partial_cmp(b).unwrap_or_else(|| is_nan(a).cmp(&is_nan(b))));
            all.dedup();
            let len = all.len();
            Array::from_vec::<T>(all, &[len]).expect("a vector")
        }))
    }

    /// Returns whether any element along some axes, or of all if none is named, is true; `false` for no element.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when there is no such axis,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when the tensor is not boolean.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::Tensor;
    /// let x = Tensor::from_vec(vec![true, false, false, false], &[2, 2])?;
    /// assert_eq!(x.any(&[1], false)?.to_vec::<bool>()?, [true, false]);
    /// assert_eq!(x.all(&[], false)?.to_vec::<bool>()?, [false]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn any(&self, axes: &[isize], keep_dims: bool) -> Result<Tensor> {
        if self.dtype() != DType::Bool {
            return Err(Error::dtype(format!("needs a boolean tensor, got {}; compare first, or cast", self.dtype())));
        }
        // A sum of 0 and 1 is 0 only if all are, in every dtype.
        self.cast(DType::F32).sum(axes, keep_dims)?.gt(0.0)
    }

    /// Returns whether all elements along some axes, or of all if none is named, are true; `true` for no element.
    ///
    /// # Errors
    /// As for [`any`](Tensor::any).
    pub fn all(&self, axes: &[isize], keep_dims: bool) -> Result<Tensor> {
        match self.dtype() {
            DType::Bool => self.logical_not()?.any(axes, keep_dims)?.logical_not(),
            _ => self.any(axes, keep_dims),
        }
    }
}
