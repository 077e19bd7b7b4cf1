//! Splitting and joining of tensors. Every op here works for every dtype; parts share the storage.

use std::ops::Range;

use ndarray::{ArrayRef, ArrayViewD, ArrayViewMutD, Axis, IxDyn, Slice};
use precast_kernels::memory;

use crate::{
    Op, Tensor,
    error::{Error, Result},
    ops::{
        call, dispatch,
        index::shape::{axis_at, back_to, only, reshaped},
        spatial::windows::checked_shape,
    },
    tensor::{Array, Forward, Stored, with_array},
};

fn sliced(x: &Array, axis: usize, range: Range<usize>) -> Array {
    with_array!(x, a: T => {
        T::wrap(a.viewed(|mut a| {
            a.slice_axis_inplace(Axis(axis), Slice::from(range));
            a
        }))
    })
}

/// Returns `fill` with `x` copied into it from the offset `at` of each axis.
fn laid_into<T: Stored>(x: &ArrayRef<T, IxDyn>, shape: &[usize], at: &[usize], fill: T) -> Array {
    let mut whole = memory::uninit_vec(shape.iter().product());
    whole.fill(fill);
    let mut part = ArrayViewMutD::from_shape(IxDyn(shape), &mut whole).expect("one element for each");
    for (axis, &start) in at.iter().enumerate() {
        part.slice_axis_inplace(Axis(axis), Slice::from(start..start + x.shape()[axis]));
    }
    part.assign(x);
    Array::from_vec(whole, shape).expect("one element for each")
}

/// Joins views along an axis, into an array of this shape: its length along the axis is the sum of theirs.
pub(super) fn joined<'a, T: Stored>(
    views: impl Iterator<Item = ArrayViewD<'a, T>>,
    axis: usize,
    shape: &[usize],
) -> Array {
    let mut whole = memory::uninit_vec(shape.iter().product());
    let mut rest = ArrayViewMutD::from_shape(IxDyn(shape), &mut whole).expect("one element for each");
    for view in views {
        let (mut part, after) = rest.split_at(Axis(axis), view.len_of(Axis(axis)));
        part.assign(&view);
        rest = after;
    }
    Array::from_vec(whole, shape).expect("one element for each")
}

/// Returns the arrays of tensors of one dtype.
fn views<T: Stored>(inputs: &[Tensor]) -> Result<Vec<ArrayViewD<'_, T>>> {
    let views: Option<Vec<_>> = inputs.iter().map(|x| x.array().view::<T>()).collect();
    views.ok_or_else(|| {
        let met: Vec<&str> = inputs.iter().map(|x| x.dtype().name()).collect();
        Error::dtype(format!("needs tensors of one dtype, got {}", met.join(", ")))
    })
}

/// Returns the shape of the first tensor, after checking that all others agree with it under `reduce`.
fn common_shape(inputs: &[Tensor], reduce: impl Fn(&[usize]) -> Vec<usize>, but: &str) -> Result<Vec<usize>> {
    let first = inputs.first().ok_or_else(|| Error::shape("needs at least one tensor"))?.shape();
    for x in inputs {
        if x.rank() != first.len() || reduce(x.shape()) != reduce(first) {
            return Err(Error::shape(format!("{first:?} and {:?} differ{but}", x.shape())));
        }
    }
    Ok(first.to_vec())
}

impl Tensor {
    pub(in crate::ops) fn sliced_by(
        &self,
        op: Op,
        axis: isize,
        range: Range<usize>,
        keep_axis: bool,
    ) -> Result<Tensor> {
        dispatch(call!(op, &[self]; axis, range, keep_axis), |inputs| {
            let shape = inputs[0].shape().to_vec();
            let axis = axis_at(axis, shape.len())?;
            if range.start > range.end || range.end > shape[axis] {
                return Err(Error::shape(format!(
                    "the range {range:?} does not lie inside axis {axis} of {shape:?}; 0..{} is allowed",
                    shape[axis]
                )));
            }
            let mut at = vec![0; shape.len()];
            at[axis] = range.start;
            let part = sliced(only(inputs), axis, range.clone());
            let kept = part.shape().to_vec();
            let mut squeezed = kept.clone();
            squeezed.remove(axis);
            let value = if keep_axis { part } else { reshaped(&part, &squeezed)? };
            Ok(Forward::new(value, vec![], move |b| {
                let grad = reshaped(b.grad.array(), &kept)?;
                back_to(with_array!(&grad, g: T => laid_into::<T>(g, &shape, &at, T::default())))
            }))
        })
    }

    /// Returns the elements of `range` along one axis. The result shares the storage.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when there is no such axis or the range exceeds it.
    pub fn slice(&self, axis: isize, range: Range<usize>) -> Result<Tensor> {
        self.sliced_by(Op::Slice, axis, range, true)
    }

    /// Returns the elements at one index of an axis, which is removed.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when there is no such axis or index.
    pub fn at(&self, axis: isize, index: usize) -> Result<Tensor> {
        self.sliced_by(Op::Slice, axis, index..index.saturating_add(1), false)
    }

