//! Pools over up to three spatial axes. A pool is a list of ranges for each axis; adaptive pools differ only in the ranges.

use std::ops::Range;

use num_traits::Float as _;

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

/// The largest element of each window, and its index inside the window; the first NaN wins over everything.
pub(crate) fn max<T: Float>(windows: &Windows, planes: usize, x: &[T]) -> (Vec<T>, Vec<usize>) {
    let [_, h, w] = windows;
    let (long_h, long_w) = longest(windows);
    let (len, outputs) = (in_volume(windows), planes * out_volume(windows));
    let (mut out, mut indices) = (Vec::with_capacity(outputs), Vec::with_capacity(outputs));
    for plane in 0..planes {
        let x = T::widen_slice(&x[plane * len..(plane + 1) * len]);
        let mut values = Vec::new();
        for_each_window(windows, |[rd, rh, rw], _| {
            let (mut best, mut index) = (-T::Wide::infinity(), 0);
            let mut first = true;
            for (i, d) in rd.clone().enumerate() {
                for (j, row) in rh.clone().enumerate() {
                    let start = (d * h.input + row) * w.input;
                    for (k, &value) in x[start + rw.start..start + rw.end].iter().enumerate() {
                        if first || value > best || (value.is_nan() && !best.is_nan()) {
                            (best, index, first) = (value, (i * long_h + j) * long_w + k, false);
                        }
                    }
                }
            }
            values.push(best);
            indices.push(index);
        });
        out.extend(T::narrow_vec(values));
    }
    (out, indices)
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
    let outputs = out_volume(windows);
    let mut indices = indices.into_iter();
    let mut out = Vec::with_capacity(planes * in_volume(windows));
    for plane in 0..planes {
        let mut grads = grad[plane * outputs..(plane + 1) * outputs].iter();
        let mut sums = vec![T::Wide::default(); in_volume(windows)];
        for_each_window(windows, |[rd, rh, rw], _| {
            if let (Some(index), Some(grad)) = (indices.next(), grads.next()) {
                let (i, j, k) = (index / long_w / long_h, index / long_w % long_h, index % long_w);
                sums[((rd.start + i) * h.input + rh.start + j) * w.input + rw.start + k] += grad.widen();
            }
        });
        out.extend(T::narrow_vec(sums));
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
