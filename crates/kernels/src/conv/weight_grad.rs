//! Gradient of a convolution with respect to its weight: the sum over all outputs of their gradients times the patches
//! that they read.

use std::ops::Range;

use half::bf16;

use super::{
    by_channels::Columns,
    geometry::{Geometry, index, positions},
    image_terms::ImageTerms,
    padded::{PaddedLayout, SLACK},
    vector_axis::VectorAxis,
    windows::images_together,
};
use crate::{
    float::VectorFloat,
    gemm::{
        blocking::{KC, MAX_MR, MAX_NR},
        dot::Dots,
        micro_kernel::{Panel, TILE, Terms, Windows, micro_kernel},
        pack::{Operand, pack_wide, packed_len},
        pairs::{ByWay, Ways, WaysKernel, are_exact, run_pairs, sizes_of},
    },
    limits,
    memory::{Pooled, Scratch, with_scratch, zeros},
    simd,
    simd::{Part, Simd, Width},
    threads,
    threads::Shared,
};

/// Maximum number of parts of a batch that are summed separately. The sums are then added in order, whatever the number
/// of threads.
const PARTS: usize = 8;

/// Number of terms per sum below which several images are summed together. Otherwise adding up the lanes would
/// dominate.
const TERMS: usize = 1024;

/// Computes the gradient; see [`weight_gradient`](super::dispatch::weight_gradient).
pub(super) fn weight_gradient<T: VectorFloat>(
    (vectors, axis): (Width, VectorAxis),
    g: &Geometry,
    x: &[T],
    grad: &[T],
) -> Pooled<T> {
    let weight = zeros(g.sizes()[1]);
    if x.is_empty() || grad.is_empty() || weight.is_empty() {
        return weight;
    }
    if axis == VectorAxis::Outputs {
        return by_dot_products(vectors, &PaddedLayout::phase_split(g), x, grad);
    }
    by_channels(g, x, grad, &|region| {
        assert!(simd::run_with(vectors, ByWay::new(region)).is_ok(), "a width that the machine has");
    })
}

/// Computes [`weight_gradient`] over channels, by pairs: adjacent outputs are the terms of a pair. `None` if pairs do
/// not pay, or if the bits of their sums could differ.
pub(super) fn by_pairs(g: &Geometry, x: &[bf16], grad: &[bf16]) -> Option<Pooled<bf16>> {
    // Without the instruction, tests run its twin.
    let pay = cfg!(test) || limits::pairs_pay();
    // A pair does not span two rows of outputs, so an odd row has one number that is multiplied alone.
    let full = 5 * g.output[2] >= 4 * g.output[2].next_multiple_of(2);
    let can = pay && full && are_exact(sizes_of(x), sizes_of(grad));
    can.then(|| by_channels(g, x, grad, &|region| run_pairs(region)))
}

/// Computes the gradient over channels; `run` computes one region.
fn by_channels<T: VectorFloat>(g: &Geometry, x: &[T], grad: &[T], run: &(impl Fn(Region<T>) + Sync)) -> Pooled<T> {
    let mut weight = zeros(g.sizes()[1]);
    let source = PaddedLayout::whole(g);
    let offsets = source.offsets(source.channel());
    let starts = Pooled::collect(g.out_volume(), positions(g.output).map(|output| source.start(output)));
    let (patch, work, out) = (g.patch(), g.work(), Shared::new(&mut weight));
    let region = |group: usize, rows: Range<usize>, channels: Range<usize>| {
        with_scratch(|memory| {
            let (source, offsets, starts) = (&source, &offsets, &starts);
            run(Region { source, offsets, starts, x, grad, group, rows, channels, out, memory });
        });
    };
    if g.groups > 1 {
        threads::split(g.groups, 1, work, |groups| groups.for_each(|group| region(group, 0..patch, 0..g.out_channels)));
    } else if g.out_channels > patch {
        threads::split(g.out_channels, MAX_NR, work, |channels| region(0, 0..patch, channels));
    } else {
        threads::split(patch, MAX_MR * 3, work, |rows| region(0, rows, 0..g.out_channels));
    }
    weight
}

