//! The gradient of a convolution's weight: the sum over all outputs of their gradients times the patches they read.

use std::ops::Range;

use super::{
    Across, Geometry,
    channels::Columns,
    planes::{Planes, SLACK, place, places},
    windows::together,
};
use crate::kernels::{
    buffers::{Lent, collected, lend, zeros},
    gemm::{
        DEPTH,
        dot::Dots,
        pack,
        scratch::{Scratch, with_scratch},
        tile::{Panel, TILE_ROWS, TILE_WIDTH, Tile, Windows, tile},
    },
    simd::{self, Kernel, Lanes, Vector, Width},
    threads::{self, Shared},
};

/// Parts of the batch, at most, whose sums are taken apart and then added in order, whatever the number of threads.
const PARTS: usize = 8;

/// Terms of a sum below which several images are summed together, so that adding up its lanes does not dominate.
const TERMS: usize = 1024;

/// See [`weight_gradient`](super::weight_gradient).
pub(super) fn of_weight<T: Lanes>((vectors, across): (Width, Across), g: &Geometry, x: &[T], grad: &[T]) -> Vec<T> {
    let mut weight = zeros(g.sizes()[1]);
    if x.is_empty() || grad.is_empty() || weight.is_empty() {
        return weight;
    }
    if across == Across::Outputs {
        return by_rows(vectors, &Planes::dealt(g), x, grad);
    }
    let source = Planes::whole(g);
    let offsets = source.offsets(source.channel());
    let starts = collected(g.out_volume(), places(g.output).map(|output| source.start(output)));
    let (patch, work, out) = (g.patch(), g.work(), Shared::new(&mut weight));
    let region = |group: usize, terms: Range<usize>, channels: Range<usize>| {
        with_scratch(|memory| {
            let (source, offsets, starts) = (&source, &offsets, &starts);
            let patches = Patches { source, offsets, starts, x, grad, group, terms, channels, out, memory };
            assert!(simd::run_with(vectors, patches).is_ok(), "a width that the machine has");
        });
    };
    if g.groups > 1 {
        threads::split(g.groups, 1, work, |groups| groups.for_each(|group| region(group, 0..patch, 0..g.out_channels)));
    } else if g.out_channels > patch {
        threads::split(g.out_channels, TILE_WIDTH, work, |channels| region(0, 0..patch, channels));
    } else {
        threads::split(patch, TILE_ROWS * 3, work, |terms| region(0, terms, 0..g.out_channels));
    }
    weight
}

/// The gradient of some terms of the weights of some of a group's channels: a product whose rows are terms, with windows for
/// factors, and whose columns are channels, of the gradient transposed. An element is summed over the outputs of as many
/// images as are laid out together, in blocks of [`DEPTH`], and these sums one after the other.
struct Patches<'a, T> {
    source: &'a Planes,
    /// Of all terms.
    offsets: &'a [usize],
    /// Where each output of an image reads from.
    starts: &'a [usize],
    x: &'a [T],
    grad: &'a [T],
    group: usize,
    terms: Range<usize>,
    channels: Range<usize>,
    /// All weights.
    out: Shared<'a, T>,
    memory: [&'a mut Scratch; 4],
}

