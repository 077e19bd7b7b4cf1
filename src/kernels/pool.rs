//! Pools over up to three spatial axes. A pool is a list of ranges for each axis; adaptive pools differ only in the ranges.

use std::ops::Range;

use num_traits::Float as _;

use super::simd::vectorized;
use crate::dtype::{Float, Real};

/// Along one axis: which elements each window covers, without padding, and by how many an average divides.
#[derive(Clone, Debug)]
pub(crate) struct AxisWindows {
    pub input: usize,
    pub ranges: Vec<Range<usize>>,
    pub counts: Vec<usize>,
}

/// The windows of a pool. Axes that do not exist have one window over one element.
pub(crate) type Windows = [AxisWindows; 3];

fn in_volume(windows: &Windows) -> usize {
    windows.iter().map(|axis| axis.input).product()
}

fn out_volume(windows: &Windows) -> usize {
    windows.iter().map(|axis| axis.ranges.len()).product()
}

/// The longest range of each axis: what an index inside a window counts in.
fn longest([_, h, w]: &Windows) -> (usize, usize) {
    let longest = |axis: &AxisWindows| axis.ranges.iter().map(Range::len).max().unwrap_or(1);
    (longest(h), longest(w))
}

/// How many different indices inside a window there are.
pub(crate) fn window_volume(windows: &Windows) -> usize {
    windows.iter().map(|axis| axis.ranges.iter().map(Range::len).max().unwrap_or(1)).product()
}

/// Calls `f(ranges, count)` for each window in row-major order.
fn for_each_window([d, h, w]: &Windows, mut f: impl FnMut([&Range<usize>; 3], usize)) {
    for (rd, nd) in d.ranges.iter().zip(&d.counts) {
        for (rh, nh) in h.ranges.iter().zip(&h.counts) {
            for (rw, nw) in w.ranges.iter().zip(&w.counts) {
                f([rd, rh, rw], nd * nh * nw);
            }
        }
    }
}

/// Takes `value` in the place of `best` when it is larger or the first NaN. Without a branch, which data could not predict.
#[inline(always)]
fn take<R: Real>(value: R, tap: u32, best: &mut R, index: &mut u32) {
    let larger = (value > *best) | (value.is_nan() & !best.is_nan());
    *best = if larger { value } else { *best };
    *index = if larger { tap } else { *index };
}

/// The largest element of each window, and its index inside the window; the first NaN wins over everything.
pub(crate) fn max<T: Float>(windows: &Windows, planes: usize, x: &[T]) -> (Vec<T>, Vec<usize>) {
    let [_, h, w] = windows;
    let (len, outputs) = (in_volume(windows), out_volume(windows));
    let (mut out, mut indices) = (vec![T::default(); planes * outputs], Vec::with_capacity(planes * outputs));
    let (starts, offsets) = places(windows);
    // Where all windows are of one size, an element of all of them is looked at before the next; else window by window.
    let alike = windows.iter().all(|axis| axis.ranges.windows(2).all(|pair| pair[0].len() == pair[1].len()));
    let (long_h, long_w) = longest(windows);
    let mut wide = vec![T::Wide::default(); len];
    let (mut best, mut index) = (vec![T::Wide::default(); outputs], vec![0u32; outputs]);
    for plane in 0..planes {
        T::widen_into(&x[plane * len..(plane + 1) * len], &mut wide);
        best.fill(-T::Wide::infinity());
        index.fill(0);
        if alike {
            for (tap, offset) in offsets.iter().enumerate().take_while(|_| outputs > 0) {
                let x = &wide[*offset..];
                vectorized(|| {
                    for ((&start, best), index) in starts.iter().zip(&mut best).zip(&mut index) {
                        take(x[start], tap as u32, best, index);
                    }
                });
            }
        } else {
            let mut places = best.iter_mut().zip(&mut index);
            for_each_window(windows, |[rd, rh, rw], _| {
                let Some((best, index)) = places.next() else { return };
                for (i, d) in rd.clone().enumerate() {
                    for (j, row) in rh.clone().enumerate() {
                        let (start, tap) = ((d * h.input + row) * w.input, (i * long_h + j) * long_w);
                        for (k, &value) in wide[start + rw.start..start + rw.end].iter().enumerate() {
                            take(value, (tap + k) as u32, best, index);
                        }
                    }
                }
            });
        }
        indices.extend(index.iter().map(|&index| index as usize));
        T::narrow_into(&best, &mut out[plane * outputs..(plane + 1) * outputs]);
    }
    (out, indices)
}

