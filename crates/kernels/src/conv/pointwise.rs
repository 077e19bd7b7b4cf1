//! Convolutions of one tap without padding, as the products that they are: of the weights with the pixels of all images.
//! With a stride, the pixels that are read are gathered first, and the gradient of the input is scattered.
//!
//! Every element is summed in the order of the other kernels, so no bit depends on the choice of kernel, unless AMX is allowed.

use std::ops::Range;

use super::{
    geometry::{Geometry, positions},
    image_terms::ImageTerms,
    padded::PaddedLayout,
    windows::{fill_with_bias, images_together},
};
use crate::{
    gemm::{
        blocking::MAX_NR,
        factors::{Factors, Places},
        loops,
        pack::{Matrix, Operand, Packer, pack_contiguous, pack_copied},
        pairs::Multiply,
        product::Added,
    },
    memory::{Pooled, uninit_vec, zeros},
    simd::Simd,
};

/// Least number of pixels per image; below it, columns of the product are of too many images.
const LEAST: usize = 16;

/// Least number of rows of the product; below it, packing takes longer than reading the pixels in place.
const ROWS: usize = 16;

/// Returns whether a convolution is computed here, as a product of this many rows.
fn pays(g: &Geometry, rows: usize) -> bool {
    let unpadded = g.before == [0; 3] && (0..3).all(|a| (g.output[a] - 1) * g.stride[a] < g.input[a]);
    g.taps() == 1 && g.groups == 1 && unpadded && g.out_volume() >= LEAST && rows >= ROWS
}

/// Pixels of images `[images, channels, volume]` as a right operand: its terms are channels, its columns the pixels of one
/// image after another.
#[derive(Clone, Copy)]
struct Pixels<'a, T> {
    x: &'a [T],
    channels: usize,
    volume: usize,
}

impl<T> Pixels<'_, T> {
    /// Returns the index of a column's number of the first term, and the number of columns of its image from there.
    #[inline(always)]
    fn at(&self, column: usize) -> (usize, usize) {
        let (image, pixel) = (column / self.volume, column % self.volume);
        (image * self.channels * self.volume + pixel, self.volume - pixel)
    }
}

impl<T: Multiply> Operand<T> for Pixels<'_, T> {
    #[inline(always)]
    unsafe fn pack_panel<S: Simd, K: Packer<S, T>>(
        self,
        simd: S,
        packer: &mut K,
        some: Range<usize>,
        terms: Range<usize>,
        to: *mut f32,
        width: usize,
    ) {
        let volume = self.volume;
        assert!(self.at(some.end - 1).0 + (terms.end - 1) * volume < self.x.len(), "pixels of these images");
        let (first, left) = self.at(some.start);
        if left >= some.len() {
            let from = &self.x[first + terms.start * volume..];
            // SAFETY: the pixels of these terms are inside the images, as was asserted; the rest is guaranteed by the
            // caller.
            return unsafe { pack_contiguous(simd, packer, from, volume, some.len(), terms.len(), to, width) };
        }
        // Columns of several images: the index of the first number of each sequence, and its length.
        let (mut sequences, mut count, mut column) = ([(0, 0); MAX_NR], 0, some.start);
        while column < some.end {
            let (from, left) = self.at(column);
            sequences[count] = (from, left.min(some.end - column));
            column += sequences[count].1;
            count += 1;
        }
        // SAFETY: guaranteed by the caller.
        unsafe {
            pack_copied(simd, packer, terms, to, width, |term, row| {
                let mut at = 0;
                for &(from, len) in &sequences[..count] {
                    row[at..at + len].copy_from_slice(&self.x[from + term * volume..][..len]);
                    at += len;
                }
            });
        }
    }
}

/// Product of weights, of `rows`, with the pixels of all images.
struct OfPixels<'a, T> {
    weights: Matrix<'a, T>,
    pixels: Pixels<'a, T>,
    rows: usize,
    /// One number for each row.
    bias: &'a [T],
}

impl<'a, T: Multiply> Factors for OfPixels<'a, T> {
    type Of = T;
    type Out = T;
    type Left = Matrix<'a, T>;
    type Right = Pixels<'a, T>;

    fn size(&self) -> (usize, usize) {
        (self.rows, self.pixels.x.len() / self.pixels.channels)
    }

    fn depths(&self) -> impl Iterator<Item = usize> {
        std::iter::once(self.pixels.channels)
    }

    fn pair(&self, _: usize) -> (Matrix<'a, T>, Pixels<'a, T>) {
        (self.weights, self.pixels)
    }

    fn added(&self) -> Added<'_, T> {
        Added::ToRows(self.bias)
    }

    fn places(&self) -> Places {
        let volume = self.pixels.volume;
        Places { row: volume, columns: volume, block: self.rows * volume }
    }
}

/// Multiplies weights with the pixels of all images, and adds the bias.
fn of_pixels<T: Multiply>(weights: Matrix<T>, rows: usize, pixels: Pixels<T>, bias: Option<&[T]>) -> Pooled<T> {
    // Without a bias, the other kernels add 0, which makes -0 positive.
    let none = Pooled::zeros(rows);
    let product = OfPixels { weights, pixels, rows, bias: bias.unwrap_or(&none) };
    let mut out = uninit_vec(rows * (pixels.x.len() / pixels.channels));
    multiply(&product, &mut out);
    out
}

