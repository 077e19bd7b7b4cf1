//! Medians and running extremes, composed of ops, and counts of numbers.

use precast_kernels::memory::zeros;

use crate::{
    DType, Tensor,
    error::{Error, Result},
    no_grad,
    ops::{
        elements,
        index::{pick::checked_indices, shape::axis_at},
        spatial::windows::checked_shape,
    },
    tensor::{Array, fitting, recording},
};

impl Tensor {
    /// Returns the median along an axis, and its position as i64: of an even number of elements, the lower one in the
    /// middle, as in torch. NaN if an element is NaN. Works for every dtype; the median is an element, so nothing is
    /// rounded, and it alone has a gradient.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when there is no such axis, or it has no elements.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::Tensor;
    /// let x = Tensor::from_vec(vec![4f32, 1., 3., 2.], &[4])?;
    /// let (median, place) = x.median(0, false)?;
    /// assert_eq!((median.item()?, place.item()?), (2.0, 3.0));
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn median(&self, axis: isize, keep_dims: bool) -> Result<(Tensor, Tensor)> {
        let at = axis_at(axis, self.rank())?;
        let n = self.shape()[at];
        if n == 0 {
            return Err(Error::shape(format!("axis {at} of {:?} has no elements, and so no median", self.shape())));
        }
        let (sorted, places) = self.sort(axis, false)?;
        let middle = (n - 1) / 2;
        let of = |all: &Tensor, place: usize| all.slice(axis, place..place + 1);
        // NaN is sorted to the end.
        let is_nan = of(&sorted, n - 1)?.is_nan()?;
        let chosen = |all: &Tensor| {
            let chosen = is_nan.select(&of(all, n - 1)?, &of(all, middle)?)?;
            if keep_dims { Ok(chosen) } else { chosen.squeeze(axis) }
        };
        Ok((chosen(&sorted)?, chosen(&places)?))
    }

    /// Returns the largest element up to each place along an axis, and its position as i64: the last one of equal
    /// elements, as in torch. From a NaN on, all are NaN. Works for every dtype; nothing is rounded, and the gradient of
    /// each result is that of its element.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when there is no such axis.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::Tensor;
    /// let x = Tensor::from_vec(vec![1f32, 3., 2., 3.], &[4])?;
    /// let (largest, places) = x.cummax(0)?;
    /// assert_eq!((largest.to_f64(), places.to_vec::<i64>()?), (vec![1., 3., 3., 3.], vec![0, 1, 1, 3]));
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn cummax(&self, axis: isize) -> Result<(Tensor, Tensor)> {
        self.running(axis, |now, before| now.ge(before))
    }

    /// Returns the smallest element up to each place along an axis, and its position, as [`cummax`](Tensor::cummax) does
    /// for the largest.
    ///
    /// # Errors
    /// As [`cummax`](Tensor::cummax).
    pub fn cummin(&self, axis: isize) -> Result<(Tensor, Tensor)> {
        self.running(axis, |now, before| now.le(before))
    }

    /// Returns the extreme elements up to each place, where `remains(now, before)` keeps an element.
    fn running(&self, axis: isize, remains: fn(&Tensor, &Tensor) -> Result<Tensor>) -> Result<(Tensor, Tensor)> {
        let at = axis_at(axis, self.rank())?;
        let n = self.shape()[at];
        let mut along = vec![1; self.rank()];
        along[at] = n;
        let counted = Tensor::from_vec((0..n as i64).collect(), &along)?;
        let (mut places, mut extreme) = (counted.broadcast_to(self.shape())?, self.clone());
        // The extreme of 2, 4, 8, ... elements that end at each place.
        let doubled = |extreme: &Tensor, places: &Tensor, step: usize| -> Result<(Tensor, Tensor)> {
            let part = |all: &Tensor, from: usize| all.slice(axis, from..from + n - step);
            let (now, before) = (part(extreme, step)?, part(extreme, 0)?);
            let stays = remains(&now, &before)?.logical_or(&now.is_nan()?)?;
            let joined = |all: &Tensor, now: &Tensor, before: &Tensor| {
                Tensor::concat(&[&all.slice(axis, 0..step)?, &stays.select(now, before)?], axis)
            };
            Ok((joined(extreme, &now, &before)?, joined(places, &part(places, step)?, &part(places, 0)?)?))
        };
        let mut step = 1;
        while step < n {
            (extreme, places) = no_grad(|| doubled(&extreme, &places, step))?;
            step *= 2;
        }
        Ok((self.gather(axis, &places)?, places))
    }

