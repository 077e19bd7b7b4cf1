//! Writes to elements at integer indices. Sums are rounded once.

use precast_kernels::{
    float::Float,
    memory,
    memory::{Elements, Pooled},
};

use crate::{
    Op, Tensor,
    error::{Error, Result},
    ops::{
        Call, by_float, call, dispatch, elements,
        index::{
            pick::{self, Places, checked_indices},
            shape::axis_at,
        },
        one_float_dtype,
    },
    tensor::{Array, Forward, Stored, with_array},
};

/// Returns `x` with `values` added at their places.
fn added(x: &Tensor, index: &Tensor, values: &Tensor, places: &Places) -> Result<Array> {
    by_float!(x, T => {
        let mut sums = <T as Float>::widen_slice(&elements::<T>(x)).into_buffer();
        places.add::<T>(&mut sums, x.shape(), index, &elements::<T>(values))?;
        Array::from_vec(T::narrow_vec(sums), x.shape())
    })
}

/// Returns `x` with each run of `values` written at its offset. If several have the same offset, the last one wins.
fn replaced<T: Stored>(x: Elements<'_, T>, values: &[T], at: &[usize], run: usize) -> Pooled<T> {
    let mut all = x.into_buffer();
    match run {
        1 => at.iter().zip(values).for_each(|(&i, &value)| all[i] = value),
        _ => at.iter().enumerate().for_each(|(n, i)| {
            all[i * run..(i + 1) * run].copy_from_slice(&values[n * run..(n + 1) * run]);
        }),
    }
    all
}

/// Returns the gradients of a tensor and of the runs written to it. Overwritten elements and runs have gradient 0.
fn replaced_backward(grad: &Tensor, shape: &[usize], at: &[usize], run: usize) -> Result<Vec<Option<Tensor>>> {
    fn go<T: Stored>(grad: &[T], at: &[usize], run: usize) -> [Pooled<T>; 2] {
        let (mut left, mut parts) = (memory::copied(grad), memory::zeros(at.len() * run));
        let mut is_met = vec![false; grad.len().checked_div(run).unwrap_or(0)];
        for (n, &i) in at.iter().enumerate().rev().take_while(|_| run > 0) {
            if !std::mem::replace(&mut is_met[i], true) {
                parts[n * run..(n + 1) * run].copy_from_slice(&grad[i * run..(i + 1) * run]);
                left[i * run..(i + 1) * run].fill(T::default());
            }
        }
        [left, parts]
    }
    by_float!(grad, T => {
        let [left, parts] = go::<T>(&elements(grad), at, run);
        let left = Array::from_vec(left, grad.shape()).map(Tensor::from_array)?;
        let parts = Array::from_vec(parts, shape).map(Tensor::from_array)?;
        Ok(vec![Some(left), None, Some(parts)])
    })
}

/// Runs an op that adds runs of `values` to `x`, or writes them to it. Only the index is saved.
fn put(
    call: Call<'_>,
    accumulate: bool,
    places: impl Fn(&[usize], &Tensor, &[usize]) -> Result<Places> + Send + Sync + 'static,
) -> Result<Tensor> {
    dispatch(call, |inputs| {
        let [x, index, values] = inputs else { unreachable!("three inputs") };
        if accumulate {
            one_float_dtype(&[x.clone(), values.clone()])?;
        } else if x.dtype() != values.dtype() {
            return Err(Error::dtype(format!("{} values for a tensor of {}", values.dtype(), x.dtype())));
        }
        let to = places(x.shape(), index, values.shape())?;
        let value = match accumulate {
            true => added(x, index, values, &to)?,
            false => {
                let (at, run) = to.runs(x.shape(), index)?;
                with_array!(x.array(), array: T => {
                    let _ = array;
                    Array::from_vec(replaced::<T>(elements(x), &elements(values), &at, run), x.shape())
                })?
            }
        };
        let (from, wanted) = (x.shape().to_vec(), values.shape().to_vec());
        Ok(Forward::new(value, vec![index.clone()], move |back| {
            let index = &back.saved[0];
            let to = places(&from, index, &wanted)?;
            if !accumulate {
                let (at, run) = to.runs(&from, index)?;
                return replaced_backward(back.grad, &wanted, &at, run);
            }
            let grad = || to.picked(back.grad, index, &wanted).map(Tensor::from_array);
            Ok(vec![Some(back.grad.clone()), None, back.needs[2].then(grad).transpose()?])
        }))
    })
}