/// Gradient of some weights of a group as a packed matrix product.
///
/// The rows of the left operand are rows of the im2col matrix, read in place from the padded images. The columns of the
/// right operand are channels of the output gradient, packed. The terms are the outputs of all images that are padded
/// together. They are summed in blocks of [`KC`], and then the sums of blocks are added in order.
struct Region<'a, T> {
    source: &'a PaddedLayout,
    /// Offsets of all rows of the im2col matrix.
    offsets: &'a [usize],
    /// Start of the input read by each output of an image.
    starts: &'a [usize],
    x: &'a [T],
    grad: &'a [T],
    group: usize,
    /// Rows of the im2col matrix.
    rows: Range<usize>,
    channels: Range<usize>,
    /// All weights.
    out: Shared<'a, T>,
    memory: [&'a mut Scratch; 3],
}

impl<T: VectorFloat> WaysKernel<T> for Region<'_, T> {
    type Output = ();

    /// Loops over images, channels, and blocks of outputs.
    #[inline(always)]
    fn run<S: Simd, W: Ways<S, T>>(self, simd: S, ways: W) {
        let Region { source, offsets, starts, x, grad, group, rows, channels, out, memory } = self;
        let in_lane = W::Terms::IN_LANE;
        let [padded, panel, sums] = memory;
        let g = source.geometry();
        // Input channels that these rows read.
        let read = rows.start / g.taps()..rows.end.div_ceil(g.taps());
        let image = read.len() * source.channel();
        let together = images_together(g.in_channels * source.channel(), g.batch);
        // Lanes that begin at each number. Numbers past the last are read for them, but not used.
        let len = (together * image).next_multiple_of(S::LANES);
        let padded = padded.uninit(len);
        let distance = source.step()[2];
        let mut numbers = Pooled::<T>::zeros(len + distance);
        let first = read.start * source.channel();
        let offsets = Pooled::collect(rows.len(), offsets[rows.clone()].iter().map(|offset| offset - first));
        // First output of each lane, and the start of the input that it reads. A lane is of one row and one block.
        let row = g.output[2];
        let begins = |o: &usize| (o - (o / row * row).max(o / KC * KC)).is_multiple_of(in_lane);
        let firsts = (0..together * starts.len()).filter(begins);
        let firsts = Pooled::collect(together * starts.len(), firsts);
        let of_output = |&output: &usize| output / starts.len() * image + starts[output % starts.len()];
        let outputs = Pooled::collect(firsts.len(), firsts.iter().map(of_output));
        let last = outputs.iter().max().unwrap_or(&0) + offsets.iter().max().unwrap_or(&0);
        assert!(last < padded.len(), "factors are inside the padded images");
        // Each image's outputs are packed in whole steps.
        let panel = panel.uninit(packed_len(S::NR, S::NR, KC + <ImageTerms<T> as Operand<T>>::BEYOND));
        let sums_len = rows.len().next_multiple_of(MAX_MR) * S::NR;
        let sums = sums.uninit(channels.len().div_ceil(S::NR) * sums_len);
        sums.fill(0.0);
        for first in (0..g.batch).step_by(together) {
            let images = first..(first + together).min(g.batch);
            for (i, numbers) in images.clone().zip(numbers.chunks_exact_mut(image)) {
                let at = (i * g.groups + group) * g.in_channels + read.start;
                let x = &x[at * g.in_volume()..(at + read.len()) * g.in_volume()];
                source.fill_as_is(x, numbers, source.channel());
            }
            for at in (0..len).step_by(S::LANES) {
                // SAFETY: there are numbers for whole vectors, also at the distance, and as many lanes.
                unsafe { ways.at_each(simd, numbers.as_ptr().add(at), distance, padded.as_mut_ptr().add(at)) };
            }
            let terms = images.len() * g.out_volume();
            for (c, sums) in channels.clone().step_by(S::NR).zip(sums.chunks_exact_mut(sums_len)) {
                let some = c..(c + S::NR).min(channels.end);
                for block in (0..terms).step_by(KC) {
                    let block = block..(block + KC).min(terms);
                    let channels = (g.groups * g.out_channels, g.out_volume());
                    let gradient = ImageTerms::new(grad, channels, images.start, group * g.out_channels);
                    let gradient = gradient.rows_of(row);
                    let lane = |output: usize| firsts.partition_point(|&first| first < output);
                    let lanes = lane(block.start)..lane(block.end);
                    if ways.pack(simd, gradient, some.clone(), block.clone(), S::NR, panel).is_none() {
                        pack_wide(simd, gradient, some.clone(), block, S::NR, panel);
                    }
                    let panel = (&*panel, some.len());
                    let (terms, outputs, offsets) = (ways.terms(), &outputs[lanes], &offsets[..]);
                    terms.apart(simd, AddProducts { terms, padded, outputs, offsets, panel, sums });
                }
            }
        }
        let mut columns = Columns::default();
        for (c, sums) in channels.clone().step_by(S::NR).zip(sums.chunks_exact(sums_len)) {
            let some = c..(c + S::NR).min(channels.end);
            epilogue(simd, g, group, some, rows.clone(), sums, &mut columns, out);
        }
    }
}

