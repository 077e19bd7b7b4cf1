//! Windows of a pool.

use std::ops::Range;

/// Windows along one axis: the range of elements of each, without padding, and the divisor of an average.
#[derive(Clone, Debug)]
pub struct AxisWindows {
    /// Length of the axis.
    pub input: usize,
    /// Elements of each window.
    pub ranges: Vec<Range<usize>>,
    /// Divisor of the average of each window.
    pub counts: Vec<usize>,
}

/// Windows of a pool. Missing axes have one window over one element.
pub type Windows = [AxisWindows; 3];

pub(super) fn in_volume(windows: &Windows) -> usize {
    windows.iter().map(|axis| axis.input).product()
}

pub(super) fn out_volume(windows: &Windows) -> usize {
    windows.iter().map(|axis| axis.ranges.len()).product()
}

impl AxisWindows {
    /// Returns the number of elements of the longest window.
    pub(super) fn longest(&self) -> usize {
        self.ranges.iter().map(Range::len).max().unwrap_or(1)
    }
}

/// Returns the longest range of the last two axes: the strides of an index inside a window.
pub(super) fn longest([_, h, w]: &Windows) -> (usize, usize) {
    (h.longest(), w.longest())
}

/// Returns the number of distinct indices inside a window.
pub fn window_volume(windows: &Windows) -> usize {
    windows.iter().map(AxisWindows::longest).product()
}

/// Calls `f(ranges, count)` for each window in row-major order.
pub(super) fn for_each_window([d, h, w]: &Windows, mut f: impl FnMut([&Range<usize>; 3], usize)) {
    for (rd, nd) in d.ranges.iter().zip(&d.counts) {
        for (rh, nh) in h.ranges.iter().zip(&h.counts) {
            for (rw, nw) in w.ranges.iter().zip(&w.counts) {
                f([rd, rh, rw], nd * nh * nw);
            }
        }
    }
}