    /// Splits one axis into pieces of the given lengths. They share the storage.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the lengths do not add up to the axis.
    pub fn split(&self, lengths: &[usize], axis: isize) -> Result<Vec<Tensor>> {
        let at = axis_at(axis, self.rank()).map_err(|e| e.in_op(Op::Split.name()))?;
        if lengths.iter().try_fold(0usize, |sum, &len| sum.checked_add(len)) != Some(self.shape()[at]) {
            let message = format!("pieces of {lengths:?} do not add up to axis {at} of {:?}", self.shape());
            return Err(Error::shape(message).in_op(Op::Split.name()));
        }
        let mut start = 0;
        lengths
            .iter()
            .map(|len| {
                let range = start..start + len;
                start = range.end;
                self.sliced_by(Op::Split, axis, range, true)
            })
            .collect()
    }

    /// Splits one axis into `n` pieces of equal length. They share the storage.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the length of the axis is not divisible by `n`.
    pub fn chunk(&self, n: usize, axis: isize) -> Result<Vec<Tensor>> {
        let at = axis_at(axis, self.rank()).map_err(|e| e.in_op(Op::Split.name()))?;
        let len = self.shape()[at];
        if n == 0 || n > len.max(1) || !len.is_multiple_of(n) {
            let message = format!("axis {at} of {:?} does not divide into {n} equal pieces", self.shape());
            return Err(Error::shape(message).in_op(Op::Split.name()));
        }
        self.split(&vec![len / n; n], axis)
    }

    /// Joins tensors along an existing axis; the other axes agree. Dtypes promote.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when there is no tensor, no such axis, or other axes differ.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::{DType, Tensor};
    /// let (a, b) = (Tensor::zeros(&[2, 3], DType::F32), Tensor::ones(&[2, 1], DType::F32));
    /// assert_eq!(Tensor::concat(&[&a, &b], -1)?.shape(), [2, 4]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    #[doc(alias = "cat")]
    pub fn concat(tensors: &[&Tensor], axis: isize) -> Result<Tensor> {
        dispatch(call!(Op::Concat, tensors; axis), |inputs| {
            let Some(first) = inputs.first() else { return Err(Error::shape("needs at least one tensor")) };
            let axis = axis_at(axis, first.rank())?;
            let others = |shape: &[usize]| [&shape[..axis], &shape[axis + 1..]].concat();
            let mut shape = common_shape(inputs, others, &format!(" in more than axis {axis}"))?;
            let lengths: Vec<usize> = inputs.iter().map(|x| x.shape()[axis]).collect();
            shape[axis] = lengths.iter().fold(0, |sum, &len| sum.saturating_add(len));
            let shape = checked_shape(shape)?;
            let value = with_array!(inputs[0].array(), _x: T => joined(views::<T>(inputs)?.into_iter(), axis, &shape));
            Ok(Forward::new(value, vec![], move |b| {
                let mut start = 0;
                let part = |len: &usize| {
                    let range = start..start + len;
                    start = range.end;
                    Some(Tensor::from_array(sliced(b.grad.array(), axis, range)))
                };
                Ok(lengths.iter().map(part).collect())
            }))
        })
    }

    /// Stacks tensors of one shape along a new axis. Dtypes promote.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when there is no tensor, the result has no such axis, or shapes
    /// differ.
    pub fn stack(tensors: &[&Tensor], axis: isize) -> Result<Tensor> {
        dispatch(call!(Op::Stack, tensors; axis), |inputs| {
            let mut shape = common_shape(inputs, <[usize]>::to_vec, "")?;
            let axis = axis_at(axis, shape.len() + 1)?;
            shape.insert(axis, inputs.len());
            let shape = checked_shape(shape)?;
            let value = with_array!(inputs[0].array(), _x: T => {
                joined(views::<T>(inputs)?.into_iter().map(|view| view.insert_axis(Axis(axis))), axis, &shape)
            });
            let count = inputs.len();
            Ok(Forward::new(value, vec![], move |b| {
                let part = |i: usize| {
                    with_array!(b.grad.array(), g: T => {
                        let part = g.viewed(|g| g.index_axis_move(Axis(axis), i));
                        Some(Tensor::from_array(T::wrap(part)))
                    })
                };
                Ok((0..count).map(part).collect())
            }))
        })
    }

    /// Pads each axis before and after with elements of `value`: one pair per axis.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when there is not one pair per axis.
    pub fn pad(&self, pairs: &[(usize, usize)], value: f64) -> Result<Tensor> {
        dispatch(call!(Op::Pad, &[self]; pairs, value), |inputs| {
            let x = &inputs[0];
            let from = x.shape().to_vec();
            if pairs.len() != from.len() {
                return Err(Error::shape(format!("{} pairs pad {} axes: {from:?}", pairs.len(), from.len())));
            }
            let padded = from.iter().zip(pairs).map(|(len, (a, b))| len.saturating_add(*a).saturating_add(*b));
            let shape = checked_shape(padded.collect())?;
            let before: Vec<usize> = pairs.iter().map(|pair| pair.0).collect();
            let fill = Tensor::scalar(value, x.dtype());
            let value = with_array!(only(inputs), a: T => {
                laid_into(a, &shape, &before, fill.array().slice::<T>().and_then(|s| s.first().copied()).unwrap_or_default())
            });
            Ok(Forward::new(value, vec![], move |b| {
                let mut grad = b.grad.array().clone();
                for (axis, &len) in from.iter().enumerate() {
                    grad = sliced(&grad, axis, before[axis]..before[axis] + len);
                }
                back_to(grad)
            }))
        })
    }
}
