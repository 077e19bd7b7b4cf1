//! Changes of shape. Every op here works for every dtype; views share the storage where possible.

use ndarray::IxDyn;
use precast_kernels::{float::Float, strides::row_major};

use crate::{
    Op, Tensor,
    error::{Error, Result},
    ops::{Call, call, dispatch, elementwise::pairwise::sum_to, spatial::windows::checked_shape},
    tensor::{Array, Forward, Stored, with_array, with_float},
};

/// Resolves an axis given by the user: negative ones count from the end.
pub(crate) fn axis_at(axis: isize, rank: usize) -> Result<usize> {
    let at = if axis < 0 { axis.checked_add_unsigned(rank) } else { Some(axis) };
    match at.and_then(|at| usize::try_from(at).ok()).filter(|&at| at < rank) {
        Some(at) => Ok(at),
        None if rank == 0 => Err(Error::shape(format!("axis {axis}: a scalar has no axes"))),
        None => Err(Error::shape(format!("axis {axis} is out of range: -{rank} to {} is allowed", rank - 1))),
    }
}

/// Returns the same elements in row-major order with another shape of the same length.
pub(in crate::ops) fn reshaped(x: &Array, shape: &[usize]) -> Result<Array> {
    with_array!(&x.contiguous(), a: T => {
        a.reshaped(shape).map(T::wrap).ok_or_else(|| {
            Error::shape(format!("{:?} does not fill {shape:?}: the numbers of elements differ", x.shape()))
        })
    })
}

fn permuted(x: &Array, axes: &[usize]) -> Array {
    with_array!(x, a: T => T::wrap(a.viewed(|a| a.permuted_axes(IxDyn(axes)))))
}

/// Sums over the stretched axes, rounded once.
pub(in crate::ops) fn summed_to(grad: &Array, shape: &[usize]) -> Array {
    with_float!(&grad.contiguous(), g: T => {
        let wide = T::widen_slice(g.as_slice().expect("contiguous")).into_buffer();
        Array::from_vec(T::narrow_vec(sum_to(wide, grad.shape(), shape)), shape).expect("the sums fill the smaller shape")
    }, else unreachable!("gradients are floating"))
}

/// Returns the op's only input.
pub(in crate::ops) fn only(inputs: &[Tensor]) -> &Array {
    inputs[0].array()
}

/// Returns the gradient of the op's only input.
pub(in crate::ops) fn back_to(array: Array) -> Result<Vec<Option<Tensor>>> {
    Ok(vec![Some(Tensor::from_array(array))])
}

impl Tensor {
    fn reshaped_by(call: Call<'_>, to: impl FnOnce(&[usize]) -> Result<Vec<usize>>) -> Result<Tensor> {
        dispatch(call, |inputs| {
            let from = inputs[0].shape().to_vec();
            let value = reshaped(only(inputs), &to(&from)?)?;
            Ok(Forward::new(value, vec![], move |b| back_to(reshaped(b.grad.array(), &from)?)))
        })
    }

    fn permuted_by(&self, to: impl FnOnce(usize) -> Result<Vec<usize>>) -> Result<Tensor> {
        let axes = to(self.rank()).map_err(|e| e.in_op(Op::Transpose.name()))?;
        dispatch(call!(Op::Transpose, &[self]; axes), |inputs| {
            let mut back = vec![0; axes.len()];
            axes.iter().enumerate().for_each(|(to, &from)| back[from] = to);
            let value = permuted(only(inputs), &axes);
            Ok(Forward::new(value, vec![], move |b| back_to(permuted(b.grad.array(), &back))))
        })
    }

