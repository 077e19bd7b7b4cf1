//! The convolution, and its gradient with respect to the input, which is one convolution per phase of the stride.
//!
//! Every element is summed as in matrix products: in blocks of [`KC`](crate::gemm::blocking::KC) terms.

use std::ops::Range;

use super::{
    by_channels::ByChannels,
    by_outputs::ByOutputs,
    geometry::{Geometry, each, index, positions},
    pack_weights::Weights,
    padded::{PaddedLayout, SLACK},
    task::{Phase, Task},
    vector_axis::VectorAxis,
};
use crate::{
    float::VectorFloat,
    gemm::blocking::MAX_NR,
    memory::{Pooled, uninit_vec, with_scratch, zeros},
    simd,
    simd::Width,
    threads,
    threads::Shared,
};

/// Number of padded elements that are read together, if more than one image: half a MiB.
const CHUNK: usize = 1 << 17;

/// Number of parts into which the outputs of an image are split over threads, if there are one image and few channels.
const PARTS: usize = 16;

/// Returns the number of images of a batch that are padded together, given the number of elements of each.
pub(super) fn images_together(numbers: usize, batch: usize) -> usize {
    (CHUNK / numbers.max(1)).clamp(1, batch)
}

/// Sets channels of `volume` elements to their bias.
pub(super) fn fill_with_bias<T: Copy>(out: &mut [T], volume: usize, bias: Option<&[T]>) {
    let Some(bias) = bias else { return };
    for (channel, out) in out.chunks_exact_mut(volume).enumerate() {
        out.fill(bias[channel % bias.len()]);
    }
}

/// A convolution of all images of `x` in the layout `source`, with `rows` channels of `volume` elements per group.
struct Convolution<'a, T> {
    vectors: Width,
    source: PaddedLayout,
    x: &'a [T],
    phases: &'a [Phase<'a, T>],
    axis: VectorAxis,
    rows: usize,
    volume: usize,
    bias: Option<&'a [T]>,
    work: usize,
}

impl<T: VectorFloat> Convolution<'_, T> {
    fn run(self, out: &mut [T]) {
        let (groups, batch) = (self.source.geometry().groups, self.source.geometry().batch);
        let (rows, work, out) = (self.rows, self.work, Shared::new(out));
        let weights = rows * self.phases.iter().map(|phase| phase.offsets.len()).sum::<usize>();
        if groups > 1 {
            threads::split(groups, 1, work, |groups| {
                groups.for_each(|group| self.region(group, 0..rows, 0..batch, 0..PARTS, out));
            });
        } else if rows > MAX_NR && (batch == 1 || weights > self.x.len()) {
            threads::split(rows, MAX_NR, work, |channels| self.region(0, channels, 0..batch, 0..PARTS, out));
        } else if batch > 1 {
            threads::split(batch, 1, work, |images| self.region(0, 0..rows, images, 0..PARTS, out));
        } else {
            threads::split(PARTS, 1, work, |parts| self.region(0, 0..rows, 0..1, parts, out));
        }
    }

    /// Computes some of the [`PARTS`] parts of some channels of a group in some images.
    fn region(
        &self,
        group: usize,
        channels: Range<usize>,
        images: Range<usize>,
        some: Range<usize>,
        out: Shared<'_, T>,
    ) {
        let Convolution { source, x, rows, volume, bias, .. } = self;
        let g = source.geometry();
        let x_group = g.in_channels * g.in_volume();
        let padded_image = g.in_channels * source.channel();
        let image = g.groups * rows * volume;
        let together = images_together(padded_image, images.len());
        with_scratch(|[padded, wide, panel, weights]| {
            let padded = padded.uninit(together * padded_image + SLACK);
            padded.fill(0.0);
            for first in images.clone().step_by(together) {
                let count = together.min(images.end - first);
                for (image, padded) in (first..first + count).zip(padded.chunks_exact_mut(padded_image.max(1))) {
                    let at = (image * g.groups + group) * x_group;
                    source.fill(&x[at..at + x_group], padded, source.channel(), wide);
                }
                for phase in self.phases {
                    let runs = |at: usize| phase.runs.len() * at / PARTS;
                    let runs = &phase.runs[runs(some.start)..runs(some.end)];
                    if runs.is_empty() {
                        continue;
                    }
                    let task = Task {
                        padded,
                        padded_image,
                        phase,
                        runs,
                        images: count,
                        weights: phase.weights.of_group(group, g.groups),
                        channels: channels.clone(),
                        bias: bias.map(|bias| &bias[group * rows..(group + 1) * rows]),
                        out,
                        start: first * image + group * rows * volume,
                        image,
                        channel: *volume,
                        panel: &mut *panel,
                        wide: &mut *weights,
                    };
                    let done = match self.axis {
                        VectorAxis::Channels => simd::run_with(self.vectors, ByChannels(task)).is_ok(),
                        VectorAxis::Outputs => simd::run_with(self.vectors, ByOutputs(task)).is_ok(),
                    };
                    assert!(done, "a width that the machine has");
                }
            }
        });
    }
}

