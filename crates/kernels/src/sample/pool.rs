//! Pooling over up to three spatial axes. A pool is a list of ranges for each axis. Adaptive pools differ only in
//! these.

use std::hint::black_box;

use super::{
    even_windows::Even,
    windows::{AxisWindows, Windows, for_each_window, in_volume, longest, out_volume, window_volume},
};
use crate::{
    float::{Float, Real},
    memory::{Pooled, uninit_vec, with_capacity, zeros},
    reduce::FEW,
    simd::{Body, vectorized},
};

/// Replaces `best` by `value` if that is larger or the first NaN. It has no branch, which data would make
/// unpredictable.
#[inline(always)]
fn take_larger<R: Real>(value: R, tap: u32, best: &mut R, index: &mut u32) {
    let larger = (value > *best) | (value.is_nan() & !best.is_nan());
    *best = if larger { value } else { *best };
    *index = if larger { tap } else { *index };
}

/// Number of windows of an output row that are computed together.
const SIDE: usize = 16;

/// Returns the largest element of each window, and its index inside the window; the first NaN takes precedence.
pub fn max<T: Float>(windows: &Windows, planes: usize, x: &[T]) -> (Pooled<T>, Pooled<u32>) {
    let (len, outputs) = (in_volume(windows), out_volume(windows));
    let (mut out, mut indices) = (uninit_vec(planes * outputs), Pooled::uninit(planes * outputs));
    if out.is_empty() {
        return (out, indices);
    }
    let even = Even::of(windows);
    // Elements with the padding, if there is one.
    let space = even.as_ref().map_or(len, |even| in_volume(&even.windows));
    let mut wide = Pooled::<T::Wide>::uninit(len);
    let mut around = Pooled::<T::Wide>::uninit(if space > len { space } else { 0 });
    around.fill(<T::Wide as num_traits::Float>::neg_infinity());
    let mut phases = Pooled::uninit(even.as_ref().map_or(0, |even| even.step * phase_room(space, even.step)));
    // The next row overwrites elements written past the end of a row.
    let (mut best, mut index) = (Pooled::uninit(outputs + SIDE), Pooled::uninit(outputs + SIDE));
    for plane in 0..planes {
        T::widen_into(&x[plane * len..(plane + 1) * len], &mut wide);
        let (best, index) = (&mut best[..], &mut index[..]);
        match &even {
            None => max_of_each(windows, &wide, best, index),
            Some(even) => {
                let x = match space > len {
                    true => {
                        even.pad(windows, &wide, &mut around);
                        &around
                    }
                    false => &wide,
                };
                let phases = &mut phases[..];
                match even.step {
                    1 => vectorized(SplitPhases::<_, 1> { x, phases }),
                    2 => vectorized(SplitPhases::<_, 2> { x, phases }),
                    3 => vectorized(SplitPhases::<_, 3> { x, phases }),
                    step => split_phases(x, step, phases),
                }
                let room = phase_room(space, even.step);
                vectorized(MaxOfRows { windows: &even.windows, step: even.step, room, phases, best, index });
                even.cut(&mut index[..outputs]);
            }
        }
        indices[plane * outputs..(plane + 1) * outputs].copy_from_slice(&index[..outputs]);
        T::narrow_into(&best[..outputs], &mut out[plane * outputs..(plane + 1) * outputs]);
    }
    (out, indices)
}

/// Returns the number of elements of one phase of a plane, including those that a row may read past its end.
fn phase_room(len: usize, step: usize) -> usize {
    len / step + 1 + SIDE
}

/// Splits the elements of a plane into `step` phases, so that adjacent windows read adjacent numbers.
#[inline(always)]
fn split_phases<R: Real>(x: &[R], step: usize, phases: &mut [R]) {
    for (phase, to) in phases.chunks_exact_mut(phase_room(x.len(), step)).enumerate() {
        let x = &x[phase.min(x.len())..];
        let count = to.len().min(x.len().div_ceil(step));
        for (i, to) in to[..count].iter_mut().enumerate() {
            // SAFETY: `i` is below `x.len() / step`, rounded up. A check of each index would keep vectors out.
            *to = unsafe { *x.get_unchecked(i * step) };
        }
    }
}