/// Addresses single elements, by an index along an axis for each.
fn along(axis: isize) -> impl Fn(&[usize], &Tensor, &[usize]) -> Result<Places> {
    move |from, index, values| {
        let axis = axis_at(axis, from.len())?;
        if index.shape() != values {
            let index = index.shape();
            return Err(Error::shape(format!("the index {index:?} and the values {values:?} differ in shape")));
        }
        pick::along(from, axis, index)
    }
}

/// Addresses slices of an axis, by a vector of indices.
fn slices(axis: isize) -> impl Fn(&[usize], &Tensor, &[usize]) -> Result<Places> {
    move |from, index, values| {
        let axis = axis_at(axis, from.len())?;
        if index.rank() != 1 {
            return Err(Error::shape(format!("the index must be a vector, got {:?}", index.shape())));
        }
        let mut wanted = from.to_vec();
        wanted[axis] = index.len();
        if values != wanted {
            let message = format!("values of shape {values:?}; {from:?} and the index need {wanted:?}");
            return Err(Error::shape(message));
        }
        let (len, outer) = (from[axis], from[..axis].iter().product::<usize>());
        let indices = checked_indices(index, len)?;
        let at = (0..outer).flat_map(|o| indices.iter().map(move |i| o * len + i)).collect();
        Ok(Places::Runs(at, from[axis + 1..].iter().product()))
    }
}

/// Addresses slices of axis 0, by indices of any shape.
fn rows(from: &[usize], index: &Tensor, values: &[usize]) -> Result<Places> {
    let Some((&len, slice)) = from.split_first() else {
        return Err(Error::shape("a scalar has no axis 0"));
    };
    let wanted = [index.shape(), slice].concat();
    if values != wanted {
        let message = format!("values of shape {values:?}; {from:?} and the index need {wanted:?}");
        return Err(Error::shape(message));
    }
    Ok(Places::Runs(checked_indices(index, len)?, slice.iter().product()))
}

impl Tensor {
    /// Adds `src[i][j][k]` at `[i][index[i][j][k]][k]` for axis 1, and likewise for every axis, as torch's
    /// `scatter_add`: the adjoint of [`gather`](Tensor::gather). `index` and `src` have one shape, which may exceed
    /// this tensor only along `axis`. Floating dtypes promote.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not fit,
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for an index out of range,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when the index is not i64 or the others are not floating.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::{DType, Tensor};
    /// let index = Tensor::from_vec(vec![2i64, 0, 2], &[3])?;
    /// let sums = Tensor::zeros(&[3], DType::F32).scatter_add(0, &index, &Tensor::ones(&[3], DType::F32))?;
    /// assert_eq!(sums.to_f64(), [1., 0., 2.]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn scatter_add(&self, axis: isize, index: &Tensor, src: &Tensor) -> Result<Tensor> {
        put(call!(Op::ScatterAdd, &[self, index, src]; axis), true, along(axis))
    }

    /// Writes as [`scatter_add`](Tensor::scatter_add) adds: `src` replaces the present elements. If several have the
    /// same place, the last one wins.
    ///
    /// # Errors
    /// As for [`scatter_add`](Tensor::scatter_add); integer and boolean tensors are allowed.
    pub fn scatter(&self, axis: isize, index: &Tensor, src: &Tensor) -> Result<Tensor> {
        put(call!(Op::Scatter, &[self, index, src]; axis), false, along(axis))
    }

    /// Adds the slices of `values` along an axis to those named by a vector of indices. Floating dtypes promote.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not fit,
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for an index out of range,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when the index is not i64 or the others are not floating.
    pub fn index_add(&self, axis: isize, index: &Tensor, values: &Tensor) -> Result<Tensor> {
        put(call!(Op::IndexAdd, &[self, index, values]; axis), true, slices(axis))
    }

    /// Writes as [`index_add`](Tensor::index_add) adds: the values replace the present elements. If several have the
    /// same place, the last one wins.
    ///
    /// # Errors
    /// As for [`index_add`](Tensor::index_add); integer and boolean tensors are allowed.
    pub fn index_copy(&self, axis: isize, index: &Tensor, values: &Tensor) -> Result<Tensor> {
        put(call!(Op::IndexCopy, &[self, index, values]; axis), false, slices(axis))
    }

    /// Puts the slices of `values` at the positions of axis 0 named by `index`: `[n, ...]`, an index `[k...]` and
    /// values `[k..., ...]`. With `accumulate` they are added to the present elements; otherwise they replace them, and
    /// if several have the same place, the last one wins. Floating dtypes promote.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not fit,
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for an index out of range,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when the index is not i64, the others differ, or are accumulated
    /// and not floating.
    pub fn index_put(&self, index: &Tensor, values: &Tensor, accumulate: bool) -> Result<Tensor> {
        put(call!(Op::IndexPut, &[self, index, values]; accumulate), accumulate, rows)
    }
}
