//! Convolutions by im2col: products with the matrix whose columns are the patches of an image.

use std::ops::Range;

use super::geometry::Geometry;
use crate::{
    codes::transposed,
    float::{Float, Real},
    gemm::{Layout, portable::MatrixMultiply},
    memory::{Pooled, uninit_vec, zeros},
};

impl Geometry {
    /// Returns the outputs whose tap `k` along `axis` is inside the input, and the position of that tap for the first
    /// of them.
    fn reach(&self, axis: usize, k: usize) -> (Range<usize>, usize) {
        let (stride, before) = (self.stride[axis], self.before[axis]);
        let tap = k * self.dilation[axis];
        let first = before.saturating_sub(tap).div_ceil(stride);
        let end = (self.input[axis] + before).saturating_sub(tap).div_ceil(stride).min(self.output[axis]);
        (first..end.max(first), (first * stride + tap).saturating_sub(before))
    }

    /// Calls `f(column, pixel, count)` for every run of patch elements inside the image: `count` elements of the im2col
    /// matrix from `column` equal those of the image from `pixel`, the latter a stride of the last axis apart.
    fn runs(&self, mut f: impl FnMut(usize, usize, usize)) {
        let ([_, in_h, in_w], [_, out_h, out_w]) = (self.input, self.output);
        let mut row = 0;
        for channel in 0..self.in_channels {
            for kd in 0..self.kernel[0] {
                let (ds, d0) = self.reach(0, kd);
                for kh in 0..self.kernel[1] {
                    let (hs, h0) = self.reach(1, kh);
                    for kw in 0..self.kernel[2] {
                        let (ws, w0) = self.reach(2, kw);
                        for (i, od) in ds.clone().enumerate().filter(|_| !ws.is_empty()) {
                            let plane = channel * self.input[0] + d0 + i * self.stride[0];
                            for (j, oh) in hs.clone().enumerate() {
                                let column = ((row * self.output[0] + od) * out_h + oh) * out_w + ws.start;
                                f(column, (plane * in_h + h0 + j * self.stride[1]) * in_w + w0, ws.len());
                            }
                        }
                        row += 1;
                    }
                }
            }
        }
    }

    /// Computes the im2col matrix of one image. Taps outside the image are 0.
    fn im2col<R: Real>(&self, image: &[R], columns: &mut [R]) {
        let stride = self.stride[2];
        columns.fill(R::zero());
        self.runs(|column, pixel, count| {
            let to = &mut columns[column..column + count];
            if stride == 1 {
                to.copy_from_slice(&image[pixel..pixel + count]);
            } else {
                to.iter_mut().zip(image[pixel..].iter().step_by(stride)).for_each(|(to, &x)| *to = x);
            }
        });
    }

    /// Adds each column to its patch of the image.
    fn col2im<R: Real>(&self, columns: &[R], image: &mut [R]) {
        let stride = self.stride[2];
        self.runs(|column, pixel, count| {
            let from = &columns[column..column + count];
            image[pixel..].iter_mut().step_by(stride).zip(from).for_each(|(to, &x)| *to += x);
        });
    }
}

/// Returns the patches of a group of channels of all images, a row for each output: `[n * outputs, in * taps]`. Taps outside
/// of an image are 0.
pub fn patches(g: &Geometry, x: &[f32], group: usize) -> Vec<f32> {
    let (rows, outputs, channels) = (g.patch(), g.out_volume(), g.in_channels * g.in_volume());
    let mut columns = vec![0.0; rows * outputs];
    let mut all = Vec::with_capacity(g.batch * columns.len());
    for image in 0..g.batch {
        g.im2col(part(x, image * g.groups + group, channels), &mut columns);
        all.extend_from_slice(&transposed(&columns, outputs));
    }
    all
}

/// Adds [patches] of a group of channels to the images from which they come.
pub fn add_patches(g: &Geometry, patches: &[f32], group: usize, x: &mut [f32]) {
    let (rows, outputs, channels) = (g.patch(), g.out_volume(), g.in_channels * g.in_volume());
    for image in 0..g.batch {
        let columns = transposed(part(patches, image, rows * outputs), rows);
        g.col2im(&columns, part_mut(x, image * g.groups + group, channels));
    }
}

/// Returns part `i` of a slice of equal parts.
fn part<T>(x: &[T], i: usize, len: usize) -> &[T] {
    &x[i * len..(i + 1) * len]
}