    /// Counts how often each index occurs: i64 `[max(min_length, largest + 1)]`.
    ///
    /// The shape depends on the values, so no graph records this.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a negative index,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when the tensor is not i64,
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the result does not fit into memory.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::Tensor;
    /// let labels = Tensor::from_vec(vec![2i64, 0, 2], &[3])?;
    /// assert_eq!(labels.bincount(4)?.to_vec::<i64>()?, [1, 0, 2, 0]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn bincount(&self, min_length: usize) -> Result<Tensor> {
        recording::read(self);
        // The largest index bounds the result; the check of the others is that of every index.
        let largest = match self.dtype() {
            DType::I64 => elements::<i64>(self).iter().copied().max().unwrap_or(-1),
            _ => -1,
        };
        let length = usize::try_from(largest.saturating_add(1)).unwrap_or(0).max(min_length);
        checked_shape(vec![length])?;
        let places = checked_indices(self, length)?;
        counted("bincount", length, places.iter().copied())
    }

    /// Counts the elements in `bins` intervals of equal width from `least` to `largest`: i64 `[bins]`. An interval has its
    /// lower end, the last one both. Elements outside, and NaN, are not counted. Intervals are computed in f64.
    ///
    /// No graph records this, because it reads the values.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for no bins, and unless `least` is below `largest` and both are finite,
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the result does not fit into memory.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::Tensor;
    /// let x = Tensor::from_vec(vec![0f32, 0.5, 1.5, 2., 7.], &[5])?;
    /// assert_eq!(x.histc(2, 0.0, 2.0)?.to_vec::<i64>()?, [2, 2]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn histc(&self, bins: usize, least: f64, largest: f64) -> Result<Tensor> {
        if bins == 0 || !(least < largest && least.is_finite() && largest.is_finite()) {
            return Err(Error::value(format!(
                "{bins} bins from {least} to {largest}; allowed: at least one bin, from a finite number to a larger one"
            )));
        }
        recording::read(self);
        let place = |x: f64| {
            // Half of each: the difference may exceed the range of f64.
            let share = (x / 2.0 - least / 2.0) / (largest / 2.0 - least / 2.0);
            ((share * bins as f64) as usize).min(bins - 1)
        };
        counted("histc", bins, self.to_f64().into_iter().filter(|x| (least..=largest).contains(x)).map(place))
    }

    /// Returns for each element of `values` its place in this ascending vector, as i64 in the shape of `values`: the
    /// number of elements below it or, with `right`, of those that are not above it. NaN is the largest.
    ///
    /// No graph records this, because it reads the values.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when this tensor is not a vector,
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when it does not ascend.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::Tensor;
    /// let edges = Tensor::from_vec(vec![1f32, 3., 5.], &[3])?;
    /// let x = Tensor::from_vec(vec![3f32, 6., 0.], &[3])?;
    /// assert_eq!(edges.searchsorted(&x, false)?.to_vec::<i64>()?, [1, 3, 0]);
    /// assert_eq!(edges.searchsorted(&x, true)?.to_vec::<i64>()?, [2, 3, 0]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    #[doc(alias = "bucketize")]
    pub fn searchsorted(&self, values: &Tensor, right: bool) -> Result<Tensor> {
        if self.rank() != 1 {
            return Err(Error::shape(format!("searches a vector, got the shape {:?}", self.shape())));
        }
        recording::read(self);
        recording::read(values);
        let order = |x: &f64, y: &f64| x.partial_cmp(y).unwrap_or_else(|| x.is_nan().cmp(&y.is_nan()));
        let sorted = self.to_f64();
        if let Some(at) = sorted.windows(2).position(|pair| order(&pair[0], &pair[1]).is_gt()) {
            let words = format!("needs an ascending vector; {} is before {}", sorted[at], sorted[at + 1]);
            return Err(Error::value(words));
        }
        let is_before = |x: &f64, value: &f64| if right { order(x, value).is_le() } else { order(x, value).is_lt() };
        let place = |value: f64| sorted.partition_point(|x| is_before(x, &value)) as i64;
        Tensor::from_vec(values.to_f64().into_iter().map(place).collect(), values.shape())
    }
}

/// Counts how often each place occurs.
fn counted(name: &'static str, length: usize, places: impl Iterator<Item = usize>) -> Result<Tensor> {
    let counts = fitting(|| {
        let shape = checked_shape(vec![length])?;
        let mut counts = zeros::<i64>(length);
        places.for_each(|place| counts[place] += 1);
        Array::from_vec(counts, &shape)
    });
    counts.map(Tensor::from_array).map_err(|error| error.in_op(name))
}