    /// Returns the same elements in row-major order with another shape. One axis may be -1, and is inferred from the
    /// others. Lengths are integers of any type: `usize`, as in [`shape`](Tensor::shape), or signed ones along with a
    /// -1.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the numbers of elements differ or two axes are negative.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::{DType, Tensor};
    /// let x = Tensor::zeros(&[2, 6], DType::F32);
    /// assert_eq!(x.reshape(&[3, -1])?.shape(), [3, 4]);
    /// assert_eq!(x.reshape(&[x.shape()[0], 2, 3])?.shape(), [2, 2, 3]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    #[doc(alias = "view")]
    pub fn reshape<N: Copy + TryInto<isize>>(&self, shape: &[N]) -> Result<Tensor> {
        // A length that does not fit `isize` exceeds memory.
        let shape: Vec<isize> = shape.iter().map(|&len| len.try_into().unwrap_or(isize::MAX)).collect();
        self.reshape_to(&shape)
    }

    fn reshape_to(&self, shape: &[isize]) -> Result<Tensor> {
        Self::reshaped_by(call!(Op::Reshape, &[self]; shape), |from| {
            let wrong = |why: &str| Error::shape(format!("{from:?} cannot take the shape {shape:?}: {why}"));
            if shape.iter().any(|&len| len < -1) || shape.iter().filter(|&&len| len == -1).count() > 1 {
                return Err(wrong("one axis may be -1, the others are lengths"));
            }
            let lengths = || shape.iter().map(|&len| usize::try_from(len));
            let known = lengths().filter_map(|len| len.ok()).try_fold(1usize, usize::checked_mul);
            let known = known.ok_or_else(|| wrong("it has more elements than memory can address"))?;
            let count: usize = from.iter().product();
            if shape.contains(&-1) && (known == 0 || !count.is_multiple_of(known)) {
                return Err(wrong(&format!("{count} elements do not divide by {known}")));
            }
            Ok(lengths().map(|len| len.unwrap_or_else(|_| count / known)).collect())
        })
    }

    /// Joins the axes from `start_axis` to the last; those before are kept.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when there are fewer axes than `start_axis`.
    pub fn flatten(&self, start_axis: usize) -> Result<Tensor> {
        Self::reshaped_by(call!(Op::Flatten, &[self]; start_axis), |from| {
            let Some((kept, joined)) = from.split_at_checked(start_axis) else {
                return Err(Error::shape(format!("cannot flatten from axis {start_axis}: the shape is {from:?}")));
            };
            Ok([kept, &[joined.iter().product()]].concat())
        })
    }

    /// Inserts an axis of length 1, at position `axis` of the result.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the result has no such axis.
    pub fn unsqueeze(&self, axis: isize) -> Result<Tensor> {
        Self::reshaped_by(call!(Op::Unsqueeze, &[self]; axis), |from| {
            let axis = axis_at(axis, from.len() + 1)?;
            let mut to = from.to_vec();
            to.insert(axis, 1);
            Ok(to)
        })
    }

    /// Removes an axis of length 1.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when there is no such axis or its length is not 1.
    pub fn squeeze(&self, axis: isize) -> Result<Tensor> {
        Self::reshaped_by(call!(Op::Squeeze, &[self]; axis), |from| {
            let axis = axis_at(axis, from.len())?;
            if from[axis] != 1 {
                return Err(Error::shape(format!("axis {axis} of {from:?} has length {}, not 1", from[axis])));
            }
            let mut to = from.to_vec();
            to.remove(axis);
            Ok(to)
        })
    }

    /// Swaps two axes. The result shares the storage.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when there is no such axis.
    pub fn transpose(&self, a: isize, b: isize) -> Result<Tensor> {
        self.permuted_by(|rank| {
            let mut axes: Vec<usize> = (0..rank).collect();
            axes.swap(axis_at(a, rank)?, axis_at(b, rank)?);
            Ok(axes)
        })
    }

    /// Permutes the axes: axis `i` of the result is axis `axes[i]` of this tensor. The result shares the storage.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when `axes` does not name every axis exactly once.
    pub fn permute(&self, axes: &[usize]) -> Result<Tensor> {
        self.permuted_by(|rank| {
            let mut sorted = axes.to_vec();
            sorted.sort_unstable();
            if sorted.iter().copied().ne(0..rank) {
                return Err(Error::shape(format!(
                    "{axes:?} does not name each of the axes 0 to {rank} (exclusive) once"
                )));
            }
            Ok(axes.to_vec())
        })
    }