fn part_mut<T>(x: &mut [T], i: usize, len: usize) -> &mut [T] {
    &mut x[i * len..(i + 1) * len]
}

/// Adds `bias[c]` to channel c of an image, and rounds the sums once.
fn epilogue<T: Float>(image: &mut [T::Wide], bias: Option<&[T::Wide]>, volume: usize, out: &mut [T]) {
    for (c, &bias) in bias.into_iter().flatten().enumerate() {
        image[c * volume..(c + 1) * volume].iter_mut().for_each(|x| *x += bias);
    }
    T::narrow_into(image, out);
}

/// Computes the convolution `[n, groups * in, input] -> [n, groups * out, output]` with a weight
/// `[groups * out, in, kernel]`.
pub(super) fn forward<T: Float<Wide: MatrixMultiply>>(
    g: &Geometry,
    x: &[T],
    weight: &[T],
    bias: Option<&[T]>,
) -> Pooled<T> {
    let (weight, bias) = (T::widen_slice(weight), bias.map(T::widen_slice));
    let (m, k, n) = (g.out_channels, g.patch(), g.out_volume());
    let in_len = g.in_channels * g.in_volume();
    let mut out = uninit_vec(g.sizes()[2]);
    let (mut columns, mut image) = (Pooled::uninit(k * n), Pooled::uninit(g.groups * m * n));
    for i in 0..g.batch {
        let x = T::widen_slice(part(x, i, g.groups * in_len));
        image.fill(T::Wide::default());
        for group in 0..g.groups {
            g.im2col(part(&x, group, in_len), &mut columns);
            let out = &mut image[group * m * n..(group + 1) * m * n];
            MatrixMultiply::add_product(Layout::NN, (m, k, n), part(&weight, group, m * k), &columns, out);
        }
        epilogue(&mut image, bias.as_deref(), n, part_mut(&mut out, i, g.groups * m * n));
    }
    out
}

/// Computes the gradient of [`forward`] with respect to its input. This is also the transposed convolution of `grad`,
/// which then has a bias for its `groups * in` channels.
pub(super) fn input_gradient<T: Float<Wide: MatrixMultiply>>(
    g: &Geometry,
    grad: &[T],
    weight: &[T],
    bias: Option<&[T]>,
) -> Pooled<T> {
    let (weight, bias) = (T::widen_slice(weight), bias.map(T::widen_slice));
    let (m, k, n) = (g.patch(), g.out_channels, g.out_volume());
    let in_len = g.in_channels * g.in_volume();
    let mut out = uninit_vec(g.sizes()[0]);
    let (mut columns, mut image) = (Pooled::uninit(m * n), Pooled::uninit(g.groups * in_len));
    for i in 0..g.batch {
        let grad = T::widen_slice(part(grad, i, g.groups * k * n));
        image.fill(T::Wide::default());
        for group in 0..g.groups {
            columns.fill(T::Wide::default());
            MatrixMultiply::add_product(
                Layout::TN,
                (m, k, n),
                part(&weight, group, k * m),
                part(&grad, group, k * n),
                &mut columns,
            );
            g.col2im(&columns, &mut image[group * in_len..(group + 1) * in_len]);
        }
        epilogue(&mut image, bias.as_deref(), g.in_volume(), part_mut(&mut out, i, g.groups * in_len));
    }
    out
}

/// Computes the gradient of [`forward`] with respect to its weight, summed over the batch in the wide dtype and rounded
/// once.
pub(super) fn weight_gradient<T: Float<Wide: MatrixMultiply>>(g: &Geometry, x: &[T], grad: &[T]) -> Pooled<T> {
    let (m, k, n) = (g.out_channels, g.out_volume(), g.patch());
    let in_len = g.in_channels * g.in_volume();
    let mut sum = zeros(g.groups * m * n);
    let mut columns = Pooled::uninit(n * k);
    for i in 0..g.batch {
        let x = T::widen_slice(part(x, i, g.groups * in_len));
        let grad = T::widen_slice(part(grad, i, g.groups * m * k));
        for group in 0..g.groups {
            g.im2col(part(&x, group, in_len), &mut columns);
            let sum = &mut sum[group * m * n..(group + 1) * m * n];
            MatrixMultiply::add_product(Layout::NT, (m, k, n), part(&grad, group, m * k), &columns, sum);
        }
    }
    T::narrow_vec(sum)
}
