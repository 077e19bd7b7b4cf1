//! Selection of elements by integer indices. If an element was picked more than once, its gradients are summed and
//! rounded once.

use precast_kernels::{
    float::Float,
    memory::{Elements, Pooled, with_capacity, zeros},
    reduce,
};

use crate::{
    DType, Op, Tensor,
    error::{Error, Result},
    ops::{by_float, call, dispatch, elements, index::shape::axis_at, spatial::windows::checked_shape},
    tensor::{Array, Forward, Stored, with_array},
};

/// Returns the indices of a tensor.
fn indices(index: &Tensor) -> Result<Elements<'_, i64>> {
    match index.dtype() {
        DType::I64 => Ok(elements::<i64>(index)),
        other => Err(Error::dtype(format!("indices are i64, got {other}; `cast(DType::I64)` makes indices"))),
    }
}

/// Returns whether all are in `0..len`. No index below 0 is an address, and no length above the largest i64.
fn check(indices: &[i64], len: usize) -> Result<()> {
    match indices.iter().find(|&&i| i as u64 >= len as u64) {
        Some(i) => Err(Error::value(format!("the index {i} is out of range: 0..{len} is allowed"))),
        None => Ok(()),
    }
}

/// Returns the indices after checking that each is in `0..len`.
pub(in crate::ops) fn checked_indices(index: &Tensor, len: usize) -> Result<Vec<usize>> {
    let indices = indices(index)?;
    check(&indices, len)?;
    Ok(indices.iter().map(|&i| i as usize).collect())
}

/// Computes `out[i] = x[at[i]]`, and the backward pass `grad_x[at[i]] += grad[i]`. Offsets count runs of `run`
/// elements.
pub(in crate::ops) fn picked(x: &Tensor, at: &[usize], run: usize, shape: &[usize]) -> Result<Array> {
    with_array!(&x.array().contiguous(), a: T => {
        let data: &[T] = a.as_slice().unwrap_or_default();
        let mut out = with_capacity(at.len() * run);
        match run {
            1 => out.extend(at.iter().map(|&i| data[i])),
            _ => at.iter().for_each(|i| out.extend_from_slice(&data[i * run..(i + 1) * run])),
        }
        Array::from_vec::<T>(out, shape)
    })
}

fn scattered(grad: &Tensor, at: &[usize], run: usize, shape: &[usize]) -> Result<Array> {
    fn go<T: Stored + Float>(grad: &Tensor, at: &[usize], run: usize, len: usize) -> Pooled<T> {
        let grad = elements::<T>(grad);
        let count = len.checked_div(run).unwrap_or(0);
        if size_of::<T>() == size_of::<T::Wide>() || at.len() >= count {
            let mut sums = zeros(len);
            reduce::add_runs(&mut sums, at, run, &grad);
            return T::narrow_vec(sums);
        }
        // Only runs that were picked are summed in the wide type: a table is often much larger than the part that is read.
        let (mut picked, mut numbers) = (Vec::new(), vec![0; count]);
        let mut number = |&i: &usize| {
            if numbers[i] == 0 {
                picked.push(i);
                numbers[i] = picked.len();
            }
            numbers[i] - 1
        };
        let places: Vec<usize> = at.iter().map(&mut number).collect();
        let mut sums = zeros(picked.len() * run);
        reduce::add_runs(&mut sums, &places, run, &grad);
        let mut all = zeros::<T>(len);
        for (i, sum) in picked.iter().zip(sums.chunks_exact(run.max(1))) {
            T::narrow_into(sum, &mut all[i * run..(i + 1) * run]);
        }
        all
    }
    by_float!(grad, T => Array::from_vec(go::<T>(grad, at, run, shape.iter().product()), shape))
}

/// Returns, for each position in an index, the offset of the element of a tensor of shape `from` with that index along
/// `axis` and that position along the other axes. Offsets count runs of some elements, whose number follows them: more
/// than one where the index is the same for all elements behind the axis.
pub(in crate::ops) fn offsets_along(from: &[usize], axis: usize, index: &Tensor) -> Result<(Vec<usize>, usize)> {
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
    let (indices, len, behind) = (indices(index)?, from[axis], from[axis + 1..].iter().product());
    let is_whole = behind > 1 && to[axis + 1..] == from[axis + 1..];
    let is_same = |part: &[i64]| part.iter().fold(0, |bits, i| bits | i ^ part[0]) == 0;
    let by_slices = is_whole && indices.chunks_exact(behind).all(is_same);
    let (each, run) = if by_slices { (behind, behind) } else { (to[axis + 1..].iter().product(), 1) };
    let before = positions(&to[..axis], &from[..axis]);
    let after = if by_slices { vec![0] } else { positions(&to[axis + 1..], &from[axis + 1..]) };
    let (mut at, mut largest) = (Vec::with_capacity(indices.len() / run), 0);
    let mut rows = indices.chunks_exact(each.max(1));
    for start in before {
        for row in rows.by_ref().take(to[axis]) {
            at.extend(row.iter().zip(&after).map(|(&i, place)| {
                largest = largest.max(i as u64);
                (start * len).wrapping_add(i as usize).wrapping_mul(behind / run).wrapping_add(*place)
            }));
        }
    }
    if largest >= len as u64 && !indices.is_empty() {
        check(&indices, len)?;
    }
    Ok((at, run))
}

/// Returns the offsets of a block's elements, from its start, in a tensor of shape `from`.
fn positions(block: &[usize], from: &[usize]) -> Vec<usize> {
    block.iter().zip(from).fold(vec![0], |starts, (&count, &len)| {
        starts.iter().flat_map(|start| (0..count).map(move |i| start * len + i)).collect()
    })
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
            let (at, run) = offsets_along(x.shape(), axis, index)?;
            let value = picked(x, &at, run, index.shape())?;
            let from = x.shape().to_vec();
            Ok(Forward::new(value, vec![index.clone()], move |b| {
                let (at, run) = offsets_along(&from, axis, &b.saved[0])?;
                Ok(vec![Some(Tensor::from_array(scattered(b.grad, &at, run, &from)?)), None])
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
    /// # use precast_tensor as precast;
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
