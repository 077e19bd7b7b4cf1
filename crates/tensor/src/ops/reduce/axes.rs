//! Axis arguments, and the layout of a tensor along some of its axes.

use std::ops::Range;

use ndarray::{ArrayViewD, IxDyn};
use precast_kernels::{
    memory::{Elements, Pooled},
    strides::row_major,
};

use crate::{
    Tensor,
    error::{Error, Result},
    ops::{elements, index::shape::axis_at},
    tensor::{Array, Stored},
};

/// Returns the axes in ascending order; an empty list means all.
///
/// # Errors
/// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when there is no such axis, or one is named twice.
pub(crate) fn axes(axes: &[isize], rank: usize) -> Result<Vec<usize>> {
    if axes.is_empty() {
        return Ok((0..rank).collect());
    }
    let mut found: Vec<usize> = axes.iter().map(|&a| axis_at(a, rank)).collect::<Result<_>>()?;
    found.sort_unstable();
    match found.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Error::shape(format!("axis {} is named twice in {axes:?}", pair[0]))),
        None => Ok(found),
    }
}

/// Returns the shape after reducing the axes to one number each.
pub(crate) fn reduced(shape: &[usize], axes: &[usize], keep_dims: bool) -> Vec<usize> {
    let len = |(i, &len): (usize, &usize)| match (axes.contains(&i), keep_dims) {
        (false, _) => Some(len),
        (true, true) => Some(1),
        (true, false) => None,
    };
    shape.iter().enumerate().filter_map(len).collect()
}

/// Layout of a tensor as `count` lanes of `n` elements. A lane contains the elements along the chosen axes.
#[derive(Clone)]
pub(crate) struct Lanes {
    /// Number of lanes.
    pub count: usize,
    /// Elements per lane.
    pub n: usize,
    /// Order of the axes in the lanes: the chosen ones last.
    order: Vec<usize>,
    shape: Vec<usize>,
}

impl Lanes {
    pub fn new(shape: &[usize], axes: &[usize]) -> Self {
        let others = (0..shape.len()).filter(|i| !axes.contains(i));
        let order: Vec<usize> = others.chain(axes.iter().copied()).collect();
        let n = axes.iter().map(|&a| shape[a]).product();
        let count = order[..shape.len() - axes.len()].iter().map(|&a| shape[a]).product();
        Lanes { count, n, order, shape: shape.to_vec() }
    }

    /// Returns the elements, lane by lane.
    pub fn pack<'a, T: Stored>(&self, x: &'a Tensor) -> Elements<'a, T> {
        match x.array().view::<T>() {
            Some(view) if !self.order.is_sorted() => {
                Elements::Pooled(row_major(&view.permuted_axes(IxDyn(&self.order))))
            }
            _ => elements::<T>(x),
        }
    }

    /// Returns the elements of a lane of [`packed`](Lanes::pack) elements.
    pub fn lane(&self, i: usize) -> Range<usize> {
        i * self.n..(i + 1) * self.n
    }

    /// Inverts [`pack`](Lanes::pack).
    pub fn unpack<T: Stored>(&self, data: impl Into<Pooled<T>>) -> Result<Array> {
        let data = data.into();
        if self.order.is_sorted() {
            return Array::from_vec(data, &self.shape);
        }
        let lengths: Vec<usize> = self.order.iter().map(|&a| self.shape[a]).collect();
        let packed = ArrayViewD::from_shape(IxDyn(&lengths), &data).map_err(|e| Error::shape(e.to_string()))?;
        let mut places = vec![0; self.order.len()];
        for (place, &axis) in self.order.iter().enumerate() {
            places[axis] = place;
        }
        Array::from_vec(row_major(&packed.permuted_axes(IxDyn(&places))), &self.shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_count_from_either_end_and_are_named_once() {
        assert_eq!(axes(&[-1, 0], 3).unwrap(), [0, 2]);
        assert_eq!(axes(&[], 2).unwrap(), [0, 1]);
        assert_eq!(axes(&[isize::MIN], 2).unwrap_err().kind(), crate::ErrorKind::Shape);
        assert!(axes(&[1, -1], 2).unwrap_err().to_string().contains("axis 1 is named twice in [1, -1]"));
        assert!(axes(&[2], 2).unwrap_err().to_string().contains("-2 to 1"));
        assert!(axes(&[0], 0).unwrap_err().to_string().contains("scalar"));
    }

    #[test]
    fn unpacking_undoes_packing() {
        let shape = [2, 3, 4];
        let x = Tensor::from_vec((0..24i64).collect(), &shape).unwrap();
        for axes in [vec![], vec![0], vec![1], vec![2], vec![0, 1], vec![0, 2], vec![0, 1, 2]] {
            let lanes = Lanes::new(&shape, &axes);
            assert_eq!(lanes.count * lanes.n, 24);
            let back = lanes.unpack(lanes.pack::<i64>(&x).into_buffer()).unwrap();
            assert_eq!(back.slice::<i64>(), x.array().slice::<i64>(), "{axes:?}");
        }
    }
}
