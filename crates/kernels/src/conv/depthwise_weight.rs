//! Gradient of a depthwise convolution with respect to its weight: for each tap, a dot product of the output gradient
//! with the padded image.
//!
//! The sums are those of [`weight_grad`](super::weight_grad) by outputs, but a channel is padded and multiplied while it
//! is in the nearest cache.

use std::{
    ops::Range,
    sync::atomic::{AtomicBool, Ordering},
};

use super::{
    depthwise::is_depthwise,
    geometry::{Geometry, index, positions},
    padded::{PaddedLayout, Row, SLACK, copy_rows},
    vector_axis::VectorAxis,
    weight_grad::images_of_part,
};
use crate::{
    arrays::array_of,
    elementwise::finite::finite,
    float::VectorFloat,
    gemm::blocking::KC,
    memory::{Pooled, Scratch, with_scratch, zeros},
    simd,
    simd::{Kernel, Simd},
    threads,
    threads::Shared,
};

/// Number of taps that are multiplied together.
const TAPS: usize = 9;

/// Computes the gradient, if the convolution is depthwise and its images are finite; see
/// [`weight_gradient`](super::dispatch::weight_gradient).
pub(super) fn weight_gradient<T: VectorFloat>(g: &Geometry, x: &[T], grad: &[T]) -> Option<Pooled<T>> {
    let by_outputs = || VectorAxis::of_finite_weight(simd::widest(), g) == VectorAxis::Outputs;
    if !is_depthwise(g) || !by_outputs() {
        return None;
    }
    let layout = PaddedLayout::phase_split(g);
    let (rows, offsets) = (layout.rows(), layout.offsets(layout.channel()));
    let output_rows = positions([g.output[0], g.output[1], 1]);
    let of_row = |at| Row { from: index(at, g.output), to: index(at, layout.size), len: g.output[2] };
    let grad_rows: Vec<Row> = output_rows.map(of_row).collect();
    let mut sums = zeros(g.sizes()[1]);
    let (out, finite) = (Shared::new(&mut sums), AtomicBool::new(true));
    threads::split(g.groups, 1, g.work(), |groups| {
        with_scratch(|memory| {
            let (layout, rows, grad_rows, offsets) = (&layout, &rows[..], &grad_rows[..], &offsets[..]);
            let task = Channels { layout, rows, grad_rows, offsets, x, grad, groups, out, memory };
            if !simd::run(task).unwrap_or_else(|_| unreachable!("asked for before")) {
                finite.store(false, Ordering::Relaxed);
            }
        });
    });
    finite.into_inner().then(|| T::narrow_vec(sums))
}

/// Gradients of some channels.
struct Channels<'a, T> {
    layout: &'a PaddedLayout,
    /// Rows of a plane that are padded, and those of the output gradient, which get the distances of that layout.
    rows: &'a [Row],
    grad_rows: &'a [Row],
    /// Offset of each tap.
    offsets: &'a [usize],
    x: &'a [T],
    grad: &'a [T],
    groups: Range<usize>,
    out: Shared<'a, f32>,
    memory: [&'a mut Scratch; 3],
}

impl<T: VectorFloat> Kernel for Channels<'_, T> {
    /// `true` if all images are finite. If not, the gradients are incomplete.
    type Output = bool;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> bool {
        let Channels { layout, rows, grad_rows, offsets, x, grad, groups, out, memory } = self;
        let [padded, gradient, wide] = memory;
        let g = layout.geometry();
        let (images, together) = images_of_part(layout);
        let (image, pixels, outputs) = (layout.channel(), g.in_volume(), g.out_volume());
        let padded = padded.uninit(together * image + SLACK);
        let gradient = gradient.uninit(together * image + SLACK);
        padded.fill(0.0);
        gradient.fill(0.0);
        let wide = wide.uninit(pixels.max(outputs));
        // Numbers of a plane up to the last that an output reads.
        let span = index([g.output[0] - 1, g.output[1] - 1, g.output[2] - 1], layout.size) + 1;
        let last = (together - 1) * image + span + offsets.iter().max().unwrap_or(&0);
        assert!(last + S::LANES <= padded.len(), "factors are inside the padded images");
        for group in groups {
            for part in (0..g.batch).step_by(images) {
                let mut sums = [0.0; KC];
                let end = (part + images).min(g.batch);
                for first in (part..end).step_by(together) {
                    let count = together.min(end - first);
                    for i in 0..count {
                        let plane = (first + i) * g.groups + group;
                        let from = T::widened(&x[plane * pixels..(plane + 1) * pixels], wide);
                        if !finite(from) {
                            return false;
                        }
                        copy_rows(rows, layout.phases[2], from, &mut padded[i * image..]);
                        let from = T::widened(&grad[plane * outputs..(plane + 1) * outputs], wide);
                        copy_rows(grad_rows, 1, from, &mut gradient[i * image..]);
                    }
                    for tap in (0..offsets.len()).step_by(TAPS) {
                        let some = tap..offsets.len().min(tap + TAPS);
                        let (factors, spans) = ((gradient.as_ptr(), padded.as_ptr()), (count, image, span));
                        // SAFETY: vectors that begin in a span, plus each offset, were asserted to be inside.
                        unsafe { some_taps(simd, factors, &offsets[some.clone()], spans, &mut sums[some]) };
                    }
                }
                for (tap, &sum) in sums[..offsets.len()].iter().enumerate() {
                    // SAFETY: the weights of this group belong to this thread.
                    unsafe { *out.at(group * offsets.len() + tap) += sum };
                }
            }
        }
        true
    }
}

/// Adds to `sums` the dot products for at most [`TAPS`] taps over the first `span` numbers of `count` images, which are
/// `image` apart. Lane l sums the terms l, l plus the number of lanes, and so on. Numbers after a span are multiplied by 0.
///
/// # Safety
/// The first factors are valid for reads of a vector from each number of a span, and so are the second plus each offset.
#[inline(always)]
unsafe fn some_taps<S: Simd>(
    simd: S,
    factors: (*const f32, *const f32),
    offsets: &[usize],
    spans: (usize, usize, usize),
    sums: &mut [f32],
) {
    macro_rules! sizes {
        ($($count:literal)*) => {
            match offsets.len() {
                // SAFETY: guaranteed by the caller.
                $( $count => unsafe { taps::<S, $count>(simd, factors, offsets, spans, sums) }, )*
                _ => unreachable!("no more than TAPS"),
            }
        };
    }
    sizes! { 1 2 3 4 5 6 7 8 9 }
}

/// Computes [`some_taps`] for C taps.
///
/// # Safety
/// As for `some_taps`.
#[inline(always)]
unsafe fn taps<S: Simd, const C: usize>(
    simd: S,
    (gradient, padded): (*const f32, *const f32),
    offsets: &[usize],
    (count, image, span): (usize, usize, usize),
    sums: &mut [f32],
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let padded: [*const f32; C] = array_of(|c| padded.add(offsets[c]));
        let mut lanes = [simd.splat(0.0); C];
        let mut at = 0;
        for i in 0..count {
            // Vectors between two images' numbers are skipped: there the gradient is 0.
            at = at.max(i * image / S::LANES * S::LANES);
            while at < i * image + span {
                let left = simd.load_f32(gradient.add(at));
                for c in 0..C {
                    lanes[c] = simd.mul_add(left, simd.load_f32(padded[c].add(at)), lanes[c]);
                }
                at += S::LANES;
            }
        }
        for c in 0..C {
            sums[c] += simd.sum(lanes[c]);
        }
    }
}