    /// Transposes a matrix. The result shares the storage.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when this is not a matrix.
    pub fn t(&self) -> Result<Tensor> {
        self.permuted_by(|rank| match rank {
            2 => Ok(vec![1, 0]),
            _ => Err(Error::shape(format!("t() transposes a matrix, got {:?}", self.shape()))),
        })
    }

    /// Rearranges the elements: reshaped to `split`, with axes permuted, and reshaped to `to`.
    fn rearranged(
        call: Call<'_>,
        plan: impl FnOnce(&[usize]) -> Result<(Vec<usize>, [usize; 6], Vec<usize>)>,
    ) -> Result<Tensor> {
        dispatch(call, |inputs| {
            let from = inputs[0].shape().to_vec();
            let (split, axes, to) = plan(&from)?;
            let value = reshaped(&permuted(&reshaped(only(inputs), &split)?, &axes), &to)?;
            let permuted_lengths: Vec<usize> = axes.iter().map(|&axis| split[axis]).collect();
            let mut undo = axes;
            axes.iter().enumerate().for_each(|(to, &from)| undo[from] = to);
            Ok(Forward::new(value, vec![], move |b| {
                back_to(reshaped(&permuted(&reshaped(b.grad.array(), &permuted_lengths)?, &undo), &from)?)
            }))
        })
    }

    /// Moves channels into positions: `[n, c r², h, w] -> [n, c, h r, w r]` (Shi et al. 2016, "sub-pixel convolution").
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when there are not four axes or the channels are not divisible by
    /// r².
    pub fn pixel_shuffle(&self, r: usize) -> Result<Tensor> {
        Self::rearranged(call!(Op::PixelShuffle, &[self]; r), |from| match *from {
            [n, c, h, w] if r > 0 && r.checked_mul(r).is_some_and(|square| c % square == 0) => {
                let c = c / r / r;
                Ok((
                    vec![n, c, r, r, h, w],
                    [0, 1, 4, 2, 5, 3],
                    checked_shape(vec![n, c, h.saturating_mul(r), w.saturating_mul(r)])?,
                ))
            }
            _ => Err(Error::shape(format!("needs [n, c * {r}², h, w], got {from:?}"))),
        })
    }

    /// Moves positions into channels, the inverse of [`pixel_shuffle`](Tensor::pixel_shuffle):
    /// `[n, c, h r, w r] -> [n, c r², h, w]`.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when there are not four axes or height or width is not divisible
    /// by r.
    pub fn pixel_unshuffle(&self, r: usize) -> Result<Tensor> {
        Self::rearranged(call!(Op::SpaceToDepth, &[self]; r), |from| match *from {
            [n, c, h, w] if r > 0 && h % r == 0 && w % r == 0 => {
                let (h, w) = (h / r, w / r);
                Ok((
                    vec![n, c, h, r, w, r],
                    [0, 1, 3, 5, 2, 4],
                    checked_shape(vec![n, c.saturating_mul(r).saturating_mul(r), h, w])?,
                ))
            }
            _ => Err(Error::shape(format!("needs [n, c, h * {r}, w * {r}], got {from:?}"))),
        })
    }

    /// Stretches axes of length 1, and prepends new ones.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shape does not broadcast to the other.
    pub fn broadcast_to(&self, shape: &[usize]) -> Result<Tensor> {
        dispatch(call!(Op::Broadcast, &[self]; shape), |inputs| {
            let from = inputs[0].shape().to_vec();
            let to = checked_shape(shape.to_vec())?;
            let value = with_array!(only(inputs), a: T => {
                let stretched = a.broadcast(IxDyn(&to)).and_then(|a| Array::from_vec::<T>(row_major(&a), &to).ok());
                stretched.ok_or_else(|| Error::shape(format!("{from:?} does not stretch to {to:?}")))
            })?;
            Ok(Forward::new(value, vec![], move |b| back_to(summed_to(b.grad.array(), &from))))
        })
    }
}
