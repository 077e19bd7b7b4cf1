//! Images laid out with their padding, so that every output of a convolution reads at the same offsets from a place of its
//! own.
//!
//! The padded pixels of an axis may be dealt out to as many phases as the stride: then pixel p is at place `p / stride` of
//! phase `p % stride`, and outputs that are neighbours read neighbours. Each channel becomes one plane for each phase of
//! the three axes, all of one size.

use std::ops::Range;

use super::Geometry;
use crate::{
    dtype::Float,
    kernels::{
        buffers::{Lent, collected},
        gemm::scratch::Scratch,
    },
};

/// Numbers behind the last plane that a vector may read without use.
pub(super) const SLACK: usize = 64;

/// The layout of a convolution's images.
pub(super) struct Planes {
    geometry: Geometry,
    /// Phases of each axis.
    pub phases: [usize; 3],
    /// Places of a phase along each axis.
    pub size: [usize; 3],
}

/// Three numbers at once.
pub(super) fn each(f: impl Fn(usize) -> usize) -> [usize; 3] {
    std::array::from_fn(f)
}

/// The place of `[a, b, c]` in a box of `size`.
pub(super) fn place(at: [usize; 3], size: [usize; 3]) -> usize {
    (at[0] * size[1] + at[1]) * size[2] + at[2]
}

/// All of a box of `size`, in order.
pub(super) fn places(size: [usize; 3]) -> impl Iterator<Item = [usize; 3]> {
    let all = size.iter().product::<usize>();
    (0..all).map(move |i| [i / (size[1] * size[2]), i / size[2] % size[1], i % size[2]])
}

impl Planes {
    /// Images whose pixels stay in one phase.
    pub fn whole(g: &Geometry) -> Planes {
        Planes::of_phases(g, [1; 3])
    }

    /// Images dealt out to the phases of the stride.
    pub fn dealt(g: &Geometry) -> Planes {
        Planes::of_phases(g, g.stride)
    }

    fn of_phases(g: &Geometry, phases: [usize; 3]) -> Planes {
        let size =
            each(|a| (g.output[a] - 1) * g.stride[a] / phases[a] + (g.kernel[a] - 1) * g.dilation[a] / phases[a] + 1);
        Planes { geometry: *g, phases, size }
    }

    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Numbers of a plane.
    pub fn plane(&self) -> usize {
        self.size.iter().product()
    }

    /// Numbers of one channel.
    pub fn channel(&self) -> usize {
        self.phases.iter().product::<usize>() * self.plane()
    }

    /// Places between outputs that are neighbours along each axis.
    pub fn step(&self) -> [usize; 3] {
        each(|a| self.geometry.stride[a] / self.phases[a])
    }

    /// The place that an output reads from.
    pub fn start(&self, output: [usize; 3]) -> usize {
        place(each(|a| output[a] * self.step()[a]), self.size)
    }

    /// How far from there each row of the matrix of columns begins, of one group's channels, which are `step` numbers apart.
    pub fn offsets(&self, step: usize) -> Lent<usize> {
        let g = &self.geometry;
        let taps = places(g.kernel).map(|tap| {
            let pixel = each(|a| tap[a] * g.dilation[a]);
            let phase = place(each(|a| pixel[a] % self.phases[a]), self.phases);
            phase * self.plane() + place(each(|a| pixel[a] / self.phases[a]), self.size)
        });
        let taps: Vec<usize> = taps.collect();
        collected(g.patch(), (0..g.in_channels).flat_map(|c| taps.iter().map(move |tap| c * step + tap)))
    }

    /// Along an axis, the places of a phase that are pixels of the image, and the pixel of the first of them.
    pub fn pixels(&self, axis: usize, phase: usize) -> (Range<usize>, usize) {
        let (phases, before, len) = (self.phases[axis], self.geometry.before[axis], self.geometry.input[axis]);
        let first = before.saturating_sub(phase).div_ceil(phases);
        let end = (len + before).saturating_sub(phase).div_ceil(phases).min(self.size[axis]);
        (first..end.max(first), first * phases + phase - before.min(first * phases + phase))
    }

    /// Lays out some channels of one image, `step` numbers apart. Padding is not written: it is 0 from the beginning.
    pub fn fill<T: Float<Wide = f32>>(&self, image: &[T], to: &mut [f32], step: usize, wide: &mut Scratch) {
        let g = &self.geometry;
        let wide = wide.room(image.len());
        T::widen_into(image, wide);
        for (image, to) in wide.chunks_exact(g.in_volume().max(1)).zip(to.chunks_mut(step)) {
            for (phase, to) in places(self.phases).zip(to[..self.channel()].chunks_exact_mut(self.plane())) {
                let [(ds, d0), (hs, h0), (ws, w0)] = std::array::from_fn(|a| self.pixels(a, phase[a]));
                for (i, d) in ds.enumerate().filter(|_| !ws.is_empty()) {
                    for (j, h) in hs.clone().enumerate() {
                        let from = place([d0 + i * self.phases[0], h0 + j * self.phases[1], w0], g.input);
                        let to = &mut to[place([d, h, ws.start], self.size)..][..ws.len()];
                        if self.phases[2] == 1 {
                            to.copy_from_slice(&image[from..from + ws.len()]);
                        } else {
                            to.iter_mut()
                                .zip(image[from..].iter().step_by(self.phases[2]))
                                .for_each(|(to, &x)| *to = x);
                        }
                    }
                }
            }
        }
    }
}