/// Adds the products of a block of terms to sums in rows of `NR`, one row per offset: the same code for all dtypes.
///
/// Each of `outputs` plus each offset is inside `padded`. The panel has `NR` columns for each of `outputs`.
struct AddProducts<'a, M> {
    terms: M,
    padded: &'a [f32],
    outputs: &'a [usize],
    offsets: &'a [usize],
    panel: (&'a [f32], usize),
    sums: &'a mut [f32],
}

impl<S: Simd, M: Terms<S>> Part<S> for AddProducts<'_, M> {
    type Output = ();

    #[inline(always)]
    fn run(self, simd: S) {
        let AddProducts { terms, padded, outputs, offsets, panel: (panel, columns), sums } = self;
        let mut tile = TILE;
        for (offsets, sums) in offsets.chunks(S::MR).zip(sums.chunks_mut(S::MR * S::NR)) {
            let mut starts = [padded.as_ptr(); MAX_MR];
            starts.iter_mut().zip(offsets).for_each(|(start, offset)| *start = start.wrapping_add(*offset));
            let windows = Windows { starts, offsets: outputs.as_ptr() };
            let panel = Panel { start: panel.as_ptr(), row: S::NR, step: S::LANES };
            let size = (offsets.len(), columns.div_ceil(S::LANES));
            assert!(sums.len() >= size.0 * S::NR);
            // SAFETY: `Region`, which alone makes one, has asserted that all outputs plus offsets are inside the padded
            // images, and packed the panel; whole vectors are inside the tile and the rows of sums.
            unsafe {
                micro_kernel(simd, terms, size, outputs.len(), windows, panel, &mut tile);
                for (r, row) in tile[..size.0].iter().enumerate() {
                    for c in (0..size.1 * S::LANES).step_by(S::LANES) {
                        let to = sums.as_mut_ptr().add(r * S::NR + c);
                        simd.store_f32(simd.add(simd.load_f32(to), simd.load_f32(row.as_ptr().add(c))), to);
                    }
                }
            }
        }
    }
}

/// Rounds the sums of some channels and stores them.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn epilogue<S: Simd, T: VectorFloat>(
    simd: S,
    g: &Geometry,
    group: usize,
    channels: Range<usize>,
    rows: Range<usize>,
    sums: &[f32],
    columns: &mut Columns<T>,
    out: Shared<'_, T>,
) {
    for (first, sums) in rows.clone().step_by(MAX_MR).zip(sums.chunks_exact(MAX_MR * S::NR)) {
        let count = MAX_MR.min(rows.end - first);
        // SAFETY: there are eight rows of NR sums; the elements are weights of these rows and channels, which no other
        // thread writes.
        unsafe {
            columns.round(simd, sums.as_ptr(), S::NR, channels.len());
            for (c, low) in channels.clone().zip(&columns.low) {
                let to = out.at((group * g.out_channels + c) * g.patch() + first);
                match count {
                    MAX_MR => std::ptr::copy_nonoverlapping(low.as_ptr(), to, MAX_MR),
                    _ => std::ptr::copy_nonoverlapping(low.as_ptr(), to, count),
                }
            }
        }
    }
}