/// [`split_phases`] with a step known to the compiler.
struct SplitPhases<'a, R, const STEP: usize> {
    x: &'a [R],
    phases: &'a mut [R],
}

impl<R: Real, const STEP: usize> Body for SplitPhases<'_, R, STEP> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        split_phases(self.x, STEP, self.phases);
    }
}

/// [`max`] of one plane whose windows are `step` apart, from its phases.
struct MaxOfRows<'a, R> {
    windows: &'a Windows,
    step: usize,
    /// Number of elements of each phase.
    room: usize,
    phases: &'a [R],
    best: &'a mut [R],
    index: &'a mut [u32],
}

impl<R: Real> Body for MaxOfRows<'_, R> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let MaxOfRows { windows: [ds, hs, w], step, room, phases, best, index } = self;
        let (width, taps) = (w.ranges.len(), w.ranges[0].len());
        // A loop of a length that the compiler knows is unrolled before it could become vectors.
        let side = black_box(SIDE);
        let mut row = 0;
        for d in &ds.ranges {
            for h in &hs.ranges {
                for first in (0..width).step_by(SIDE) {
                    let (mut largest, mut found, mut tap) = ([R::neg_infinity(); SIDE], [0; SIDE], 0);
                    for d in d.clone() {
                        for h in h.clone() {
                            let from = (d * hs.input + h) * w.input + w.ranges[first].start;
                            let (mut phase, mut at) = (from % step, from / step);
                            for _ in 0..taps {
                                let x = &phases[phase * room + at..][..side];
                                let (largest, found) = (&mut largest[..side], &mut found[..side]);
                                for i in 0..side {
                                    take_larger(x[i], tap, &mut largest[i], &mut found[i]);
                                }
                                tap += 1;
                                phase += 1;
                                if phase == step {
                                    (phase, at) = (0, at + 1);
                                }
                            }
                        }
                    }
                    let to = row * width + first;
                    best[to..to + SIDE].copy_from_slice(&largest);
                    index[to..to + SIDE].copy_from_slice(&found);
                }
                row += 1;
            }
        }
    }
}

/// Computes [`max`] of one plane, window by window.
fn max_of_each<R: Real>(windows: &Windows, x: &[R], best: &mut [R], index: &mut [u32]) {
    let [_, h, w] = windows;
    let (long_h, long_w) = longest(windows);
    let mut places = best.iter_mut().zip(index);
    for_each_window(windows, |[rd, rh, rw], _| {
        let Some((best, index)) = places.next() else { return };
        (*best, *index) = (R::neg_infinity(), 0);
        for (i, d) in rd.clone().enumerate() {
            for (j, row) in rh.clone().enumerate() {
                let (start, tap) = ((d * h.input + row) * w.input, (i * long_h + j) * long_w);
                for (k, &value) in x[start + rw.start..start + rw.end].iter().enumerate() {
                    take_larger(value, (tap + k) as u32, best, index);
                }
            }
        }
    });
}

/// Returns the start of each window in a plane, and the offset of each index inside a window.
fn starts_and_offsets(windows: &Windows) -> (Pooled<usize>, Vec<usize>) {
    let [_, h, w] = windows;
    let (long_h, long_w) = longest(windows);
    let mut starts = with_capacity(out_volume(windows));
    for_each_window(windows, |[rd, rh, rw], _| starts.push((rd.start * h.input + rh.start) * w.input + rw.start));
    let offset =
        |index: usize| (index / long_w / long_h * h.input + index / long_w % long_h) * w.input + index % long_w;
    (starts, (0..window_volume(windows)).map(offset).collect())
}

/// Returns the position, in its plane, of the largest element of each window.
pub fn max_places(windows: &Windows, indices: &[u32]) -> Vec<i64> {
    let (starts, offsets) = starts_and_offsets(windows);
    let place = |(i, &index): (usize, &u32)| (starts[i % starts.len()] + offsets[index as usize]) as i64;
    indices.iter().enumerate().map(place).collect()
}