impl<T: Lanes> Kernel for Patches<'_, T> {
    type Output = ();

    // SAFETY: factors lie inside the planes, as is asserted; every element written is one of these weights.
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Patches { source, offsets, starts, x, grad, group, terms, channels, out, memory } = self;
        let [planes, wide, panel, sums] = memory;
        let g = source.geometry();
        let (rows, width, volume) = (V::TILE.0, V::TILE.1 * V::LANES, g.out_volume());
        // The channels that these terms read.
        let read = terms.start / g.taps()..terms.end.div_ceil(g.taps());
        let image = read.len() * source.channel();
        let together = together(g.in_channels * source.channel(), g.batch);
        let planes = planes.room(together * image);
        planes.fill(0.0);
        let first = read.start * source.channel();
        let offsets = collected(terms.len(), offsets[terms.clone()].iter().map(|offset| offset - first));
        let outputs = (0..together).flat_map(|i| starts.iter().map(move |start| i * image + start));
        let outputs = collected(together * starts.len(), outputs);
        let last = outputs.iter().max().unwrap_or(&0) + offsets.iter().max().unwrap_or(&0);
        assert!(last < planes.len(), "factors lie inside the planes");
        let panel = panel.room((DEPTH + pack::STEP) * width + SLACK).as_mut_ptr();
        let panel_sums = terms.len().next_multiple_of(TILE_ROWS) * width;
        let sums = sums.room(channels.len().div_ceil(width) * panel_sums);
        sums.fill(0.0);
        let mut eight: pack::Eight = [[0.0; DEPTH]; pack::STEP];
        let mut tile_sums: Tile = [[0.0; TILE_WIDTH]; TILE_ROWS];
        for image0 in (0..g.batch).step_by(together) {
            let count = together.min(g.batch - image0);
            for (i, planes) in planes.chunks_exact_mut(image).enumerate().take(count) {
                let at = ((image0 + i) * g.groups + group) * g.in_channels + read.start;
                let x = &x[at * g.in_volume()..(at + read.len()) * g.in_volume()];
                source.fill(x, planes, source.channel(), wide);
            }
            for (c0, sums) in channels.clone().step_by(width).zip(sums.chunks_exact_mut(panel_sums)) {
                let some = width.min(channels.end - c0);
                for block in (0..count * volume).step_by(DEPTH) {
                    let depth = DEPTH.min(count * volume - block);
                    let mut p = 0;
                    while p < depth {
                        let (i, output) = ((block + p) / volume, (block + p) % volume);
                        let len = (volume - output).min(depth - p);
                        let at = (((image0 + i) * g.groups + group) * g.out_channels + c0) * volume + output;
                        assert!(at + (some - 1) * volume + len <= grad.len(), "outputs lie inside the gradient");
                        // SAFETY: asserted; the panel has room for DEPTH rows and a STEP more.
                        unsafe {
                            let (from, to) = (grad.as_ptr().add(at), panel.add(p * width));
                            pack::across::<V, T>(from, volume, some, len, to, width, &mut eight);
                        }
                        p += len;
                    }
                    for (offsets, sums) in offsets.chunks(rows).zip(sums.chunks_mut(rows * width)) {
                        let mut starts = [planes.as_ptr(); TILE_ROWS];
                        starts.iter_mut().zip(offsets).for_each(|(start, offset)| *start = start.wrapping_add(*offset));
                        let windows = Windows { starts, offsets: outputs[block..].as_ptr() };
                        let columns = Panel { start: panel, row: width, step: V::LANES };
                        let size = (offsets.len(), some.div_ceil(V::LANES));
                        // SAFETY: factors lie inside the planes, the panel has been packed, and there are as many rows of
                        // sums as offsets.
                        unsafe {
                            tile::<V, _, _>(size, depth, windows, columns, &mut tile_sums);
                            for (r, row) in tile_sums[..size.0].iter().enumerate() {
                                for c in (0..size.1 * V::LANES).step_by(V::LANES) {
                                    let to = sums.as_mut_ptr().add(r * width + c);
                                    V::store_f32(V::add(V::load_f32(to), V::load_f32(row.as_ptr().add(c))), to);
                                }
                            }
                        }
                    }
                }
            }
        }
        let mut columns = Columns::default();
        for (c0, sums) in channels.clone().step_by(width).zip(sums.chunks_exact(panel_sums)) {
            let some = width.min(channels.end - c0);
            for (r0, sums) in terms.clone().step_by(TILE_ROWS).zip(sums.chunks_exact(TILE_ROWS * width)) {
                let count = TILE_ROWS.min(terms.end - r0);
                // SAFETY: there are eight rows of sums; the elements are these terms' and channels'.
                unsafe {
                    columns.take::<V>(sums.as_ptr(), width, some);
                    for (c, low) in (c0..c0 + some).zip(&columns.low) {
                        let to = out.at((group * g.out_channels + c) * g.patch() + r0);
                        match count {
                            TILE_ROWS => std::ptr::copy_nonoverlapping(low.as_ptr(), to, TILE_ROWS),
                            _ => std::ptr::copy_nonoverlapping(low.as_ptr(), to, count),
                        }
                    }
                }
            }
        }
    }
}

