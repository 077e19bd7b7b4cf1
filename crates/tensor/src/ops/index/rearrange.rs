//! Elements in another order, repeated, or replaced by 0 on one side of a diagonal. Every op here works for every
//! dtype, and no number is rounded; only the gradients of repeated elements are summed.

use ndarray::{Axis, IxDyn};
use precast_kernels::strides::row_major;

use crate::{
    DType, Op, Tensor,
    error::{Error, Result},
    ops::{
        call, dispatch,
        index::{
            shape::{axis_at, back_to, only, reshaped, summed_to},
            slice_concat::joined,
        },
        spatial::windows::checked_shape,
    },
    tensor::{Array, Forward, with_array},
};

fn flipped(x: &Array, axes: &[usize]) -> Array {
    with_array!(x, a: T => {
        let mut view = a.view();
        axes.iter().for_each(|&axis| view.invert_axis(Axis(axis)));
        Array::from_vec::<T>(row_major(&view), x.shape()).expect("the shape is the same")
    })
}

/// Moves the elements of each axis towards its end, and those beyond it to the beginning.
fn rolled(x: &Array, moves: &[(usize, isize)]) -> Array {
    let mut x = x.clone();
    for &(axis, by) in moves {
        let len = x.shape()[axis];
        if len == 0 {
            continue;
        }
        let kept = len - by.rem_euclid(len as isize) as usize;
        x = with_array!(&x, a: T => {
            let (front, back) = a.view().split_at(Axis(axis), kept);
            joined::<T>([back, front].into_iter(), axis, x.shape())
        });
    }
    x
}

/// Part of a matrix that is kept.
#[derive(Clone, Copy)]
enum Triangle {
    Lower,
    Upper,
}

/// Replaces the elements of each matrix on the other side of a diagonal by 0.
fn triangle(x: &Array, part: Triangle, diagonal: isize) -> Result<Array> {
    let &[.., rows, columns] = x.shape() else {
        return Err(Error::shape(format!("needs a matrix, got {:?}", x.shape())));
    };
    with_array!(x, a: T => {
        let mut data = row_major(&a.view());
        for (place, row) in data.chunks_exact_mut(columns.max(1)).enumerate() {
            let on_diagonal = diagonal.saturating_add_unsigned(place % rows);
            let zero = match part {
                Triangle::Lower => on_diagonal.saturating_add(1).clamp(0, columns as isize) as usize..columns,
                Triangle::Upper => 0..on_diagonal.clamp(0, columns as isize) as usize,
            };
            row[zero].fill(T::default());
        }
        Array::from_vec::<T>(data, x.shape())
    })
}

impl Tensor {
    /// Reverses the order of the elements along some axes.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when there is no such axis or one is named twice.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::Tensor;
    /// let x = Tensor::from_vec(vec![1f32, 2., 3., 4., 5., 6.], &[2, 3])?;
    /// assert_eq!(x.flip(&[-1])?.to_f64(), [3., 2., 1., 6., 5., 4.]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    #[doc(alias = "reverse")]
    pub fn flip(&self, axes: &[isize]) -> Result<Tensor> {
        dispatch(call!(Op::Reverse, &[self]; axes), |inputs| {
            let rank = inputs[0].rank();
            let places = axes.iter().map(|&axis| axis_at(axis, rank)).collect::<Result<Vec<usize>>>()?;
            if let Some(twice) = (1..places.len()).find(|&i| places[..i].contains(&places[i])) {
                return Err(Error::shape(format!("axis {} is named twice in {axes:?}", axes[twice])));
            }
            let value = flipped(only(inputs), &places);
            Ok(Forward::new(value, vec![], move |b| back_to(flipped(b.grad.array(), &places))))
        })
    }

