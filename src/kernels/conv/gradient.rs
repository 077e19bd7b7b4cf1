//! The gradient of a convolution's weight: products of the gradient's rows with the windows on the images.

use super::{
    Geometry,
    planes::{Planes, SLACK, place},
};
use crate::kernels::{
    buffers::{Lent, lend, zeros},
    gemm::{dot::Dots, scratch::with_scratch},
    simd::{self, Lanes, Width},
    threads,
};

/// Parts of the batch, at most, whose sums are taken apart and then added in order, whatever the number of threads.
const PARTS: usize = 8;

/// Terms of a sum below which several images are summed together, so that adding up its lanes does not dominate.
const TERMS: usize = 1024;

/// See [`weight_gradient`](super::weight_gradient).
pub(super) fn of_weight<T: Lanes>(vectors: Width, g: &Geometry, x: &[T], grad: &[T]) -> Vec<T> {
    let len = g.sizes()[1];
    let mut sum = zeros(len);
    if x.is_empty() || grad.is_empty() || len == 0 {
        return T::narrow_vec(sum);
    }
    let planes = Planes::new(g);
    let together = TERMS.div_ceil(planes.size.iter().product()).min(g.batch);
    // A part is some images at a time, as often as needed.
    let images = g.batch.div_ceil(PARTS).next_multiple_of(together);
    let mut parts = Lent::from(zeros(g.batch.div_ceil(images) * len));
    threads::chunks(&mut parts, len, g.work(), |part, sums| {
        let end = ((part + 1) * images).min(g.batch);
        for first in (part * images..end).step_by(together) {
            add_images(vectors, &planes, first..(first + together).min(end), x, grad, sums);
        }
    });
    for part in parts.chunks_exact(len) {
        sum.iter_mut().zip(part).for_each(|(sum, x)| *sum += x);
    }
    T::narrow_vec(sum)
}

/// Adds what some images bring. A channel's planes of all of them follow one another, and the gradient is laid out alike,
/// with 0 between its rows, so that one product of rows is the sum over all images.
fn add_images<T: Lanes>(
    vectors: Width,
    planes: &Planes,
    images: std::ops::Range<usize>,
    x: &[T],
    grad: &[T],
    sums: &mut [f32],
) {
    let g = planes.geometry();
    let image = planes.channel();
    let (step, patch) = (images.len() * image, g.patch());
    let offsets = planes.offsets(step);
    let last = [g.output[0] - 1, g.output[1] - 1, g.output[2] - 1];
    // The last row that an output reads ends here; behind it there may be no plane.
    let span = step - image + place(last, planes.size) + 1;
    let (x_image, grad_image) = (x.len() / g.batch, grad.len() / g.batch);
    let grad_rows: Vec<usize> = (0..g.out_channels).map(|o| o * step).collect();
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
