//! Selection of elements by integer indices. If an element was picked more than once, its gradients are summed and
//! rounded once.

use precast_kernels::{
    float::Float,
    memory::{Elements, Pooled, uninit_vec, with_capacity, zeros},
    reduce::{self, Indexed},
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
        Some(&i) => Err(beyond(i, len)),
        None => Ok(()),
    }
}

fn beyond(index: i64, len: usize) -> Error {
    Error::value(format!("the index {index} is out of range: 0..{len} is allowed"))
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

/// Elements of a tensor that an op picks, or writes to.
pub(in crate::ops) enum Places {
    /// Offsets of runs, which count runs of so many elements.
    Runs(Vec<usize>, usize),
    /// Single ones along this axis, by an index.
    Along(usize),
}

impl Places {
    /// Returns the offsets of these elements in a tensor of shape `from`, and the number of elements of a run.
    pub fn runs(self, from: &[usize], index: &Tensor) -> Result<(Vec<usize>, usize)> {
        let axis = match self {
            Places::Runs(at, run) => return Ok((at, run)),
            Places::Along(axis) => axis,
        };
        let all: Vec<i64> = (0..from.iter().product::<usize>() as i64).collect();
        let (indices, mut at) = (indices(index)?, vec![0; index.len()]);
        let picked = Indexed::new(from, axis, &indices, index.shape()).pick(&all, &mut at);
        picked.map_err(|place| beyond(indices[place], from[axis]))?;
        Ok((at.into_iter().map(|place| place as usize).collect(), 1))
    }

    /// Picks these elements of `x`.
    pub fn picked(&self, x: &Tensor, index: &Tensor, shape: &[usize]) -> Result<Array> {
        match self {
            Places::Runs(at, run) => picked(x, at, *run, shape),
            Places::Along(axis) => with_array!(&x.array().contiguous(), a: T => {
                let (data, indices): (&[T], _) = (a.as_slice().unwrap_or_default(), indices(index)?);
                let mut out = uninit_vec(indices.len());
                let picked = Indexed::new(x.shape(), *axis, &indices, index.shape()).pick(data, &mut out);
                picked.map_err(|place| beyond(indices[place], x.shape()[*axis]))?;
                Array::from_vec::<T>(out, shape)
            }),
        }
    }

    /// Adds `values` to these elements of `sums`, those of a tensor of shape `from`.
    pub fn add<T: Stored + Float>(
        &self,
        sums: &mut [T::Wide],
        from: &[usize],
        index: &Tensor,
        values: &[T],
    ) -> Result<()> {
        match self {
            Places::Runs(at, run) => reduce::add_runs(sums, at, *run, values),
            Places::Along(axis) => {
                let indices = indices(index)?;
                let added = Indexed::new(from, *axis, &indices, index.shape()).add(sums, values);
                added.map_err(|place| beyond(indices[place], from[*axis]))?;
            }
        }
        Ok(())
    }

    /// Returns the gradient of a tensor of shape `from` of which these elements were picked.
    fn scattered(&self, grad: &Tensor, index: &Tensor, from: &[usize]) -> Result<Array> {
        match self {
            Places::Runs(at, run) => scattered(grad, at, *run, from),
            Places::Along(_) => by_float!(grad, T => {
                let mut sums = zeros(from.iter().product());
                self.add::<T>(&mut sums, from, index, &elements::<T>(grad))?;
                Array::from_vec(T::narrow_vec(sums), from)
            }),
        }
    }
}

/// Returns the elements of a tensor of shape `from` that an index names along an axis, for each position along the others:
/// runs where the index is the same for all elements behind the axis.
pub(in crate::ops) fn along(from: &[usize], axis: usize, index: &Tensor) -> Result<Places> {
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
    if !is_whole || !indices.chunks_exact(behind).all(is_same) {
        return Ok(Places::Along(axis));
    }
    let rows: Vec<i64> = indices.iter().copied().step_by(behind).collect();
    check(&rows, len)?;
    let starts: Vec<i64> = (0..from[..=axis].iter().product::<usize>() as i64).collect();
    let mut at = vec![0; rows.len()];
    let to_rows = Indexed::new(&from[..=axis], axis, &rows, &to[..=axis]).pick(&starts, &mut at);
    to_rows.map_err(|place| beyond(rows[place], len))?;
    Ok(Places::Runs(at.into_iter().map(|place| place as usize).collect(), behind))
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
            let value = along(x.shape(), axis, index)?.picked(x, index, index.shape())?;
            let from = x.shape().to_vec();
            Ok(Forward::new(value, vec![index.clone()], move |b| {
                let index = &b.saved[0];
                let grad = along(&from, axis, index)?.scattered(b.grad, index, &from)?;
                Ok(vec![Some(Tensor::from_array(grad)), None])
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
