//! Numbers of consecutive images as an operand whose terms are pixels.

use std::ops::Range;

use crate::kernels::{
    float::VectorFloat,
    gemm::{
        blocking::{KC, MAX_NR},
        pack::{Operand, Packer, STEP, pack_transposed},
    },
    simd::Simd,
};

/// Channels of images `[images, channels, volume]` as rows of a left operand or columns of a right one. The terms are the
/// pixels of one image after another.
#[derive(Clone, Copy)]
pub(super) struct ImageTerms<'a, T> {
    images: &'a [T],
    channels: usize,
    volume: usize,
    /// First image, and first channel.
    image: usize,
    channel: usize,
}

impl<'a, T> ImageTerms<'a, T> {
    /// Creates the operand of the channels from `channel` and the images from `image`.
    pub fn new(images: &'a [T], (channels, volume): (usize, usize), image: usize, channel: usize) -> Self {
        ImageTerms { images, channels, volume, image, channel }
    }

    /// Iterates over the sequences of terms of one image, for channel `i`: the index of the first number, its place among
    /// the terms, and the length.
    #[inline(always)]
    fn sequences(self, i: usize, terms: Range<usize>) -> impl Iterator<Item = (usize, usize, usize)> {
        let ImageTerms { channels, volume, image, channel, .. } = self;
        let mut p = terms.start;
        std::iter::from_fn(move || {
            let (first, pixel) = (image + p / volume, p % volume);
            let (at, len) = (p - terms.start, (volume - pixel).min(terms.end - p));
            p += len;
            (len > 0).then_some(((first * channels + channel + i) * volume + pixel, at, len))
        })
    }
}

impl<T: VectorFloat> Operand<T> for ImageTerms<'_, T> {
    /// The last pixels of an image are packed in whole steps.
    const BEYOND: usize = STEP;

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
        let (volume, depth) = (self.volume, terms.len());
        for (from, _, len) in self.sequences(some.end - 1, terms.clone()) {
            assert!(from + len <= self.images.len(), "pixels of these images");
        }
        if self.sequences(some.start, terms.clone()).all(|(_, at, _)| at.is_multiple_of(K::IN_LANE)) {
            // A loop, because the compiler keeps a closure as large as this out of line.
            for (from, at, len) in self.sequences(some.start, terms) {
                // SAFETY: asserted; the panel has room for all terms and one whole step more.
                unsafe {
                    let (from, to) = (self.images.as_ptr().add(from), to.add(at / K::IN_LANE * width));
                    pack_transposed(simd, packer, from, volume, some.len(), len, to, width);
                }
            }
            return;
        }
        // A lane has terms of two images.
        let mut rows = [[T::default(); KC]; MAX_NR];
        for (row, i) in rows.iter_mut().zip(some.clone()) {
            for (from, at, len) in self.sequences(i, terms.clone()) {
                row[at..at + len].copy_from_slice(&self.images[from..from + len]);
            }
        }
        // SAFETY: each row has all terms, at most KC; the rest is guaranteed by the caller.
        unsafe { pack_transposed(simd, packer, rows[0].as_ptr(), KC, some.len(), depth, to, width) };
    }
}