    /// Moves the elements along some axes towards their ends, and those beyond an end to the beginning: one number of
    /// places for each axis, negative ones towards the beginning. The moves of an axis named twice add up.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when there is no such axis, or there is not one shift per axis.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::Tensor;
    /// let x = Tensor::from_vec(vec![1f32, 2., 3., 4.], &[4])?;
    /// assert_eq!(x.roll(&[1], &[0])?.to_f64(), [4., 1., 2., 3.]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn roll(&self, shifts: &[isize], axes: &[isize]) -> Result<Tensor> {
        dispatch(call!(Op::Roll, &[self]; shifts, axes), |inputs| {
            if shifts.len() != axes.len() {
                return Err(Error::shape(format!("{} shifts for {} axes: {axes:?}", shifts.len(), axes.len())));
            }
            let of = |(&axis, &by): (&isize, &isize)| Ok((axis_at(axis, inputs[0].rank())?, by));
            let moves = axes.iter().zip(shifts).map(of).collect::<Result<Vec<_>>>()?;
            let value = rolled(only(inputs), &moves);
            // The length of the axis is subtracted first, so that no shift overflows.
            let back = |&(axis, by): &(usize, isize)| (axis, -(by % value.shape()[axis].max(1) as isize));
            let back: Vec<_> = moves.iter().map(back).collect();
            Ok(Forward::new(value, vec![], move |b| back_to(rolled(b.grad.array(), &back))))
        })
    }

    fn triangle_of(&self, op: Op, part: Triangle, diagonal: isize) -> Result<Tensor> {
        dispatch(call!(op, &[self]; diagonal), |inputs| {
            let value = triangle(only(inputs), part, diagonal)?;
            Ok(Forward::new(value, vec![], move |b| back_to(triangle(b.grad.array(), part, diagonal)?)))
        })
    }

    /// Keeps the lower triangle of each matrix `[..., rows, columns]` and replaces the elements above a diagonal by 0,
    /// even if they are NaN. Diagonal 0 is the main one, positive ones are above it.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the tensor has fewer than two axes.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::{DType, Tensor};
    /// let causal = Tensor::ones(&[3, 3], DType::Bool).tril(0)?;
    /// assert_eq!(causal.to_f64(), [1., 0., 0., 1., 1., 0., 1., 1., 1.]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn tril(&self, diagonal: isize) -> Result<Tensor> {
        self.triangle_of(Op::Tril, Triangle::Lower, diagonal)
    }

    /// Keeps the upper triangle of each matrix `[..., rows, columns]` and replaces the elements below a diagonal by 0,
    /// even if they are NaN. Diagonal 0 is the main one, positive ones are above it.
    ///
    /// # Errors
    /// As for [`tril`](Tensor::tril).
    pub fn triu(&self, diagonal: isize) -> Result<Tensor> {
        self.triangle_of(Op::Triu, Triangle::Upper, diagonal)
    }

    /// Repeats the tensor along its last axes, once for each number: `[2, 3]` with `[1, 4]` is `[2, 12]`. More numbers
    /// than axes prepend axes.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the result does not fit into memory.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::Tensor;
    /// let x = Tensor::from_vec(vec![1f32, 2.], &[2])?;
    /// assert_eq!(x.tile(&[2, 2])?.to_f64(), [1., 2., 1., 2., 1., 2., 1., 2.]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    #[doc(alias = "repeat")]
    pub fn tile(&self, repeats: &[usize]) -> Result<Tensor> {
        dispatch(call!(Op::Tile, &[self]; repeats), |inputs| {
            let from = inputs[0].shape().to_vec();
            let rank = from.len().max(repeats.len());
            let padded = |of: &[usize]| [&vec![1; rank - of.len()], of].concat();
            let (lengths, times) = (padded(&from), padded(repeats));
            let shape = lengths.iter().zip(&times).map(|(len, times)| len.saturating_mul(*times)).collect();
            let shape = checked_shape(shape)?;
            let pairs = |f: fn(usize, usize) -> [usize; 2]| -> Vec<usize> {
                lengths.iter().zip(&times).flat_map(|(&len, &times)| f(len, times)).collect()
            };
            // Without elements, an axis may be repeated more often than memory can address.
            let (apart, stretched) = (pairs(|len, _| [1, len]), checked_shape(pairs(|len, times| [times, len]))?);
            let value = with_array!(&reshaped(only(inputs), &apart)?, a: T => {
                let view = a.broadcast(IxDyn(&stretched)).expect("axes of length 1 are stretched");
                Array::from_vec::<T>(row_major(&view), &shape)
            })?;
            Ok(Forward::new(value, vec![], move |b| {
                let grad = reshaped(b.grad.array(), &stretched)?;
                back_to(reshaped(&summed_to(&grad, &apart), &from)?)
            }))
        })
    }

    /// Repeats each slice of an axis: `[1, 2]` twice is `[1, 1, 2, 2]`.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when there is no such axis or the result does not fit into memory.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::Tensor;
    /// let x = Tensor::from_vec(vec![1f32, 2.], &[2])?;
    /// assert_eq!(x.repeat_interleave(2, 0)?.to_f64(), [1., 1., 2., 2.]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn repeat_interleave(&self, times: usize, axis: isize) -> Result<Tensor> {
        let axis = axis_at(axis, self.rank())?;
        let (mut stretched, mut to) = (self.shape().to_vec(), self.shape().to_vec());
        stretched.insert(axis + 1, times);
        to[axis] = to[axis].saturating_mul(times);
        checked_shape(to.clone())?;
        self.unsqueeze(axis as isize + 1)?.broadcast_to(&stretched)?.reshape(&to)
    }

    /// Returns the slices of an axis, which they lack.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when there is no such axis.
    pub fn unbind(&self, axis: isize) -> Result<Vec<Tensor>> {
        let at = axis_at(axis, self.rank())?;
        (0..self.shape()[at]).map(|place| self.at(axis, place)).collect()
    }

    /// Returns the coordinates of a grid, one tensor for each axis: each vector stretched over the axes of the others, as
    /// torch's `meshgrid` with `indexing="ij"`. The results share the storage of the vectors.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) for a tensor of two or more axes; a scalar is a vector of one.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::Tensor;
    /// let grid = Tensor::meshgrid(&[&Tensor::arange(2), &Tensor::arange(3)])?;
    /// assert_eq!(grid[0].to_f64(), [0., 0., 0., 1., 1., 1.]);
    /// assert_eq!(grid[1].to_f64(), [0., 1., 2., 0., 1., 2.]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn meshgrid(vectors: &[&Tensor]) -> Result<Vec<Tensor>> {
        if let Some(other) = vectors.iter().find(|x| x.rank() > 1) {
            return Err(Error::shape(format!("a grid is made of vectors, got the shape {:?}", other.shape())));
        }
        let len = |x: &&Tensor| x.shape().first().copied().unwrap_or(1);
        let shape = checked_shape(vectors.iter().map(len).collect())?;
        let stretched = |(axis, x): (usize, &&Tensor)| {
            let mut along = vec![1; vectors.len()];
            along[axis] = shape[axis];
            x.reshape(&along)?.broadcast_to(&shape)
        };
        vectors.iter().enumerate().map(stretched).collect()
    }

    /// Moves one axis to another place; the others keep their order. The result shares the storage.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when there is no such axis.
    #[doc(alias = "movedim")]
    pub fn move_axis(&self, from: isize, to: isize) -> Result<Tensor> {
        let (from, to) = (axis_at(from, self.rank())?, axis_at(to, self.rank())?);
        let mut axes: Vec<usize> = (0..self.rank()).filter(|&axis| axis != from).collect();
        axes.insert(to, from);
        self.permute(&axes)
    }

    /// Returns a diagonal of each matrix `[..., rows, columns]`, as the last axis. Diagonal 0 is the main one, positive
    /// ones are above it; one beyond the matrix is empty.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the tensor has fewer than two axes.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::Tensor;
    /// let x = Tensor::from_vec(vec![1f32, 2., 3., 4., 5., 6.], &[2, 3])?;
    /// assert_eq!(x.diagonal(0)?.to_f64(), [1., 5.]);
    /// assert_eq!(x.diagonal(1)?.to_f64(), [2., 6.]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn diagonal(&self, diagonal: isize) -> Result<Tensor> {
        let &[ref outer @ .., rows, columns] = self.shape() else {
            return Err(Error::shape(format!("needs a matrix, got {:?}", self.shape())));
        };
        let column = |row: usize| diagonal.saturating_add_unsigned(row);
        let inside = |row: &usize| (0..columns as isize).contains(&column(*row));
        let places: Vec<i64> =
            (0..rows).filter(inside).map(|row| (row * columns) as i64 + column(row) as i64).collect();
        let count = places.len();
        let flat = self.reshape(&[outer, &[rows * columns]].concat())?;
        flat.index_select(-1, &Tensor::from_vec(places, &[count])?)
    }

    /// Returns square matrices with the last axis on their main diagonals, and 0 elsewhere.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) for a scalar.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::Tensor;
    /// let x = Tensor::from_vec(vec![1f32, 2.], &[2])?;
    /// assert_eq!(x.diag_embed()?.to_f64(), [1., 0., 0., 2.]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    #[doc(alias = "diag")]
    pub fn diag_embed(&self) -> Result<Tensor> {
        let Some(&n) = self.shape().last() else { return Err(Error::shape("a scalar has no axis for a diagonal")) };
        let on_diagonal = Tensor::eye(n)?.cast(DType::Bool);
        on_diagonal.select(&self.unsqueeze(-1)?, &Tensor::scalar(0.0, self.dtype()))
    }
}
