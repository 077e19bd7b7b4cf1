//! Putting elements at integer indices. Sums are kept in f32 and rounded once.

use std::borrow::Cow;

use super::{
    by_float, dispatch, elements,
    index::{checked_indices, offsets_along, picked},
    one_float_dtype,
    shape::axis_at,
};
use crate::{
    Op, Tensor,
    dtype::Float,
    error::{Error, Result},
    tensor::{Array, Forward, Stored, with_array},
};

/// `x` with each run of `values` added at its offset, which counts runs of `run` elements.
fn added(x: &Tensor, values: &Tensor, at: &[usize], run: usize) -> Result<Array> {
    fn go<T: Stored + Float>(x: &Tensor, values: &Tensor, at: &[usize], run: usize) -> Vec<T> {
        let mut sums = T::widen_slice(&elements::<T>(x)).into_owned();
        let values = elements::<T>(values);
        for (n, i) in at.iter().enumerate() {
            let to = sums[i * run..(i + 1) * run].iter_mut();
            to.zip(&values[n * run..(n + 1) * run]).for_each(|(sum, value)| *sum += value.widen());
        }
        T::narrow_vec(sums)
    }
    by_float!(x, T => Array::from_vec(go::<T>(x, values, at, run), x.shape()))
}

/// `x` with each run of `values` in place of that at its offset; the last of several for one place stays.
fn replaced<T: Stored>(x: Cow<'_, [T]>, values: &[T], at: &[usize], run: usize) -> Vec<T> {
    let mut all = x.into_owned();
    for (n, i) in at.iter().enumerate() {
        all[i * run..(i + 1) * run].copy_from_slice(&values[n * run..(n + 1) * run]);
    }
    all
}

/// The gradients of a tensor and of the runs put into it: what is at the places of those that stayed, 0 for the others.
fn replaced_backward(grad: &Tensor, shape: &[usize], at: &[usize], run: usize) -> Result<Vec<Option<Tensor>>> {
    fn go<T: Stored>(grad: &[T], at: &[usize], run: usize) -> [Vec<T>; 2] {
        let mut left = grad.to_vec();
        let mut parts = vec![T::default(); at.len() * run];
        let mut stayed = std::collections::HashSet::new();
        for (n, i) in at.iter().enumerate().rev() {
            if stayed.insert(i) {
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

impl Tensor {
    /// This tensor with `src[i][j][k]` added at `[i][index[i][j][k]][k]` for axis 1, and so for every axis, as torch's
    /// `scatter_add`: the adjoint of [`gather`](Tensor::gather). `index` and `src` have one shape, which is nowhere longer
    /// than this tensor but along `axis`. Floating dtypes promote.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not fit,
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for an index out of range,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when the index is not i64 or the others are not floating.
    ///
    /// ```
    /// # use precast::{DType, Tensor};
    /// let index = Tensor::from_vec(vec![2i64, 0, 2], &[3])?;
    /// let sums = Tensor::zeros(&[3], DType::F32).scatter_add(0, &index, &Tensor::ones(&[3], DType::F32))?;
    /// assert_eq!(sums.to_f64(), [1., 0., 2.]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn scatter_add(&self, axis: isize, index: &Tensor, src: &Tensor) -> Result<Tensor> {
        dispatch(Op::ScatterAdd, &[self, index, src], |inputs| {
            let [x, index, src] = inputs else { unreachable!("three inputs") };
            one_float_dtype(&[x.clone(), src.clone()])?;
            let axis = axis_at(axis, x.rank())?;
            if index.shape() != src.shape() {
                let (index, src) = (index.shape(), src.shape());
                return Err(Error::shape(format!("the index {index:?} and what is added, {src:?}, differ in shape")));
            }
            let at = offsets_along(x.shape(), axis, index)?;
            let value = added(x, src, &at, 1)?;
            let from = x.shape().to_vec();
            Ok(Forward::new(value, vec![index.clone()], move |back| {
                let index = &back.saved[0];
                let grad = || picked(back.grad, &offsets_along(&from, axis, index)?, 1, index.shape());
                let grad = back.needs[2].then(|| grad().map(Tensor::from_array)).transpose()?;
                Ok(vec![Some(back.grad.clone()), None, grad])
            }))
        })
    }

    /// This tensor with the slices of `values` at the places of axis 0 that `index` names: `[n, ...]`, an index `[k...]` and
    /// values `[k..., ...]`. With `accumulate` they are added to what is there, else they take its place; of several for one
    /// place the last stays. Floating dtypes promote.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not fit,
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for an index out of range,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when the index is not i64, the others differ, or are accumulated and
    /// not floating.
    pub fn index_put(&self, index: &Tensor, values: &Tensor, accumulate: bool) -> Result<Tensor> {
        dispatch(Op::IndexPut, &[self, index, values], |inputs| {
            let [x, index, values] = inputs else { unreachable!("three inputs") };
            if x.dtype() != values.dtype() {
                return Err(Error::dtype(format!("{} values for a tensor of {}", values.dtype(), x.dtype())));
            }
            let Some((&len, slice)) = x.shape().split_first() else {
                return Err(Error::shape("a scalar has no axis 0"));
            };
            let wanted = [index.shape(), slice].concat();
            if values.shape() != wanted {
                let (from, met) = (x.shape(), values.shape());
                let message = format!("values of shape {met:?}; {from:?} and the index need {wanted:?}");
                return Err(Error::shape(message));
            }
            let run = slice.iter().product();
            let at = checked_indices(index, len)?;
            let value = match accumulate {
                true => added(x, values, &at, run)?,
                false => with_array!(x.array(), array: T => {
                    let _ = array;
                    Array::from_vec(replaced::<T>(elements(x), &elements(values), &at, run), x.shape())
                })?,
            };
            Ok(Forward::new(value, vec![index.clone()], move |back| {
                let at = checked_indices(&back.saved[0], len)?;
                if !accumulate {
                    return replaced_backward(back.grad, &wanted, &at, run);
                }
                let grad = || picked(back.grad, &at, run, &wanted).map(Tensor::from_array);
                Ok(vec![Some(back.grad.clone()), None, back.needs[2].then(grad).transpose()?])
            }))
        })
    }
}
