//! Sums of windows: the convolution, and its gradient with respect to the input.
//!
//! Every element is summed as those of matrix products are: in blocks of [`DEPTH`](crate::kernels::gemm::DEPTH) terms.

use std::ops::Range;

use super::{
    Across, Geometry,
    channels::Channels,
    fill_with_bias,
    planes::{Planes, SLACK, each, place, places},
    strips::Strips,
    weights::Weights,
};
use crate::kernels::{
    buffers::{Lent, collected, take, zeros},
    gemm::{
        scratch::{Scratch, with_scratch},
        tile::TILE_WIDTH,
    },
    simd::{self, Lanes, Width},
    threads::{self, Shared},
};

/// Numbers of laid out images that are read together, if that is more than one image: half a MiB.
const CHUNK: usize = 1 << 17;

/// Parts of an image that are computed apart, where there is one image and few channels.
const PARTS: usize = 16;

/// How many of a batch's images are laid out together, each of so many numbers.
pub(super) fn together(numbers: usize, batch: usize) -> usize {
    (CHUNK / numbers.max(1)).clamp(1, batch)
}

/// Outputs that are computed alike.
pub(super) struct Part<'a, T> {
    /// How far from where an output begins each term is read.
    pub offsets: Lent<usize>,
    /// Runs of outputs: where the first of each begins in the planes, and its place in its channel of the result.
    pub runs: Lent<(usize, usize)>,
    /// Outputs of each run.
    pub length: usize,
    /// Places between them, in the planes and in the result.
    pub steps: (usize, usize),
    /// Of all groups.
    pub weights: Weights<'a, T>,
}

/// Runs of outputs of some images, for some channels of a group.
pub(super) struct Task<'a, T> {
    /// The group's planes of the first image, and the numbers of an image.
    pub planes: &'a [f32],
    pub planes_image: usize,
    pub part: &'a Part<'a, T>,
    pub runs: &'a [(usize, usize)],
    pub images: usize,
    /// Of the group.
    pub weights: Weights<'a, T>,
    pub channels: Range<usize>,
    pub bias: Option<&'a [T]>,
    pub out: Shared<'a, T>,
    /// The group's first element in the result of the first image, the elements of an image, and of a channel.
    pub start: usize,
    pub image: usize,
    pub channel: usize,
    /// Memory to work in.
    pub panel: &'a mut Scratch,
    pub wide: &'a mut Scratch,
}

impl<T> Task<'_, T> {
    /// Panics unless all that is read lies inside the planes, and all that is written inside the result.
    pub fn check(&self) {
        let greatest = |places: &mut dyn Iterator<Item = usize>| places.max().unwrap_or(0);
        let (steps, last) = (self.part.steps, self.part.length - 1);
        let from = greatest(&mut self.runs.iter().map(|run| run.0)) + greatest(&mut self.part.offsets.iter().copied());
        let from = (self.images - 1) * self.planes_image + from + last * steps.0;
        assert!(from + SLACK <= self.planes.len(), "windows lie inside the planes");
        let to = greatest(&mut self.runs.iter().map(|run| run.1)) + last * steps.1;
        assert!(to < self.channel, "outputs lie inside their channel");
    }
}

/// Sums of windows of all images of `x`, of which `source` says how they are laid out; `rows` channels of `volume` elements
/// for each group.
struct Whole<'a, T> {
    vectors: Width,
    source: Planes,
    x: &'a [T],
    parts: &'a [Part<'a, T>],
    across: Across,
    rows: usize,
    volume: usize,
    bias: Option<&'a [T]>,
    work: usize,
}

impl<T: Lanes> Whole<'_, T> {
    fn run(self, out: &mut [T]) {
        let (groups, batch) = (self.source.geometry().groups, self.source.geometry().batch);
        let (rows, work, out) = (self.rows, self.work, Shared::new(out));
        let weights = rows * self.parts.iter().map(|part| part.offsets.len()).sum::<usize>();
        if groups > 1 {
            threads::split(groups, 1, work, |groups| {
                groups.for_each(|group| self.region(group, 0..rows, 0..batch, 0..PARTS, out));
            });
        } else if rows > TILE_WIDTH && (batch == 1 || weights > self.x.len()) {
            threads::split(rows, TILE_WIDTH, work, |channels| self.region(0, channels, 0..batch, 0..PARTS, out));
        } else if batch > 1 {
            threads::split(batch, 1, work, |images| self.region(0, 0..rows, images, 0..PARTS, out));
        } else {
            threads::split(PARTS, 1, work, |parts| self.region(0, 0..rows, 0..1, parts, out));
        }
    }

    /// Some channels of a group in some images, of which some parts out of [`PARTS`].
    fn region(
        &self,
        group: usize,
        channels: Range<usize>,
        images: Range<usize>,
        some: Range<usize>,
        out: Shared<'_, T>,
    ) {
        let Whole { source, x, rows, volume, bias, .. } = self;
        let g = source.geometry();
        let x_group = g.in_channels * g.in_volume();
        let planes_image = g.in_channels * source.channel();
        let image = g.groups * rows * volume;
        let together = together(planes_image, images.len());
        with_scratch(|[planes, wide, panel, weights]| {
            let planes = planes.room(together * planes_image + SLACK);
            planes.fill(0.0);
            for first in images.clone().step_by(together) {
                let count = together.min(images.end - first);
                for (image, planes) in (first..first + count).zip(planes.chunks_exact_mut(planes_image.max(1))) {
                    let at = (image * g.groups + group) * x_group;
                    source.fill(&x[at..at + x_group], planes, source.channel(), wide);
                }
                for part in self.parts {
                    let runs = |at: usize| part.runs.len() * at / PARTS;
                    let runs = &part.runs[runs(some.start)..runs(some.end)];
                    if runs.is_empty() {
                        continue;
                    }
                    let task = Task {
                        planes,
                        planes_image,
                        part,
                        runs,
                        images: count,
                        weights: part.weights.of_group(group, g.groups),
                        channels: channels.clone(),
                        bias: bias.map(|bias| &bias[group * rows..(group + 1) * rows]),
                        out,
                        start: first * image + group * rows * volume,
                        image,
                        channel: *volume,
                        panel: &mut *panel,
                        wide: &mut *weights,
                    };
                    let done = match self.across {
                        Across::Channels => simd::run_with(self.vectors, Channels(task)).is_ok(),
                        Across::Outputs => simd::run_with(self.vectors, Strips(task)).is_ok(),
                    };
                    assert!(done, "a width that the machine has");
                }
            }
        });
    }
}

