//! Pools whose windows are cut off by the ends of the input, as windows of one size over an input with padding.

use std::ops::Range;

use super::windows::{AxisWindows, Windows, longest};

/// Windows of one size, over an input with its padding; those of the last axis are a constant step apart.
pub(super) struct Even {
    pub windows: Windows,
    pub step: usize,
    /// Padding before each axis.
    before: [usize; 3],
    /// Number of elements of the padding at the start of each window along an axis.
    missing: [Vec<usize>; 3],
}

/// Returns an axis with its padding, whose windows have one size and are a constant step apart, and the padding before
/// it and the step; `None` if no padding makes them so.
fn padded(axis: &AxisWindows) -> Option<(AxisWindows, usize, usize)> {
    let kernel = axis.longest();
    let whole = axis.ranges.iter().position(|range| range.len() == kernel)?;
    // A window that is cut off at one side moves at the other.
    let moved = |pair: &[Range<usize>]| (pair[1].start - pair[0].start).max(pair[1].end - pair[0].end);
    let step = axis.ranges.windows(2).map(moved).max().unwrap_or(1);
    let before = (whole * step).checked_sub(axis.ranges[whole].start)?;
    let starts = (0..axis.ranges.len()).map(|i| i * step);
    let cut = |start: usize| start.saturating_sub(before)..(start + kernel).saturating_sub(before).min(axis.input);
    let is_even = step > 0 && starts.clone().zip(&axis.ranges).all(|(start, range)| cut(start) == *range);
    let ranges: Vec<_> = starts.map(|start| start..start + kernel).collect();
    let input = ranges.last()?.end.max(before + axis.input);
    is_even.then(|| (AxisWindows { input, ranges, counts: Vec::new() }, before, step))
}

impl Even {
    /// Returns the windows with the padding that makes them even; `None` if there is none.
    pub fn of(cut: &Windows) -> Option<Even> {
        let [d, h, w] = cut;
        let alike = |axis: &AxisWindows| axis.ranges.windows(2).all(|pair| pair[0].len() == pair[1].len());
        // Only the windows of the last axis are read together.
        let outer = |axis: &AxisWindows| match padded(axis) {
            Some((axis, before, _)) => Some((axis, before)),
            None => alike(axis).then(|| (axis.clone(), 0)),
        };
        let ((d, above), (h, before), (w, left, step)) = (outer(d)?, outer(h)?, padded(w)?);
        let (windows, before) = ([d, h, w], [above, before, left]);
        let missing = std::array::from_fn(|a| {
            let padded = windows[a].ranges.iter().map(|range| range.start);
            padded.zip(&cut[a].ranges).map(|(start, range)| range.start + before[a] - start).collect()
        });
        Some(Even { windows, step, before, missing })
    }

    /// Copies a plane between its padding.
    pub fn pad<R: Copy>(&self, windows: &Windows, x: &[R], to: &mut [R]) {
        let [_, hs, ws] = windows;
        let [above, before, left] = self.before;
        for (i, row) in x.chunks_exact(ws.input).enumerate() {
            let (d, h) = (i / hs.input + above, i % hs.input + before);
            to[(d * self.windows[1].input + h) * self.windows[2].input + left..][..ws.input].copy_from_slice(row);
        }
    }

    /// Turns the indices of one plane into those inside windows without padding.
    pub fn cut(&self, index: &mut [u32]) {
        if self.before == [0; 3] {
            return;
        }
        let (long_h, long_w) = longest(&self.windows);
        let [ds, hs, ws] = &self.missing;
        let rows = ds.iter().flat_map(|d| hs.iter().map(move |h| (*d, *h)));
        for ((d, h), index) in rows.zip(index.chunks_exact_mut(ws.len())) {
            for (index, &w) in index.iter_mut().zip(ws).take_while(|(_, w)| d + h + **w > 0) {
                let tap = *index as usize;
                // A window of nothing but negative infinity has the index 0, which may be padding.
                let at = [tap / long_w / long_h, tap / long_w % long_h, tap % long_w];
                let [i, j, k] = [at[0].saturating_sub(d), at[1].saturating_sub(h), at[2].saturating_sub(w)];
                *index = ((i * long_h + j) * long_w + k) as u32;
            }
        }
    }
}
