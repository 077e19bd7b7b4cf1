//! Padded layout of images: copies with their padding, so that every output of a convolution reads at the same offsets
//! from its own start.
//!
//! In the phase-split layout, the padded pixels of an axis are split into as many phases as the stride: pixel p is at
//! position `p / stride` of phase `p % stride`. Adjacent outputs then read adjacent numbers. Each channel becomes one
//! plane per phase of the three axes, all of one size.

use std::ops::Range;

use super::geometry::{Geometry, each, index, positions};
use crate::{
    arrays::array_of,
    float::VectorFloat,
    memory::{Pooled, Scratch},
};

/// Numbers after the last plane that the last vector may read.
pub(super) const SLACK: usize = 64;

/// Padded layout of a convolution's images.
pub(super) struct PaddedLayout {
    geometry: Geometry,
    /// Number of phases of each axis.
    pub phases: [usize; 3],
    /// Number of positions of a phase along each axis.
    pub size: [usize; 3],
}

impl PaddedLayout {
    /// Creates a layout with one phase.
    pub fn whole(g: &Geometry) -> PaddedLayout {
        PaddedLayout::of_phases(g, [1; 3])
    }

    /// Creates a layout split into the phases of the stride.
    pub fn phase_split(g: &Geometry) -> PaddedLayout {
        PaddedLayout::of_phases(g, g.stride)
    }

    fn of_phases(g: &Geometry, phases: [usize; 3]) -> PaddedLayout {
        let size =
            each(|a| (g.output[a] - 1) * g.stride[a] / phases[a] + (g.kernel[a] - 1) * g.dilation[a] / phases[a] + 1);
        PaddedLayout { geometry: *g, phases, size }
    }

    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Returns the number of elements of a plane.
    pub fn plane(&self) -> usize {
        self.size.iter().product()
    }

    /// Returns the number of elements of one channel.
    pub fn channel(&self) -> usize {
        self.phases.iter().product::<usize>() * self.plane()
    }

    /// Returns the distance between adjacent outputs along each axis, in positions of a phase.
    pub fn step(&self) -> [usize; 3] {
        each(|a| self.geometry.stride[a] / self.phases[a])
    }

    /// Returns the index from which an output reads.
    pub fn start(&self, output: [usize; 3]) -> usize {
        index(each(|a| output[a] * self.step()[a]), self.size)
    }

    /// Returns the distance from that index at which each row of the im2col matrix reads, for the channels of one
    /// group, which are `step` numbers apart.
    pub fn offsets(&self, step: usize) -> Pooled<usize> {
        let g = &self.geometry;
        let taps = positions(g.kernel).map(|tap| {
            let pixel = each(|a| tap[a] * g.dilation[a]);
            let phase = index(each(|a| pixel[a] % self.phases[a]), self.phases);
            phase * self.plane() + index(each(|a| pixel[a] / self.phases[a]), self.size)
        });
        let taps: Vec<usize> = taps.collect();
        Pooled::collect(g.patch(), (0..g.in_channels).flat_map(|c| taps.iter().map(move |tap| c * step + tap)))
    }

    /// Returns, along an axis, the positions of a phase that are pixels of the image, and the pixel at the first of
    /// them.
    pub fn pixels(&self, axis: usize, phase: usize) -> (Range<usize>, usize) {
        let (phases, before, len) = (self.phases[axis], self.geometry.before[axis], self.geometry.input[axis]);
        let first = before.saturating_sub(phase).div_ceil(phases);
        let end = (len + before).saturating_sub(phase).div_ceil(phases).min(self.size[axis]);
        (first..end.max(first), first * phases + phase - before.min(first * phases + phase))
    }

    /// Returns the rows of a channel of an image that the layout holds, one for each phase of the last axis.
    pub fn rows(&self) -> Vec<Row> {
        let g = &self.geometry;
        let mut rows = Vec::new();
        for (number, phase) in positions(self.phases).enumerate() {
            let [(ds, d0), (hs, h0), (ws, w0)] = array_of(|a| self.pixels(a, phase[a]));
            for (i, d) in ds.enumerate().filter(|_| !ws.is_empty()) {
                for (j, h) in hs.clone().enumerate() {
                    let from = index([d0 + i * self.phases[0], h0 + j * self.phases[1], w0], g.input);
                    let to = number * self.plane() + index([d, h, ws.start], self.size);
                    rows.push(Row { from, to, len: ws.len() });
                }
            }
        }
        rows
    }

    /// Copies some channels of one image to the layout, widened, `step` numbers apart. Padding is not written; it was
    /// zeroed before.
    pub fn fill<T: VectorFloat>(&self, image: &[T], to: &mut [f32], step: usize, wide: &mut Scratch) {
        self.fill_as_is(T::widened(image, wide.uninit(image.len())), to, step);
    }

    /// Copies as [`fill`](PaddedLayout::fill) does, without widening.
    pub fn fill_as_is<T: Copy>(&self, image: &[T], to: &mut [T], step: usize) {
        let rows = self.rows();
        for (image, to) in image.chunks_exact(self.geometry.in_volume().max(1)).zip(to.chunks_mut(step)) {
            copy_rows(&rows, self.phases[2], image, to);
        }
    }
}

/// Part of a row of an image that is contiguous in the layout: the indices of its first number in both, and its length
/// there.
pub(super) struct Row {
    pub from: usize,
    pub to: usize,
    pub len: usize,
}

/// Copies rows whose numbers are `step` apart in the image.
#[inline(always)]
pub(super) fn copy_rows<T: Copy>(rows: &[Row], step: usize, image: &[T], to: &mut [T]) {
    for row in rows {
        let (from, to) = (&image[row.from..], &mut to[row.to..row.to + row.len]);
        match step {
            1 => copy_row(&from[..row.len], to),
            2 => copy_every_second(from, to),
            _ => to.iter_mut().zip(from.iter().step_by(step)).for_each(|(to, &x)| *to = x),
        }
    }
}

/// Copies a row. Rows of usual lengths are copied without a call, which would take longer than the copy.
#[inline(always)]
fn copy_row<T: Copy>(from: &[T], to: &mut [T]) {
    macro_rules! of_length {
        ($($length:literal)*) => {
            match to.len() {
                $( $length => *to.first_chunk_mut::<$length>().expect("its length") = *from.first_chunk().expect("as long"), )*
                _ => to.copy_from_slice(from),
            }
        };
    }
    of_length! { 1 2 4 7 8 14 16 28 32 56 64 112 }
}

/// Copies the first number, the third, and so on. The last block overlaps the one before it.
#[inline(always)]
fn copy_every_second<T: Copy>(from: &[T], to: &mut [T]) {
    macro_rules! in_blocks {
        ($size:literal) => {{
            let mut i = 0;
            while i < to.len() {
                let at = i.min(to.len() - $size);
                let from = &from[2 * at..2 * at + 2 * $size];
                let some: [T; $size] = array_of(|i| from[2 * i]);
                to[at..at + $size].copy_from_slice(&some);
                i += $size;
            }
        }};
    }
    match to.len() {
        16.. if from.len() >= 2 * to.len() => in_blocks!(16),
        8.. if from.len() >= 2 * to.len() => in_blocks!(8),
        4.. if from.len() >= 2 * to.len() => in_blocks!(4),
        len => {
            for i in 0..len {
                to[i] = from[2 * i];
            }
        }
    }
}
