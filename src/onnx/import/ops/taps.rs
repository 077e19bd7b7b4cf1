//! The windows of a pool, tap by tap: the element of every window at one place of the kernel.

use super::tools::{count, number, vector};
use crate::{Tensor, error::Result};

/// Windows tap by tap.
pub(super) struct Taps {
    /// The lengths of the result.
    pub lengths: Vec<usize>,
    /// For each tap and axis, the place of each window's element.
    pub places: Vec<Vec<Vec<i64>>>,
    /// For each tap and axis, `true` where the place is in the input or its padding.
    pub padded: Vec<Vec<Vec<bool>>>,
}

impl Taps {
    /// Returns `each` for every window, in the order of the result.
    fn for_windows<T>(&self, each: impl Fn(&[usize]) -> T) -> Vec<T> {
        let mut at = vec![0; self.lengths.len()];
        let total: usize = self.lengths.iter().product();
        (0..total)
            .map(|index| {
                let mut rest = index;
                for axis in (0..at.len()).rev() {
                    at[axis] = rest % self.lengths[axis];
                    rest /= self.lengths[axis];
                }
                each(&at)
            })
            .collect()
    }

    /// Returns the elements of a tap, and `fill` outside of the input.
    fn values(&self, x: &Tensor, tap: usize, fill: f64) -> Result<Tensor> {
        let spatial = &x.shape()[2..];
        let inside = |at: i64, axis: usize| (0..spatial[axis] as i64).contains(&at);
        let mut y = x.clone();
        for (axis, places) in self.places[tap].iter().enumerate() {
            let places = places.iter().map(|at| (*at).clamp(0, spatial[axis] as i64 - 1)).collect();
            y = y.index_select(axis as isize + 2, &vector(places)?)?;
        }
        let mask = self.for_windows(|at| (0..at.len()).all(|axis| inside(self.places[tap][axis][at[axis]], axis)));
        if mask.iter().all(|inside| *inside) {
            return Ok(y);
        }
        Tensor::from_vec(mask, &self.lengths)?.select(&y, &number(x, fill))
    }

    pub fn maxima(&self, x: &Tensor) -> Result<Tensor> {
        let mut largest = self.values(x, 0, f64::NEG_INFINITY)?;
        for tap in 1..self.places.len() {
            largest = largest.maximum(&self.values(x, tap, f64::NEG_INFINITY)?)?;
        }
        Ok(largest)
    }

    pub fn sums(&self, x: &Tensor) -> Result<Tensor> {
        let mut sum = self.values(x, 0, 0.0)?;
        for tap in 1..self.places.len() {
            sum = sum.add(&self.values(x, tap, 0.0)?)?;
        }
        Ok(sum)
    }

    /// Returns the number of elements of each window.
    pub fn counts(&self, x: &Tensor, count_padding: bool) -> Result<Tensor> {
        let spatial = &x.shape()[2..];
        let counted = |tap: usize, axis: usize, at: usize| match count_padding {
            true => self.padded[tap][axis][at],
            false => (0..spatial[axis] as i64).contains(&self.places[tap][axis][at]),
        };
        let count = |at: &[usize]| {
            let taps = (0..self.places.len()).filter(|tap| (0..at.len()).all(|axis| counted(*tap, axis, at[axis])));
            taps.count() as f64
        };
        Tensor::from_f64(&self.for_windows(count), &self.lengths, x.dtype())
    }

    /// Returns the places of the largest elements among those of the whole tensor.
    pub fn places_of_maxima(&self, x: &Tensor, by_columns: bool) -> Result<Tensor> {
        let spatial = &x.shape()[2..];
        let values = (0..self.places.len()).map(|tap| self.values(x, tap, f64::NEG_INFINITY));
        let values = values.collect::<Result<Vec<Tensor>>>()?;
        let largest = Tensor::stack(&values.iter().collect::<Vec<_>>(), 0)?.argmax(0, true)?;
        let mut table = Vec::new();
        for places in &self.places {
            table.extend(self.for_windows(|at| {
                let axes: Vec<usize> = if by_columns { (0..at.len()).collect() } else { (0..at.len()).rev().collect() };
                let (mut place, mut stride) = (0, 1);
                for axis in axes {
                    place += stride * places[axis][at[axis]];
                    stride *= spatial[axis] as i64;
                }
                place
            }));
        }
        let shape = [&[self.places.len(), 1, 1], &self.lengths[..]].concat();
        let wide = [&[self.places.len()], &x.shape()[..2], &self.lengths[..]].concat();
        let table = Tensor::from_vec(table, &shape)?.broadcast_to(&wide)?;
        let within = table.gather(0, &largest)?.squeeze(0)?;
        let (images, size) = (count(&x.shape()[..2])?, count(spatial)?);
        let starts: Vec<i64> = (0..images).map(|image| (image * size) as i64).collect();
        let starts_shape = [&x.shape()[..2], &vec![1; spatial.len()]].concat();
        within.add(&Tensor::from_vec(starts, &starts_shape)?)
    }
}