/// Computes the convolution; see [`forward`](super::dispatch::forward).
pub(super) fn forward<T: VectorFloat>(
    (vectors, axis): (Width, VectorAxis),
    g: &Geometry,
    x: &[T],
    weight: &[T],
    bias: Option<&[T]>,
) -> Pooled<T> {
    let mut out = uninit_vec(g.sizes()[2]);
    if out.is_empty() {
        return out;
    }
    let source = match axis {
        VectorAxis::Channels => PaddedLayout::whole(g),
        VectorAxis::Outputs => PaddedLayout::phase_split(g),
    };
    let phase = only_phase(g, &source, weight);
    let (rows, volume, work) = (g.out_channels, g.out_volume(), g.work());
    Convolution { vectors, source, x, phases: &[phase], axis, rows, volume, bias, work }.run(&mut out);
    out
}

/// Returns all outputs of a convolution as one phase, which reads its input in this layout.
pub(super) fn only_phase<'a, T>(g: &Geometry, source: &PaddedLayout, weight: &'a [T]) -> Phase<'a, T> {
    let first = positions([g.output[0], g.output[1], 1]);
    Phase {
        offsets: source.offsets(source.channel()),
        runs: Pooled::collect(g.output[0] * g.output[1], first.map(|at| (source.start(at), index(at, g.output)))),
        length: g.output[2],
        steps: (source.step()[2], 1),
        weights: Weights::Rows(weight),
    }
}

/// Returns the layout of the output gradient, padded on both sides as far as taps reach.
pub(super) fn input_gradient_source(g: &Geometry) -> PaddedLayout {
    let reach = each(|a| (g.kernel[a] - 1) * g.dilation[a] / g.stride[a]);
    PaddedLayout::whole(&Geometry {
        in_channels: g.out_channels,
        out_channels: g.in_channels,
        input: g.output,
        output: each(|a| g.output[a] + reach[a]),
        kernel: each(|a| reach[a] + 1),
        stride: [1; 3],
        dilation: [1; 3],
        before: reach,
        ..*g
    })
}

/// Returns the phases of an input gradient: the pixels of one phase of the stride are a convolution of stride 1 of the
/// output gradient, in its padded layout, with the taps that fall on the phase.
pub(super) fn input_phases<'a, T>(g: &Geometry, source: &PaddedLayout, weight: &'a [T]) -> Vec<Phase<'a, T>> {
    let split = PaddedLayout::phase_split(g);
    let reach = source.geometry().before;
    let (channels, taps) = (g.in_channels, g.taps());
    let mut phases = Vec::new();
    for phase in positions(g.stride) {
        let pixels: [_; 3] = std::array::from_fn(|a| split.pixels(a, phase[a]));
        let count = each(|a| pixels[a].0.len());
        if count.contains(&0) {
            continue;
        }
        let pixel = |tap: [usize; 3]| each(|a| tap[a] * g.dilation[a]);
        let here = |tap: &[usize; 3]| (0..3).all(|a| pixel(*tap)[a] % g.stride[a] == phase[a]);
        let chosen: Vec<[usize; 3]> = positions(g.kernel).filter(here).collect();
        if chosen.is_empty() {
            continue;
        }
        let offset = |tap: [usize; 3]| index(each(|a| reach[a] - pixel(tap)[a] / g.stride[a]), source.size);
        let offsets = (0..g.out_channels).flat_map(|o| chosen.iter().map(move |&tap| (o, tap)));
        let run = |at: [usize; 3]| {
            let to = each(|a| pixels[a].1 + at[a] * g.stride[a]);
            (index(each(|a| pixels[a].0.start + at[a]), source.size), index(to, g.input))
        };
        phases.push(Phase {
            offsets: Pooled::collect(
                g.out_channels * chosen.len(),
                offsets.map(|(o, tap)| o * source.channel() + offset(tap)),
            ),
            runs: Pooled::collect(count[0] * count[1], positions([count[0], count[1], 1]).map(run)),
            length: count[2],
            steps: (1, g.stride[2]),
            weights: Weights::Taps {
                weight,
                channels,
                taps,
                chosen: chosen.iter().map(|&tap| index(tap, g.kernel)).collect(),
            },
        });
    }
    phases
}

/// Computes the gradient; see [`input_gradient`](super::dispatch::input_gradient).
pub(super) fn input_gradient<T: VectorFloat>(
    (vectors, axis): (Width, VectorAxis),
    g: &Geometry,
    grad: &[T],
    weight: &[T],
    bias: Option<&[T]>,
) -> Pooled<T> {
    let mut out = zeros(g.sizes()[0]);
    if out.is_empty() {
        return out;
    }
    let source = input_gradient_source(g);
    let phases = input_phases(g, &source, weight);
    let (rows, volume, work) = (g.in_channels, g.in_volume(), g.work());
    let covered: usize = phases.iter().map(Phase::outputs).sum();
    if covered < volume {
        // Pixels that no output reads receive the bias alone.
        fill_with_bias(&mut out, volume, bias);
    }
    Convolution { vectors, source, x: grad, phases: &phases, axis, rows, volume, bias, work }.run(&mut out);
    out
}
