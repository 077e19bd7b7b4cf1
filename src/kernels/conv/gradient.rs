//! The gradient of a convolution's weight: products of the gradient's rows with the windows on the images.

use super::{
    Geometry,
    planes::{Planes, SLACK, place},
};
use crate::kernels::{
    gemm::{dot::Dots, scratch::with_scratch},
    simd::{self, Lanes, Width},
    threads,
};

/// Parts of the batch whose sums are taken apart and then added in order, whatever the number of threads.
const PARTS: usize = 8;

/// See [`weight_gradient`](super::weight_gradient).
pub(super) fn of_weight<T: Lanes>(vectors: Width, g: &Geometry, x: &[T], grad: &[T]) -> Vec<T> {
    let len = g.sizes()[1];
    let mut sum = vec![0f32; len];
    if x.is_empty() || grad.is_empty() || len == 0 {
        return T::narrow_vec(sum);
    }
    let images = g.batch.div_ceil(PARTS);
    let mut parts = vec![0f32; g.batch.div_ceil(images) * len];
    threads::chunks(&mut parts, len, g.work(), |part, sums| {
        of_images(vectors, g, part * images..((part + 1) * images).min(g.batch), x, grad, sums);
    });
    for part in parts.chunks_exact(len) {
        sum.iter_mut().zip(part).for_each(|(sum, x)| *sum += x);
    }
    T::narrow_vec(sum)
}

/// Adds up the gradients that some images bring.
fn of_images<T: Lanes>(
    vectors: Width,
    g: &Geometry,
    images: std::ops::Range<usize>,
    x: &[T],
    grad: &[T],
    sums: &mut [f32],
) {
    let planes = Planes::new(g);
    let (offsets, patch) = (planes.offsets(), g.patch());
    let last = [g.output[0] - 1, g.output[1] - 1, g.output[2] - 1];
    // The gradient as an image whose rows lie as far apart as the planes'; what lies between them is 0.
    let span = place(last, planes.size) + 1;
    let (channels, x_image, grad_image) = (g.groups * g.out_channels, x.len() / g.batch, grad.len() / g.batch);
    let planes_image = g.groups * g.in_channels * planes.channel();
    let grad_rows: Vec<usize> = (0..g.out_channels).map(|o| o * span).collect();
    with_scratch(|[space, wide, gradient]| {
        let (space, gradient) = (space.room(planes_image + SLACK), gradient.room(channels * span));
        space.fill(0.0);
        gradient.fill(0.0);
        let mut products = vec![0f32; g.out_channels * patch];
        for image in images {
            planes.fill(&x[image * x_image..(image + 1) * x_image], space, wide);
            let grad = &grad[image * grad_image..(image + 1) * grad_image];
            let wide = wide.room(grad_image);
            T::widen_into(grad, wide);
            for (row, from) in wide.chunks_exact(g.output[2]).enumerate() {
                let (channel, at) = (row / (g.output[0] * g.output[1]), row % (g.output[0] * g.output[1]));
                let to = channel * span + place([at / g.output[1], at % g.output[1], 0], planes.size);
                gradient[to..to + g.output[2]].copy_from_slice(from);
            }
            for (group, sums) in sums.chunks_exact_mut(g.out_channels * patch).enumerate() {
                let dots = Dots {
                    a: &gradient[group * g.out_channels * span..],
                    a_rows: &grad_rows,
                    b: &space[group * g.in_channels * planes.channel()..],
                    b_rows: &offsets,
                    len: span,
                    sums: &mut products,
                };
                assert!(simd::run_with(vectors, dots).is_ok(), "a width that the machine has");
                sums.iter_mut().zip(&products).for_each(|(sum, x)| *sum += x);
            }
        }
    });
}