/// Returns whether no element is in more than [`FEW`] windows, whose gradients are then added without losing digits.
fn overlap_little(windows: &Windows) -> bool {
    let most = |axis: &AxisWindows| {
        let mut counts = vec![0usize; axis.input];
        axis.ranges.iter().for_each(|range| counts[range.clone()].iter_mut().for_each(|count| *count += 1));
        counts.into_iter().max().unwrap_or(0)
    };
    windows.iter().map(most).product::<usize>() <= FEW
}

/// Adds each gradient to the largest element of its window. Overlapping windows are summed in the wide dtype, or in f64
/// if they are many, and rounded once.
pub fn max_backward<T: Float>(windows: &Windows, planes: usize, indices: &[u32], grad: &[T]) -> Pooled<T> {
    let outputs = out_volume(windows);
    if outputs == 0 {
        return zeros(planes * in_volume(windows));
    }
    let (starts, offsets) = starts_and_offsets(windows);
    spread(windows, planes, grad, MaxGradient { indices, starts: &starts, offsets: &offsets })
}

/// Way to add the gradients of a plane to the sums of its elements.
trait Spread {
    fn add<R: Real, A: Real>(&self, plane: usize, grad: &[R], sums: &mut [A]);
}

/// Computes the gradients of all planes, each element rounded once.
fn spread<T: Float>(windows: &Windows, planes: usize, grad: &[T], how: impl Spread) -> Pooled<T> {
    let (len, outputs) = (in_volume(windows), out_volume(windows));
    let mut out = uninit_vec(planes * len);
    let (mut wide, mut sums) = (Pooled::uninit(outputs), Pooled::<T::Wide>::uninit(len));
    let mut sums64 = (!overlap_little(windows)).then(|| Pooled::<f64>::uninit(len));
    for plane in 0..planes {
        T::widen_into(&grad[plane * outputs..(plane + 1) * outputs], &mut wide);
        match &mut sums64 {
            None => {
                sums.fill(T::Wide::default());
                how.add(plane, &wide, &mut sums);
            }
            Some(sums64) => {
                sums64.fill(0.0);
                how.add(plane, &wide, sums64);
                sums.iter_mut().zip(&**sums64).for_each(|(sum, &sum64)| *sum = T::Wide::of(sum64));
            }
        }
        T::narrow_into(&sums, &mut out[plane * len..(plane + 1) * len]);
    }
    out
}

struct MaxGradient<'a> {
    indices: &'a [u32],
    starts: &'a [usize],
    offsets: &'a [usize],
}

impl Spread for MaxGradient<'_> {
    #[inline(always)]
    fn add<R: Real, A: Real>(&self, plane: usize, grad: &[R], sums: &mut [A]) {
        let indices = &self.indices[plane * grad.len()..];
        for ((&start, grad), &index) in self.starts.iter().zip(grad).zip(indices) {
            sums[start + self.offsets[index as usize]] += A::of(grad.as_f64());
        }
    }
}

/// Computes the sum in f64, in eight independent partial sums.
fn sum_f64<R: Real>(x: &[R]) -> f64 {
    let mut sums = [0.0; 8];
    let chunks = x.chunks_exact(sums.len());
    let rest = chunks.remainder();
    for chunk in chunks {
        sums.iter_mut().zip(chunk).for_each(|(sum, x)| *sum += x.as_f64());
    }
    rest.iter().map(|x| x.as_f64()).sum::<f64>() + sums.iter().sum::<f64>()
}

