//! Selection of elements by integer indices. If an element was picked more than once, its gradients are summed and
//! rounded once.

use crate::ops::{by_float, call, dispatch, elements, index::shape::axis_at, spatial::windows::checked_shape};
use crate::{
    DType, Op, Tensor,
    error::{Error, Result},
    kernels::{
        float::Float,
        memory::{Pooled, with_capacity, zeros},
        reduce,
    },
    tensor::{Array, Forward, Stored, with_array},
};

/// Returns the indices after checking that each is in `0..len`.
pub(in crate::ops) fn checked_indices(index: &Tensor, len: usize) -> Result<Vec<usize>> {
    if index.dtype() != DType::I64 {
        return Err(Error::dtype(format!("indices are i64, got {}; `cast(DType::I64)` makes indices", index.dtype())));
    }
    let check = |&i: &i64| match usize::try_from(i) {
        Ok(at) if at < len => Ok(at),
        _ => Err(Error::value(format!("the index {i} is out of range: 0..{len} is allowed"))),
    };
    elements::<i64>(index).iter().map(check).collect()
}

/// Computes `out[i] = x[at[i]]`, and the backward pass `grad_x[at[i]] += grad[i]`. Offsets count runs of `run`
/// elements.
pub(in crate::ops) fn picked(x: &Tensor, at: &[usize], run: usize, shape: &[usize]) -> Result<Array> {
    with_array!(&x.array().contiguous(), a: T => {
        let data: &[T] = a.as_slice().unwrap_or_default();
        let mut out = with_capacity(at.len() * run);
        at.iter().for_each(|i| out.extend_from_slice(&data[i * run..(i + 1) * run]));
        Array::from_vec::<T>(out, shape)
    })
}

fn scattered(grad: &Tensor, at: &[usize], run: usize, shape: &[usize]) -> Result<Array> {
    fn go<T: Stored + Float>(grad: &Tensor, at: &[usize], run: usize, len: usize) -> Pooled<T> {
        let grad = elements::<T>(grad);
        if size_of::<T>() == size_of::<T::Wide>() {
            let mut sums = zeros(len);
            reduce::add_runs(&mut sums, at, run, &grad);
            return T::narrow_vec(sums);
        }
        // Only runs that were picked are summed in the wide type: a table is much larger than the part that is read.
        let mut picked = at.to_vec();
        picked.sort_unstable();
        picked.dedup();
        let places: Vec<usize> = at.iter().map(|i| picked.binary_search(i).expect("one of them")).collect();
        let mut sums = zeros(picked.len() * run);
        reduce::add_runs(&mut sums, &places, run, &grad);
        let mut all = zeros::<T>(len);
        if run > 0 {
            for (i, sum) in picked.iter().zip(sums.chunks_exact(run)) {
                T::narrow_into(sum, &mut all[i * run..(i + 1) * run]);
            }
        }
        all
    }
    by_float!(grad, T => Array::from_vec(go::<T>(grad, at, run, shape.iter().product()), shape))
}

/// Returns, for each position in an index, the offset of the element of a tensor of shape `from` with that index along
/// `axis` and that position along the other axes.
pub(in crate::ops) fn offsets_along(from: &[usize], axis: usize, index: &Tensor) -> Result<Vec<usize>> {
    let to = index.shape();
    if to.len() != from.len() || (0..from.len()).any(|i| i != axis && to[i] > from[i]) {
        let rank = from.len();
        let cure = match to.len() {
            met if met == rank => "along the other axes the index is at most as long as the tensor".to_string(),
            met if met + 1 == rank => {
                format!("the index has as many axes as the tensor: `unsqueeze({axis})` adds the missing one")
            }
            _ => format!("the index has as many axes as the tensor, {rank}"),
        };
        return Err(Error::shape(format!("the index {to:?} does not fit {from:?} along axis {axis}; {cure}")));
    }
    let offset = |(place, index): (ndarray::IxDyn, usize)| {
        let along = |i: usize| if i == axis { index } else { place[i] };
        (0..from.len()).fold(0, |offset, i| offset * from[i] + along(i))
    };
    Ok(ndarray::indices(to).into_iter().zip(checked_indices(index, from[axis])?).map(offset).collect())
}