/// See [`forward`](super::forward).
pub(super) fn forward<T: Lanes>(
    (vectors, across): (Width, Across),
    g: &Geometry,
    x: &[T],
    weight: &[T],
    bias: Option<&[T]>,
) -> Vec<T> {
    let mut out = take(g.sizes()[2]);
    if out.is_empty() {
        return out;
    }
    let source = match across {
        Across::Channels => Planes::whole(g),
        Across::Outputs => Planes::dealt(g),
    };
    let first = places([g.output[0], g.output[1], 1]);
    let part = Part {
        offsets: source.offsets(source.channel()),
        runs: collected(g.output[0] * g.output[1], first.map(|at| (source.start(at), place(at, g.output)))),
        length: g.output[2],
        steps: (source.step()[2], 1),
        weights: Weights::Rows(weight),
    };
    let (rows, volume, work) = (g.out_channels, g.out_volume(), g.work());
    Whole { vectors, source, x, parts: &[part], across, rows, volume, bias, work }.run(&mut out);
    out
}

/// See [`input_gradient`](super::input_gradient). The pixels of one phase are a convolution, of stride 1, of the gradient
/// with those taps that fall on the phase.
pub(super) fn input_gradient<T: Lanes>(
    (vectors, across): (Width, Across),
    g: &Geometry,
    grad: &[T],
    weight: &[T],
    bias: Option<&[T]>,
) -> Vec<T> {
    let mut out = zeros(g.sizes()[0]);
    if out.is_empty() {
        return out;
    }
    let dealt = Planes::dealt(g);
    let reach = each(|a| (g.kernel[a] - 1) * g.dilation[a] / g.stride[a]);
    // The gradient, padded on both sides as far as taps reach.
    let source = Planes::whole(&Geometry {
        in_channels: g.out_channels,
        out_channels: g.in_channels,
        input: g.output,
        output: each(|a| g.output[a] + reach[a]),
        kernel: each(|a| reach[a] + 1),
        stride: [1; 3],
        dilation: [1; 3],
        before: reach,
        ..*g
    });
    let (channels, taps) = (g.in_channels, g.taps());
    let mut parts = Vec::new();
    for phase in places(g.stride) {
        let pixels: [_; 3] = std::array::from_fn(|a| dealt.pixels(a, phase[a]));
        let count = each(|a| pixels[a].0.len());
        if count.contains(&0) {
            continue;
        }
        let pixel = |tap: [usize; 3]| each(|a| tap[a] * g.dilation[a]);
        let here = |tap: &[usize; 3]| (0..3).all(|a| pixel(*tap)[a] % g.stride[a] == phase[a]);
        let chosen: Vec<[usize; 3]> = places(g.kernel).filter(here).collect();
        let offset = |tap: [usize; 3]| place(each(|a| reach[a] - pixel(tap)[a] / g.stride[a]), source.size);
        let offsets = (0..g.out_channels).flat_map(|o| chosen.iter().map(move |&tap| (o, tap)));
        let run = |at: [usize; 3]| {
            let to = each(|a| pixels[a].1 + at[a] * g.stride[a]);
            (place(each(|a| pixels[a].0.start + at[a]), source.size), place(to, g.input))
        };
        parts.push(Part {
            offsets: collected(
                g.out_channels * chosen.len(),
                offsets.map(|(o, tap)| o * source.channel() + offset(tap)),
            ),
            runs: collected(count[0] * count[1], places([count[0], count[1], 1]).map(run)),
            length: count[2],
            steps: (1, g.stride[2]),
            weights: Weights::Taps {
                weight,
                channels,
                taps,
                chosen: chosen.iter().map(|&tap| place(tap, g.kernel)).collect(),
            },
        });
    }
    let (rows, volume, work) = (g.in_channels, g.in_volume(), g.work());
    let covered: usize = parts.iter().map(|part| part.runs.len() * part.length).sum();
    if covered < volume {
        // What no output reads is the bias alone.
        fill_with_bias(&mut out, volume, bias);
    }
    Whole { vectors, source, x: grad, parts: &parts, across, rows, volume, bias, work }.run(&mut out);
    out
}