/// Computes a product, for which there are vectors.
fn multiply<T: Multiply, F: Factors<Of = T, Out = T>>(factors: &F, out: &mut [T]) {
    assert!(loops::product(factors, out), "callers have asked whether there are vectors");
}

/// Returns the pixels that outputs read, `[images * channels, outputs]`; `None` if those are all, in their order.
fn gathered<T: Multiply>(g: &Geometry, x: &[T]) -> Option<Pooled<T>> {
    (g.input != g.output).then(|| {
        let (mut out, step) = (uninit_vec(x.len() / g.in_volume() * g.out_volume()), g.stride[2]);
        for (channel, out) in x.chunks_exact(g.in_volume()).zip(out.chunks_exact_mut(g.out_volume())) {
            for (row, out) in rows(g).zip(out.chunks_exact_mut(g.output[2])) {
                let from = &channel[row..];
                for i in 0..out.len() {
                    out[i] = from[i * step];
                }
            }
        }
        out
    })
}

/// Iterates over the indices of the first pixels of the rows of outputs.
fn rows(g: &Geometry) -> impl Iterator<Item = usize> + use<> {
    let (stride, input) = (g.stride, g.input);
    positions([g.output[0], g.output[1], 1]).map(move |[a, b, _]| (a * stride[0] * input[1] + b * stride[1]) * input[2])
}

/// Runs [`forward`](super::dispatch::forward), or returns `None` if another kernel should be used.
pub(super) fn forward<T: Multiply>(g: &Geometry, x: &[T], weight: &[T], bias: Option<&[T]>) -> Option<Pooled<T>> {
    pays(g, g.out_channels).then(|| {
        let gathered = gathered(g, x);
        let x = gathered.as_deref().unwrap_or(x);
        let pixels = Pixels { x, channels: g.in_channels, volume: g.out_volume() };
        of_pixels(Matrix::new(weight, false, g.in_channels), g.out_channels, pixels, bias)
    })
}

/// Runs [`input_gradient`](super::dispatch::input_gradient), or returns `None` if another kernel should be used.
pub(super) fn input_gradient<T: Multiply>(
    g: &Geometry,
    grad: &[T],
    weight: &[T],
    bias: Option<&[T]>,
) -> Option<Pooled<T>> {
    if !pays(g, g.in_channels) {
        return None;
    }
    let pixels = Pixels { x: grad, channels: g.out_channels, volume: g.out_volume() };
    let read = of_pixels(Matrix::new(weight, true, g.in_channels), g.in_channels, pixels, bias);
    if g.input == g.output {
        return Some(read);
    }
    let mut out = zeros(g.sizes()[0]);
    // Pixels that no output reads receive the bias alone.
    fill_with_bias(&mut out, g.in_volume(), bias);
    for (to, from) in out.chunks_exact_mut(g.in_volume()).zip(read.chunks_exact(g.out_volume())) {
        for (row, from) in rows(g).zip(from.chunks_exact(g.output[2])) {
            let to = &mut to[row..];
            for i in 0..from.len() {
                to[i * g.stride[2]] = from[i];
            }
        }
    }
    Some(out)
}

/// Gradients of the outputs times the pixels that they read, summed over the pixels of all images.
struct OfImages<'a, T> {
    g: &'a Geometry,
    grad: &'a [T],
    x: &'a [T],
    /// Number of images whose pixels are added up together.
    together: usize,
    /// A 0 for each row.
    zeros: &'a [T],
}

impl<'a, T: Multiply> Factors for OfImages<'a, T> {
    type Of = T;
    type Out = T;
    type Left = ImageTerms<'a, T>;
    type Right = ImageTerms<'a, T>;

    fn size(&self) -> (usize, usize) {
        (self.g.out_channels, self.g.in_channels)
    }

    fn depths(&self) -> impl Iterator<Item = usize> {
        let firsts = (0..self.g.batch).step_by(self.together);
        firsts.map(|first| self.together.min(self.g.batch - first) * self.g.out_volume())
    }

    fn pair(&self, which: usize) -> (ImageTerms<'a, T>, ImageTerms<'a, T>) {
        let (first, volume) = (which * self.together, self.g.out_volume());
        let of = |images, channels| ImageTerms::new(images, (channels, volume), first, 0);
        (of(self.grad, self.g.out_channels), of(self.x, self.g.in_channels))
    }

    fn added(&self) -> Added<'_, T> {
        // The other kernels add sums to 0, which makes -0 positive.
        Added::ToRows(self.zeros)
    }

    fn places(&self) -> Places {
        Places::rows_of(self.g.in_channels)
    }
}

/// Runs [`weight_gradient`](super::dispatch::weight_gradient), or returns `None` if another kernel should be used.
pub(super) fn weight_gradient<T: Multiply>(g: &Geometry, x: &[T], grad: &[T]) -> Option<Pooled<T>> {
    pays(g, g.out_channels.min(g.in_channels)).then(|| {
        let together = images_together(g.in_channels * PaddedLayout::whole(g).channel(), g.batch);
        let (gathered, zeros) = (gathered(g, x), Pooled::zeros(g.out_channels));
        let x = gathered.as_deref().unwrap_or(x);
        let mut out = uninit_vec(g.out_channels * g.in_channels);
        multiply(&OfImages { g, grad, x, together, zeros: &zeros }, &mut out);
        out
    })
}