/// The same as products of the gradient's rows with the windows on the images.
fn by_rows<T: Lanes>(vectors: Width, planes: &Planes, x: &[T], grad: &[T]) -> Vec<T> {
    let g = planes.geometry();
    let len = g.sizes()[1];
    let mut sum = zeros(len);
    let together = TERMS.div_ceil(planes.plane()).min(g.batch);
    // A part is some images at a time, as often as needed.
    let images = g.batch.div_ceil(PARTS).next_multiple_of(together);
    let mut parts = Lent::from(zeros(g.batch.div_ceil(images) * len));
    threads::chunks(&mut parts, len, g.work(), |part, sums| {
        let end = ((part + 1) * images).min(g.batch);
        for first in (part * images..end).step_by(together) {
            add_images(vectors, planes, first..(first + together).min(end), x, grad, sums);
        }
    });
    for part in parts.chunks_exact(len) {
        sum.iter_mut().zip(part).for_each(|(sum, x)| *sum += x);
    }
    T::narrow_vec(sum)
}

/// Adds what some images bring. A channel's planes of all of them follow one another, and the gradient is laid out alike,
/// with 0 between its rows, so that one product of rows is the sum over all images.
fn add_images<T: Lanes>(vectors: Width, planes: &Planes, images: Range<usize>, x: &[T], grad: &[T], sums: &mut [f32]) {
    let g = planes.geometry();
    let image = planes.channel();
    let (step, patch) = (images.len() * image, g.patch());
    let offsets = planes.offsets(step);
    let last = [g.output[0] - 1, g.output[1] - 1, g.output[2] - 1];
    // The last row that an output reads ends here; behind it there may be no plane.
    let span = step - image + place(last, planes.size) + 1;
    let (x_image, grad_image) = (x.len() / g.batch, grad.len() / g.batch);
    let grad_rows = collected(g.out_channels, (0..g.out_channels).map(|o| o * step));
    with_scratch(|[space, wide, gradient]| {
        let space = space.room(g.groups * g.in_channels * step + SLACK);
        let gradient = gradient.room(g.groups * g.out_channels * step);
        space.fill(0.0);
        gradient.fill(0.0);
        for (i, number) in images.enumerate() {
            planes.fill(&x[number * x_image..(number + 1) * x_image], &mut space[i * image..], step, wide);
            let wide = wide.room(grad_image);
            T::widen_into(&grad[number * grad_image..(number + 1) * grad_image], wide);
            for (row, from) in wide.chunks_exact(g.output[2]).enumerate() {
                let (channel, at) = (row / (g.output[0] * g.output[1]), row % (g.output[0] * g.output[1]));
                let place = place([at / g.output[1], at % g.output[1], 0], planes.size);
                let to = channel * step + i * image + place;
                gradient[to..to + g.output[2]].copy_from_slice(from);
            }
        }
        let mut products = lend(g.out_channels * patch);
        for (group, sums) in sums.chunks_exact_mut(g.out_channels * patch).enumerate() {
            let dots = Dots {
                a: &gradient[group * g.out_channels * step..],
                a_rows: &grad_rows,
                b: &space[group * g.in_channels * step..],
                b_rows: &offsets,
                len: span,
                sums: &mut products,
            };
            assert!(simd::run_with(vectors, dots).is_ok(), "a width that the machine has");
            sums.iter_mut().zip(&*products).for_each(|(sum, x)| *sum += x);
        }
    });
}