/// Runs an op that picks runs of `x` at the offsets given by the indices, which have no gradient. Only the indices are
/// saved, unchanged.
fn pick(
    x: &Tensor,
    index: &Tensor,
    len: usize,
    run: usize,
    shape: Vec<usize>,
    offsets: impl Fn(Vec<usize>) -> Vec<usize> + Send + Sync + 'static,
) -> Result<Forward> {
    let value = picked(x, &offsets(checked_indices(index, len)?), run, &checked_shape(shape)?)?;
    let from = x.shape().to_vec();
    Ok(Forward::new(value, vec![index.clone()], move |b| {
        let at = offsets(checked_indices(&b.saved[0], len)?);
        Ok(vec![Some(Tensor::from_array(scattered(b.grad, &at, run, &from)?)), None])
    }))
}

impl Tensor {
    /// Gathers elements along an axis, as torch's `gather`: for axis 1, `out[i][j][k] = self[i][index[i][j][k]][k]`.
    /// The result has the shape of the index, which may exceed this tensor only along `axis`.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when ranks differ or the index is longer along another axis,
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for an index out of range,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when the index is not i64.
    pub fn gather(&self, axis: isize, index: &Tensor) -> Result<Tensor> {
        dispatch(call!(Op::Gather, &[self, index]; axis), |inputs| {
            let (x, index) = (&inputs[0], &inputs[1]);
            let axis = axis_at(axis, x.rank())?;
            let value = picked(x, &offsets_along(x.shape(), axis, index)?, 1, index.shape())?;
            let from = x.shape().to_vec();
            Ok(Forward::new(value, vec![index.clone()], move |b| {
                let at = offsets_along(&from, axis, &b.saved[0])?;
                Ok(vec![Some(Tensor::from_array(scattered(b.grad, &at, 1, &from)?)), None])
            }))
        })
    }

    /// Selects the slices of an axis given by a vector of indices, in its order.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when there is no such axis or the index is not a vector,
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for an index out of range,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when the index is not i64.
    pub fn index_select(&self, axis: isize, index: &Tensor) -> Result<Tensor> {
        dispatch(call!(Op::IndexSelect, &[self, index]; axis), |inputs| {
            let (x, index) = (&inputs[0], &inputs[1]);
            let axis = axis_at(axis, x.rank())?;
            if index.rank() != 1 {
                return Err(Error::shape(format!("the index must be a vector, got {:?}", index.shape())));
            }
            let len = x.shape()[axis];
            let mut shape = x.shape().to_vec();
            shape[axis] = index.len();
            let outer: usize = shape[..axis].iter().product();
            let run = shape[axis + 1..].iter().product();
            pick(x, index, len, run, shape, move |indices| {
                (0..outer).flat_map(|o| indices.iter().map(move |i| o * len + i)).collect()
            })
        })
    }

    /// Looks up the rows of a table `[count, d]` for these i64 ids: `[...] -> [..., d]`. Ids are never cast.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the table is not a matrix,
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for an id out of range,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when the ids are not i64.
    ///
    /// ```
    /// # use precast::Tensor;
    /// let table = Tensor::from_vec(vec![0f32, 1., 2., 3., 4., 5.], &[3, 2])?;
    /// let ids = Tensor::from_vec(vec![2i64, 0], &[2])?;
    /// assert_eq!(ids.embedding(&table)?.to_vec::<f32>()?, [4., 5., 0., 1.]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn embedding(&self, table: &Tensor) -> Result<Tensor> {
        dispatch(call!(Op::Embedding, &[table, self]), |inputs| {
            let (table, ids) = (&inputs[0], &inputs[1]);
            let &[count, d] = table.shape() else {
                return Err(Error::shape(format!("the table must be [count, d], got {:?}", table.shape())));
            };
            pick(table, ids, count, d, [ids.shape(), &[d]].concat(), |indices| indices)
        })
    }
}
