//! The windows of a pool, tap by tap: the element of every window at one place of the kernel.

use super::tools::{count, number, vector};
use precast::{Tensor, error::Result};

/// Windows along one axis.
pub(super) struct Taps {
    /// The length of the axis, without padding.
    pub len: usize,
    /// For each tap, the place of each window's element.
    pub places: Vec<Vec<i64>>,
    /// The first place after the padding.
    pub end: i64,
}

impl Taps {
    /// Returns the number of windows.
    fn windows(&self) -> usize {
        self.places.first().map_or(0, Vec::len)
    }

    fn is_inside(&self, place: i64) -> bool {
        (0..self.len as i64).contains(&place)
    }

    /// Returns the number of elements of each window, with or without those of the padding.
    fn counts(&self, count_padding: bool) -> Vec<f64> {
        let counted = |place: i64| if count_padding { place < self.end } else { self.is_inside(place) };
        let count = |window: usize| self.places.iter().filter(|tap| counted(tap[window])).count() as f64;
        (0..self.windows()).map(count).collect()
    }

    /// Returns the elements of a tap along an axis, and `fill` outside of the input.
    fn values(&self, x: &Tensor, axis: usize, tap: usize, fill: f64) -> Result<Tensor> {
        let places = &self.places[tap];
        let within = places.iter().map(|place| if self.is_inside(*place) { *place } else { 0 }).collect();
        let y = x.index_select(axis as isize, &vector(within)?)?;
        if places.iter().all(|place| self.is_inside(*place)) {
            return Ok(y);
        }
        let mut shape = vec![1; x.rank()];
        shape[axis] = places.len();
        let mask: Vec<bool> = places.iter().map(|place| self.is_inside(*place)).collect();
        Tensor::from_vec(mask, &shape)?.select(&y, &number(x, fill))
    }
}

/// Joins the elements of each window, one axis after the other.
fn joined(x: &Tensor, axes: &[Taps], fill: f64, join: impl Fn(&Tensor, &Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let mut y = x.clone();
    for (axis, taps) in axes.iter().enumerate() {
        let mut all = taps.values(&y, axis + 2, 0, fill)?;
        for tap in 1..taps.places.len() {
            all = join(&all, &taps.values(&y, axis + 2, tap, fill)?)?;
        }
        y = all;
    }
    Ok(y)
}

pub(super) fn maxima(x: &Tensor, axes: &[Taps]) -> Result<Tensor> {
    joined(x, axes, f64::NEG_INFINITY, Tensor::maximum)
}

pub(super) fn sums(x: &Tensor, axes: &[Taps]) -> Result<Tensor> {
    joined(x, axes, 0.0, Tensor::add)
}

/// Divides the sums of windows by the numbers of their elements.
pub(super) fn means(x: &Tensor, axes: &[Taps], count_padding: bool) -> Result<Tensor> {
    let mut y = sums(x, axes)?;
    for (axis, taps) in axes.iter().enumerate() {
        let mut shape = vec![1; x.rank()];
        shape[axis + 2] = taps.windows();
        y = y.div(&Tensor::from_f64(&taps.counts(count_padding), &shape, x.dtype())?)?;
    }
    Ok(y)
}

/// Returns the places of the largest elements among those of the whole tensor.
pub(super) fn places_of_maxima(x: &Tensor, axes: &[Taps], by_columns: bool) -> Result<Tensor> {
    let kernel: Vec<usize> = axes.iter().map(|taps| taps.places.len()).collect();
    let windows: Vec<usize> = axes.iter().map(Taps::windows).collect();
    let order: Vec<usize> = if by_columns { (0..axes.len()).collect() } else { (0..axes.len()).rev().collect() };
    let (mut values, mut table) = (Vec::new(), Vec::new());
    for tap in 0..count(&kernel)? {
        let taps = split(tap, &kernel);
        let value = |y: Tensor, axis: usize| axes[axis].values(&y, axis + 2, taps[axis], f64::NEG_INFINITY);
        values.push((0..axes.len()).try_fold(x.clone(), value)?);
        table.extend((0..count(&windows)?).map(|window| {
            let at = split(window, &windows);
            let (mut place, mut stride) = (0, 1);
            for &axis in &order {
                place += stride * axes[axis].places[taps[axis]][at[axis]];
                stride *= axes[axis].len as i64;
            }
            place
        }));
    }
    let largest = Tensor::stack(&values.iter().collect::<Vec<_>>(), 0)?.argmax(0, true)?;
    let table = Tensor::from_vec(table, &[&[values.len(), 1, 1], &windows[..]].concat())?;
    let table = table.broadcast_to(&[&[values.len()], &x.shape()[..2], &windows[..]].concat())?;
    let within = table.gather(0, &largest)?.squeeze(0)?;
    let (images, size) = (count(&x.shape()[..2])?, count(&x.shape()[2..])?);
    let starts: Vec<i64> = (0..images).map(|image| (image * size) as i64).collect();
    within.add(&Tensor::from_vec(starts, &[&x.shape()[..2], &vec![1; axes.len()]].concat())?)
}

/// Returns the indices along axes of an index into all their elements.
fn split(index: usize, lengths: &[usize]) -> Vec<usize> {
    let mut rest = index;
    let mut at: Vec<usize> = lengths
        .iter()
        .rev()
        .map(|len| {
            let own = rest % len;
            rest /= len;
            own
        })
        .collect();
    at.reverse();
    at
}