/// Computes the sum of each window divided by its count, rounded once.
pub fn average<T: Float>(windows: &Windows, planes: usize, x: &[T]) -> Pooled<T> {
    let [_, h, w] = windows;
    let (len, outputs) = (in_volume(windows), out_volume(windows));
    let mut out = uninit_vec(planes * outputs);
    let (mut wide, mut values) = (Pooled::uninit(len), Pooled::uninit(outputs));
    for plane in 0..planes {
        T::widen_into(&x[plane * len..(plane + 1) * len], &mut wide);
        let mut values_left = values.iter_mut();
        for_each_window(windows, |[rd, rh, rw], count| {
            let Some(value) = values_left.next() else { return };
            let mut sum = 0.0;
            for d in rd.clone() {
                for row in rh.clone() {
                    let start = (d * h.input + row) * w.input;
                    sum += sum_f64(&wide[start + rw.start..start + rw.end]);
                }
            }
            *value = T::Wide::of(sum / count as f64);
        });
        T::narrow_into(&values, &mut out[plane * outputs..(plane + 1) * outputs]);
    }
    out
}

/// Spreads each gradient evenly over its window. Overlapping windows are summed as in [`max_backward`].
pub fn average_backward<T: Float>(windows: &Windows, planes: usize, grad: &[T]) -> Pooled<T> {
    spread(windows, planes, grad, AverageGradient(windows))
}

struct AverageGradient<'a>(&'a Windows);

impl Spread for AverageGradient<'_> {
    #[inline(always)]
    fn add<R: Real, A: Real>(&self, _plane: usize, grad: &[R], sums: &mut [A]) {
        let [_, h, w] = self.0;
        let mut grads = grad.iter();
        for_each_window(self.0, |[rd, rh, rw], count| {
            let Some(&grad) = grads.next() else { return };
            let share = A::of((grad / R::of(count as f64)).as_f64());
            for d in rd.clone() {
                for row in rh.clone() {
                    let start = (d * h.input + row) * w.input;
                    sums[start + rw.start..start + rw.end].iter_mut().for_each(|sum| *sum += share);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns windows of `kernel` elements, `step` apart, with padding on both sides.
    fn axis(input: usize, kernel: usize, step: usize, padding: usize) -> AxisWindows {
        let starts = (0..=(input + 2 * padding - kernel) / step).map(|i| i * step);
        let cut = |start: usize| start.saturating_sub(padding)..(start + kernel - padding).min(input);
        let ranges: Vec<_> = starts.map(cut).collect();
        AxisWindows { input, counts: vec![kernel; ranges.len()], ranges }
    }

    /// Compares windows computed together with single windows, bit for bit, including ties, both zeros, infinities and
    /// NaN.
    #[test]
    fn windows_together_find_what_each_finds() {
        let values = [0.0, -0.0, 1.0, 1.0, -2.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 3.0, -f32::NAN];
        let longest = if cfg!(miri) { 8 } else { 60 };
        let inputs = (1..longest).flat_map(|input| (1..=input.min(5)).map(move |kernel| (input, kernel)));
        let steps = inputs.flat_map(|(input, kernel)| (1..5).map(move |step| (input, kernel, step)));
        for (input, kernel, step, padding) in
            steps.flat_map(|(input, kernel, step)| (0..kernel).map(move |padding| (input, kernel, step, padding)))
        {
            let windows =
                [axis(2, 2, 1, padding % 2), axis(4, 2, step.min(2), padding % 2), axis(input, kernel, step, padding)];
            // Windows over an input shorter than them are all cut off.
            assert!(Even::of(&windows).is_some() || input < kernel + padding);
            let len = in_volume(&windows);
            let at = |i: usize, plane: usize| (i * 7919 + plane * 31 + i / 7 * 13) % (values.len() + plane);
            let x: Vec<f32> =
                (0..3).flat_map(|plane| (0..len).map(move |i| at(i, plane))).map(|at| values[at.min(9)]).collect();
            let (got, got_indices) = max(&windows, 3, &x);
            let outputs = out_volume(&windows);
            for (plane, x) in x.chunks_exact(len).enumerate() {
                let (mut want, mut indices) = (vec![0.0; outputs], vec![0; outputs]);
                max_of_each(&windows, x, &mut want, &mut indices);
                let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                let here = plane * outputs..(plane + 1) * outputs;
                assert_eq!(bits(&got[here.clone()]), bits(&want), "{input} {kernel} {step} {padding}");
                assert_eq!(got_indices[here], indices, "{input} {kernel} {step} {padding}");
            }
        }
    }
}
