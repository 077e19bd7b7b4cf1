//! Sorting along an axis. NaN is the largest; the order of equal elements is preserved.

use std::{cmp::Ordering, sync::Arc};

use precast_kernels::memory::{Pooled, zeros};

use crate::{
    Op, Tensor,
    error::{Error, Result},
    ops::{Call, by_float, call, dispatch, index::shape::axis_at, reduce::axes::Lanes},
    tensor::{Forward, Stored, Written, with_array},
};

fn compare<T: PartialOrd>(a: &T, b: &T) -> Ordering {
    let nan = |x: &T| x.partial_cmp(x).is_none();
    a.partial_cmp(b).unwrap_or_else(|| nan(a).cmp(&nan(b)))
}

/// Returns the positions of the first `k` elements of each lane in order.
fn first_places<T: Stored>(lanes: &[T], n: usize, k: usize, descending: bool) -> Vec<usize> {
    let mut all = Vec::new();
    for lane in lanes.chunks_exact(n.max(1)) {
        let mut places: Vec<usize> = (0..n).collect();
        places.sort_by(|&i, &j| match descending {
            true => compare(&lane[j], &lane[i]),
            false => compare(&lane[i], &lane[j]),
        });
        all.extend_from_slice(&places[..k]);
    }
    all
}

/// Returns the first `k` elements of each lane in order (all of them if `None`), and their positions.
fn ordered(call: Call<'_>, axis: isize, k: Option<usize>, descending: bool) -> Result<(Tensor, Tensor)> {
    let mut indices = None;
    let values = dispatch(call, |inputs| {
        let x = &inputs[0];
        let axis = axis_at(axis, x.rank())?;
        let lanes = Lanes::new(x.shape(), &[axis]);
        let (n, k) = (lanes.n, k.unwrap_or(lanes.n));
        if k > n {
            let message = format!("k = {k} is more than the {n} elements along axis {axis} of {:?}", x.shape());
            return Err(Error::value(message));
        }
        let mut shape = x.shape().to_vec();
        shape[axis] = k;
        let chosen = Lanes::new(&shape, &[axis]);
        let (value, places) = with_array!(x.array(), array: T => {
            let _ = array;
            let packed = lanes.pack::<T>(x);
            let places = first_places(&packed, n, k, descending);
            let value = places.iter().enumerate().map(|(i, place)| packed[i / k * n + place]).collect::<Pooled<T>>();
            (chosen.unpack::<T>(value)?, places)
        });
        let places = chosen.unpack(places.into_iter().map(|place| place as i64).collect::<Pooled<i64>>())?;
        let places = indices.insert(Tensor::from_array(places)).clone();
        let written = {
            let places = places.clone();
            move |x: &[Tensor]| x[0].gather(axis as isize, &places)
        };
        let forward = Forward::new(value, vec![places], move |back| {
            let grad = by_float!(back.grad, T => {
                let mut grad = zeros::<T>(lanes.count * n);
                let places = chosen.pack::<i64>(&back.saved[0]);
                for (i, (&place, &g)) in places.iter().zip(chosen.pack::<T>(back.grad).iter()).enumerate() {
                    grad[i / k * n + place as usize] = g;
                }
                lanes.unpack(grad)
            })?;
            Ok(vec![Some(Tensor::from_array(grad))])
        });
        Ok(forward.with_more(indices.iter().cloned().collect()).written(Written::Op(Arc::new(written))))
    })?;
    let indices = indices.expect("the kernel has run");
    Ok((values, indices))
}

impl Tensor {
    /// Returns the `k` largest (or smallest) elements along an axis in order, and their positions as i64. Works for
    /// every dtype.
    ///
    /// NaN is the largest. Equal elements keep their order.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when there is no such axis,
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when it has fewer than `k` elements.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::Tensor;
    /// let x = Tensor::from_vec(vec![2f32, 7., 5.], &[3])?;
    /// let (values, places) = x.topk(2, 0, true)?;
    /// assert_eq!((values.to_f64(), places.to_vec::<i64>()?), (vec![7., 5.], vec![1, 2]));
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn topk(&self, k: usize, axis: isize, largest: bool) -> Result<(Tensor, Tensor)> {
        ordered(call!(Op::TopK, &[self]; k, axis, largest), axis, Some(k), largest)
    }

    /// Sorts the elements along an axis in ascending or descending order, and returns them with their former positions
    /// as i64. Works for every dtype.
    ///
    /// NaN is the largest. Equal elements keep their order.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when there is no such axis.
    pub fn sort(&self, axis: isize, descending: bool) -> Result<(Tensor, Tensor)> {
        ordered(call!(Op::Sort, &[self]; axis, descending), axis, None, descending)
    }
}