/// Where each window begins in a plane, and how far from there the element of each index is.
fn places(windows: &Windows) -> (Vec<usize>, Vec<usize>) {
    let [_, h, w] = windows;
    let (long_h, long_w) = longest(windows);
    let mut starts = Vec::with_capacity(out_volume(windows));
    for_each_window(windows, |[rd, rh, rw], _| starts.push((rd.start * h.input + rh.start) * w.input + rw.start));
    let offset =
        |index: usize| (index / long_w / long_h * h.input + index / long_w % long_h) * w.input + index % long_w;
    (starts, (0..window_volume(windows)).map(offset).collect())
}

/// Sends each gradient to the element that was the largest; overlapping windows add in the wide dtype, rounded once.
pub(crate) fn max_backward<T: Float>(
    windows: &Windows,
    planes: usize,
    indices: impl IntoIterator<Item = usize>,
    grad: &[T],
) -> Vec<T> {
    let [_, h, w] = windows;
    let (long_h, long_w) = longest(windows);
    let (len, outputs) = (in_volume(windows), out_volume(windows));
    // Where each window begins, and how far from there the element of each index is.
    let mut starts = Vec::with_capacity(outputs);
    for_each_window(windows, |[rd, rh, rw], _| starts.push((rd.start * h.input + rh.start) * w.input + rw.start));
    let offset =
        |index: usize| (index / long_w / long_h * h.input + index / long_w % long_h) * w.input + index % long_w;
    let offsets: Vec<usize> = (0..window_volume(windows)).map(offset).collect();
    let mut indices = indices.into_iter();
    let mut out = vec![T::default(); planes * len];
    let (mut wide, mut sums) = (vec![T::Wide::default(); outputs], vec![T::Wide::default(); len]);
    for plane in 0..planes {
        T::widen_into(&grad[plane * outputs..(plane + 1) * outputs], &mut wide);
        sums.fill(T::Wide::default());
        for ((start, &grad), index) in starts.iter().zip(&wide).zip(&mut indices) {
            sums[start + offsets[index]] += grad;
        }
        T::narrow_into(&sums, &mut out[plane * len..(plane + 1) * len]);
    }
    out
}

/// The sum of each window divided by its count, rounded once.
pub(crate) fn average<T: Float>(windows: &Windows, planes: usize, x: &[T]) -> Vec<T> {
    let [_, h, w] = windows;
    let len = in_volume(windows);
    let mut out = Vec::with_capacity(planes * out_volume(windows));
    for plane in 0..planes {
        let x = T::widen_slice(&x[plane * len..(plane + 1) * len]);
        let mut values = Vec::new();
        for_each_window(windows, |[rd, rh, rw], count| {
            let mut sum = T::Wide::default();
            for d in rd.clone() {
                for row in rh.clone() {
                    let start = (d * h.input + row) * w.input;
                    sum += x[start + rw.start..start + rw.end].iter().copied().sum();
                }
            }
            values.push(sum / T::Wide::of(count as f64));
        });
        out.extend(T::narrow_vec(values));
    }
    out
}

/// Spreads each gradient evenly over its window; overlapping windows add in the wide dtype, rounded once.
pub(crate) fn average_backward<T: Float>(windows: &Windows, planes: usize, grad: &[T]) -> Vec<T> {
    let [_, h, w] = windows;
    let outputs = out_volume(windows);
    let mut out = Vec::with_capacity(planes * in_volume(windows));
    for plane in 0..planes {
        let mut grads = grad[plane * outputs..(plane + 1) * outputs].iter();
        let mut sums = vec![T::Wide::default(); in_volume(windows)];
        for_each_window(windows, |[rd, rh, rw], count| {
            let Some(grad) = grads.next() else { return };
            let share = grad.widen() / T::Wide::of(count as f64);
            for d in rd.clone() {
                for row in rh.clone() {
                    let start = (d * h.input + row) * w.input;
                    sums[start + rw.start..start + rw.end].iter_mut().for_each(|sum| *sum += share);
                }
            }
        });
        out.extend(T::narrow_vec(sums));
    }
    out
}
