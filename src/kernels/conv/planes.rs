//! Images laid out so that a convolution of any stride reads contiguous windows.
//!
//! Along an axis of stride s, tap k of output o reads padded pixel `o * s + k * dilation`. With the padded pixels dealt out
//! to s phases, pixel p to place `p / s` of phase `p % s`, that is place `o + shift` of a phase, where phase and shift
//! depend on the tap alone. Each channel becomes one plane for each phase of the three axes, all of one size, and a tap
//! an offset into the channel's planes: output o reads `o + offset`.

use std::ops::Range;

use super::Geometry;
use crate::{dtype::Float, kernels::gemm::scratch::Scratch};

/// Numbers behind the last plane that a vector may read without use.
pub(super) const SLACK: usize = 64;

/// Where one tap reads along the three axes.
#[derive(Clone, Copy)]
pub(super) struct Tap {
    pub phase: [usize; 3],
    pub shift: [usize; 3],
}

/// The sizes of a convolution's planes.
pub(super) struct Planes {
    geometry: Geometry,
    /// Places of a phase along each axis.
    pub size: [usize; 3],
    /// The largest shift along each axis.
    pub reach: [usize; 3],
}

/// Three numbers at once.
fn each(f: impl Fn(usize) -> usize) -> [usize; 3] {
    std::array::from_fn(f)
}

/// The place of `[a, b, c]` in a box of `size`.
pub(super) fn place(at: [usize; 3], size: [usize; 3]) -> usize {
    (at[0] * size[1] + at[1]) * size[2] + at[2]
}

impl Planes {
    pub fn new(g: &Geometry) -> Planes {
        let reach = each(|a| (g.kernel[a] - 1) * g.dilation[a] / g.stride[a]);
        Planes { geometry: *g, size: each(|a| g.output[a] + reach[a]), reach }
    }

    /// All taps of the kernel, in their order in the weight.
    pub fn taps(&self) -> impl Iterator<Item = Tap> + '_ {
        let g = &self.geometry;
        (0..g.taps()).map(move |t| {
            let tap = [t / (g.kernel[1] * g.kernel[2]), t / g.kernel[2] % g.kernel[1], t % g.kernel[2]];
            let pixel = each(|a| tap[a] * g.dilation[a]);
            Tap { phase: each(|a| pixel[a] % g.stride[a]), shift: each(|a| pixel[a] / g.stride[a]) }
        })
    }

    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn phases(&self) -> usize {
        self.geometry.stride.iter().product()
    }

    /// Numbers of one channel.
    pub fn channel(&self) -> usize {
        self.phases() * self.size.iter().product::<usize>()
    }

    /// Where each row of the matrix of columns begins, of one group's channels, which are `step` numbers apart.
    pub fn offsets(&self, step: usize) -> Vec<usize> {
        let plane = self.size.iter().product::<usize>();
        let taps: Vec<usize> = self
            .taps()
            .map(|tap| place(tap.phase, self.geometry.stride) * plane + place(tap.shift, self.size))
            .collect();
        (0..self.geometry.in_channels).flat_map(|c| taps.iter().map(move |tap| c * step + tap)).collect()
    }

    /// Along an axis, the places of a phase that are pixels of the image, and the pixel of the first of them.
    pub fn pixels(&self, axis: usize, phase: usize) -> (Range<usize>, usize) {
        let g = &self.geometry;
        let (stride, before, len) = (g.stride[axis], g.before[axis], g.input[axis]);
        let first = before.saturating_sub(phase).div_ceil(stride);
        let end = (len + before).saturating_sub(phase).div_ceil(stride).min(self.size[axis]);
        (first..end.max(first), first * stride + phase - before.min(first * stride + phase))
    }

    /// Lays out the channels of one image, `step` numbers apart. Padding is not written: it is 0 from the beginning.
    pub fn fill<T: Float<Wide = f32>>(&self, image: &[T], to: &mut [f32], step: usize, wide: &mut Scratch) {
        let g = &self.geometry;
        let wide = wide.room(image.len());
        T::widen_into(image, wide);
        let plane = self.size.iter().product::<usize>();
        for (image, to) in wide.chunks_exact(g.in_volume().max(1)).zip(to.chunks_mut(step)) {
            for (number, to) in to[..self.channel()].chunks_exact_mut(plane).enumerate() {
                let (s1, s2) = (g.stride[1], g.stride[2]);
                let phase = [number / (s1 * s2), number / s2 % s1, number % s2];
                let [(ds, d0), (hs, h0), (ws, w0)] = std::array::from_fn(|a| self.pixels(a, phase[a]));
                for (i, d) in ds.enumerate().filter(|_| !ws.is_empty()) {
                    for (j, h) in hs.clone().enumerate() {
                        let from = place([d0 + i * g.stride[0], h0 + j * s1, w0], g.input);
                        let to = &mut to[place([d, h, ws.start], self.size)..][..ws.len()];
                        if s2 == 1 {
                            to.copy_from_slice(&image[from..from + ws.len()]);
                        } else {
                            to.iter_mut().zip(image[from..].iter().step_by(s2)).for_each(|(to, &x)| *to = x);
                        }
                    }
                }
            }
        }
    }
}
