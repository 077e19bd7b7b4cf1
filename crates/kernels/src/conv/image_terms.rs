//! Numbers of consecutive images as an operand whose terms are pixels.

use std::ops::Range;

use crate::{
    float::VectorFloat,
    gemm::{
        blocking::{KC, MAX_NR},
        pack::{Operand, Packer, STEP, pack_transposed},
    },
    simd::Simd,
};

/// Number of sequences that are packed from where they are; more are copied first.
const FEW: usize = 8;

/// Channels of images `[images, channels, volume]` as rows of a left operand or columns of a right one. The terms are the
/// pixels of one image after another. A lane does not span two rows of `row` pixels, if that is given: after a row of odd
/// length, the second term of its last lane is 0.
#[derive(Clone, Copy)]
pub(super) struct ImageTerms<'a, T> {
    images: &'a [T],
    channels: usize,
    volume: usize,
    /// First image, and first channel.
    image: usize,
    channel: usize,
    row: Option<usize>,
}

impl<'a, T> ImageTerms<'a, T> {
    /// Creates the operand of the channels from `channel` and the images from `image`.
    pub fn new(images: &'a [T], (channels, volume): (usize, usize), image: usize, channel: usize) -> Self {
        ImageTerms { images, channels, volume, image, channel, row: None }
    }

    /// Sets the length of the rows that no lane spans. There may then be one panel only.
    pub fn rows_of(self, row: usize) -> Self {
        ImageTerms { row: Some(row), ..self }
    }

    /// Iterates over the sequences of terms of one image, or of one row, for channel `i`: the index of the first number,
    /// its place among the terms, and the length. With rows, each begins a lane of `in_lane` terms.
    #[inline(always)]
    fn sequences(self, i: usize, terms: Range<usize>, in_lane: usize) -> impl Iterator<Item = (usize, usize, usize)> {
        let ImageTerms { channels, volume, image, channel, row, .. } = self;
        let (mut p, mut at) = (terms.start, 0);
        let row = row.filter(|row| !row.is_multiple_of(in_lane));
        std::iter::from_fn(move || {
            let (first, pixel) = (image + p / volume, p % volume);
            let whole = row.map_or(volume - pixel, |row| row - pixel % row);
            let (from, len) = (at, whole.min(terms.end - p));
            p += len;
            at += if row.is_some() { len.next_multiple_of(in_lane) } else { len };
            (len > 0).then_some(((first * channels + channel + i) * volume + pixel, from, len))
        })
    }
}

impl<T: VectorFloat> Operand<T> for ImageTerms<'_, T> {
    /// Rows may have as many lanes as pixels, and the last pixels of an image are packed in whole steps.
    const BEYOND: usize = KC / 2 + STEP;

    #[inline(always)]
    fn contiguous_rows(&self, some: Range<usize>, terms: Range<usize>) -> Option<(*const T, usize)> {
        let ImageTerms { images, channels, volume, image, channel, .. } = *self;
        let (first, pixel) = (image + terms.start / volume, terms.start % volume);
        let start = |i: usize| (first * channels + channel + i) * volume + pixel;
        let inside = pixel + terms.len() <= volume && start(some.end - 1) + terms.len() <= images.len();
        (self.row.is_none() && inside).then(|| (images[start(some.start)..].as_ptr(), volume))
    }

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
        let (volume, in_lane) = (self.volume, K::IN_LANE);
        for (from, _, len) in self.sequences(some.end - 1, terms.clone(), in_lane) {
            assert!(from + len <= self.images.len(), "pixels of these images");
        }
        let sequences = self.sequences(some.start, terms.clone(), in_lane);
        let (whole, count) =
            sequences.fold((true, 0), |(whole, count), (_, at, _)| (whole && at.is_multiple_of(in_lane), count + 1));
        if whole && count <= FEW {
            // A loop, because the compiler keeps a closure as large as this out of line.
            for (from, at, len) in self.sequences(some.start, terms, in_lane) {
                // SAFETY: asserted; the panel has room for all terms and one whole step more.
                unsafe {
                    let (from, to) = (self.images.as_ptr().add(from), to.add(at / in_lane * width));
                    pack_transposed(simd, packer, from, volume, some.len(), len, to, width);
                }
            }
            return;
        }
        // A lane has terms of two images, or there are many short rows.
        let mut rows = [[T::default(); 2 * KC]; MAX_NR];
        let mut depth = 0;
        for (row, i) in rows.iter_mut().zip(some.clone()) {
            for (from, at, len) in self.sequences(i, terms.clone(), in_lane) {
                row[at..at + len].copy_from_slice(&self.images[from..from + len]);
                depth = depth.max(at + len);
            }
        }
        // SAFETY: each row has all terms, and 0 after a row of odd length; the rest is guaranteed by the caller.
        unsafe { pack_transposed(simd, packer, rows[0].as_ptr(), 2 * KC, some.len(), depth, to, width) };
    }
}