/// Returns the number of images of a part, and how many of them are summed together at a time.
pub(super) fn images_of_part(layout: &PaddedLayout) -> (usize, usize) {
    let batch = layout.geometry().batch;
    let together = TERMS.div_ceil(layout.plane()).min(batch);
    (batch.div_ceil(PARTS).next_multiple_of(together), together)
}

/// Computes the gradient as dot products of rows of the output gradient with windows on the images.
fn by_dot_products<T: VectorFloat>(vectors: Width, layout: &PaddedLayout, x: &[T], grad: &[T]) -> Pooled<T> {
    let g = layout.geometry();
    let len = g.sizes()[1];
    let mut sum = zeros(len);
    let (images, together) = images_of_part(layout);
    let mut parts = Pooled::zeros(g.batch.div_ceil(images) * len);
    threads::chunks(&mut parts, len, g.work(), |part, sums| {
        let end = ((part + 1) * images).min(g.batch);
        for first in (part * images..end).step_by(together) {
            add_images(vectors, layout, first..(first + together).min(end), x, grad, sums);
        }
    });
    for part in parts.chunks_exact(len) {
        sum.iter_mut().zip(part).for_each(|(sum, x)| *sum += x);
    }
    T::narrow_vec(sum)
}

/// Adds the gradient of some images. The planes of a channel of all these images are consecutive. The output gradient
/// has the same layout, with 0 between its rows. So one dot product of two rows is the sum over all these images.
fn add_images<T: VectorFloat>(
    vectors: Width,
    layout: &PaddedLayout,
    images: Range<usize>,
    x: &[T],
    grad: &[T],
    sums: &mut [f32],
) {
    let g = layout.geometry();
    let image = layout.channel();
    let (step, patch) = (images.len() * image, g.patch());
    let offsets = layout.offsets(step);
    let last = [g.output[0] - 1, g.output[1] - 1, g.output[2] - 1];
    // A row ends with the last number that an output reads; there may be no plane after it.
    let span = step - image + index(last, layout.size) + 1;
    let (x_image, grad_image) = (x.len() / g.batch, grad.len() / g.batch);
    let grad_rows = Pooled::collect(g.out_channels, (0..g.out_channels).map(|o| o * step));
    with_scratch(|[padded, wide, gradient]| {
        let padded = padded.uninit(g.groups * g.in_channels * step + SLACK);
        let gradient = gradient.uninit(g.groups * g.out_channels * step);
        padded.fill(0.0);
        gradient.fill(0.0);
        for (i, number) in images.enumerate() {
            layout.fill(&x[number * x_image..(number + 1) * x_image], &mut padded[i * image..], step, wide);
            let wide = wide.uninit(grad_image);
            T::widen_into(&grad[number * grad_image..(number + 1) * grad_image], wide);
            for (row, from) in wide.chunks_exact(g.output[2]).enumerate() {
                let (channel, at) = (row / (g.output[0] * g.output[1]), row % (g.output[0] * g.output[1]));
                let start = index([at / g.output[1], at % g.output[1], 0], layout.size);
                let to = channel * step + i * image + start;
                gradient[to..to + g.output[2]].copy_from_slice(from);
            }
        }
        let mut products = Pooled::uninit(g.out_channels * patch);
        for (group, sums) in sums.chunks_exact_mut(g.out_channels * patch).enumerate() {
            let dots = Dots {
                a: &gradient[group * g.out_channels * step..],
                a_rows: &grad_rows,
                b: &padded[group * g.in_channels * step..],
                b_rows: &offsets,
                len: span,
                sums: &mut products,
            };
            assert!(simd::run_with(vectors, dots).is_ok(), "a width that the machine has");
            sums.iter_mut().zip(&*products).for_each(|(sum, x)| *sum += x);
        }
    });
}
