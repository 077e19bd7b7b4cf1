//! Convolutions of bf16 as products, by [pairs](crate::gemm::pairs) or tiles, with a virtual im2col matrix, whose
//! numbers are packed directly from the padded images.
//!
//! Every element is summed in the order of the other kernels, so no bit depends on the choice of kernel, unless AMX
//! is allowed. If two factors are both NaN, either may remain.

use std::ops::Range;

use half::bf16;

use super::{
    geometry::{Geometry, positions},
    pack_weights::Weights,
    padded::PaddedLayout,
    task::Phase,
    windows::{fill_with_bias, input_gradient_source, input_phases},
};
use crate::{
    amx,
    arrays::array_of,
    gemm::{
        blocking::{KC, MAX_NR, MAX_ROWS},
        factors::{Factors, Places},
        loops,
        pack::{COPIED, Matrix, Operand, Packer, pack_copied, pack_transposed},
        pairs::{run_tiles_or_pairs, sizes_of},
        product::Added,
    },
    limits,
    memory::{Pooled, uninit_vec, zeros},
    simd::{Simd, SizeRange},
};

/// Number of padded elements that are read together, if more than one image: two MiB.
const CHUNK: usize = 1 << 20;

/// Least number of rows, terms or columns; below it, packing takes longer than pairs save.
const LEAST: usize = 24;

/// Least number of columns, of all images; the weights are packed for them.
const MANY: usize = 64;

/// Returns whether products with this many rows, terms and columns per image are computed here: if pairs multiply
/// faster than f32, and each number of a padded image is packed for several taps.
fn pay(g: &Geometry, rows: usize, terms: usize, columns: usize) -> bool {
    let is_large = rows >= LEAST && terms >= LEAST && g.batch * columns >= MANY;
    // Without the instruction, tests run its twin.
    g.groups == 1 && g.taps() > 1 && is_large && (cfg!(test) || limits::pairs_pay() || amx::uses_amx())
}

/// Patches of padded images: column j of the im2col matrix of all images is output `j % volume` of image `j / volume`.
#[derive(Clone, Copy)]
pub(super) struct Patches<'a> {
    padded: &'a [bf16],
    /// Number of elements of an image, and number of images.
    image: usize,
    images: usize,
    /// Offset at which each row of the matrix is read, relative to the start of an output.
    pub offsets: &'a [usize],
    /// Start of the first output of each run; the others follow.
    runs: &'a [usize],
    /// Number of outputs per run.
    length: usize,
    /// Size range of all numbers.
    pub sizes: SizeRange,
}

impl<'a> Patches<'a> {
    /// Creates the patches. Panics unless those of all images are in bounds, including the excess that a copy reads.
    pub fn new(
        (padded, image, images): (&'a [bf16], usize, usize),
        offsets: &'a [usize],
        (runs, length): (&'a [usize], usize),
        sizes: SizeRange,
    ) -> Self {
        let last = |indices: &[usize]| indices.iter().max().copied().unwrap_or(0);
        let end = (images - 1) * image + last(runs) + last(offsets) + length + COPIED;
        assert!(end <= padded.len(), "patches are inside the padded images");
        Patches { padded, image, images, offsets, runs, length, sizes }
    }

    /// Returns the number of outputs of an image.
    fn volume(&self) -> usize {
        self.runs.len() * self.length
    }

    /// Returns the number of outputs of all images.
    pub fn outputs(&self) -> usize {
        self.images * self.volume()
    }

    /// Returns the start of an output.
    #[inline(always)]
    fn start(&self, j: usize) -> usize {
        let (image, output) = (j / self.volume(), j % self.volume());
        image * self.image + self.runs[output / self.length] + output % self.length
    }

    /// Calls `f` with the start and length of each sequence of adjacent outputs.
    #[inline(always)]
    pub fn sequences(&self, outputs: Range<usize>, mut f: impl FnMut(usize, usize)) {
        assert!(outputs.end <= self.outputs(), "outputs of these images");
        let mut j = outputs.start;
        while j < outputs.end {
            let (image, output) = (j / self.volume(), j % self.volume());
            let (run, at) = (output / self.length, output % self.length);
            let len = (self.length - at).min(outputs.end - j);
            f(image * self.image + self.runs[run] + at, len);
            j += len;
        }
    }

    /// Copies a sequence.
    ///
    /// # Safety
    /// The sequence belongs to this matrix, and `to` is valid for writes of its elements and [`COPIED`] more.
    #[inline(always)]
    pub unsafe fn copy(&self, from: usize, len: usize, to: *mut bf16) {
        for at in (0..len).step_by(COPIED) {
            // SAFETY: `new` has shown that whole copies are inside the padded images; the rest is guaranteed by the
            // caller.
            unsafe { std::ptr::copy_nonoverlapping(self.padded.as_ptr().add(from + at), to.add(at), COPIED) };
        }
    }
}

/// The im2col matrix as a right operand, whose columns are outputs.
#[derive(Clone, Copy)]
struct Im2col<'a>(Patches<'a>);

impl Im2col<'_> {
    /// Implements [`pack_panel`](Operand::pack_panel) for runs of outputs that fill whole pieces: a vector is read in
    /// `N` pieces.
    ///
    /// # Safety
    /// As for `pack_panel`; the length of a run is a multiple of `LANES / N`.
    #[inline(always)]
    unsafe fn pack_pieces<S: Simd, K: Packer<S, bf16>, const N: usize>(
        self,
        simd: S,
        packer: &mut K,
        some: Range<usize>,
        terms: Range<usize>,
        to: *mut f32,
    ) {
        let Im2col(patches) = self;
        assert!(some.end <= patches.outputs(), "outputs of these images");
        // The first output is read in place of missing ones.
        let start = |j: usize| patches.start(if j < some.end { j } else { some.start });
        let pieces: [[*const bf16; N]; 2] = array_of(|vector| {
            array_of(|piece| {
                let j = some.start + (vector * N + piece) * (S::LANES / N);
                patches.padded.as_ptr().wrapping_add(start(j))
            })
        });
        let zeros = [bf16::ZERO; 16];
        for (lane, offsets) in patches.offsets[terms].chunks(K::IN_LANE).enumerate() {
            for (vector, pieces) in pieces.iter().enumerate() {
                let mut terms = [[zeros.as_ptr(); N]; 2];
                for (term, &offset) in terms.iter_mut().zip(offsets) {
                    *term = *pieces;
                    for piece in term {
                        *piece = piece.wrapping_add(offset);
                    }
                }
                // SAFETY: `new` has shown that all outputs with their offsets are inside the padded images; there is
                // room for two vectors of each lane.
                unsafe {
                    let packed = packer.vector(simd, terms);
                    simd.store_f32(packed, to.add((2 * lane + vector) * S::LANES));
                }
            }
        }
    }
}

impl Operand<bf16> for Im2col<'_> {
    fn sizes(&self) -> Option<SizeRange> {
        Some(self.0.sizes)
    }

    #[inline(always)]
    unsafe fn pack_panel<S: Simd, K: Packer<S, bf16>>(
        self,
        simd: S,
        packer: &mut K,
        some: Range<usize>,
        terms: Range<usize>,
        to: *mut f32,
        width: usize,
    ) {
        let Im2col(patches) = self;
        debug_assert_eq!(width, 2 * S::LANES);
        // SAFETY: guaranteed by the caller.
        unsafe {
            match patches.length {
                length if length.is_multiple_of(S::LANES) => {
                    return self.pack_pieces::<S, K, 1>(simd, packer, some, terms, to);
                }
                length if length.is_multiple_of(S::LANES / 2) => {
                    return self.pack_pieces::<S, K, 2>(simd, packer, some, terms, to);
                }
                length if length.is_multiple_of(S::LANES / 4) => {
                    return self.pack_pieces::<S, K, 4>(simd, packer, some, terms, to);
                }
                _ => {}
            }
        }
        let (mut sequences, mut count) = ([(0, 0); MAX_NR], 0);
        patches.sequences(some.clone(), |from, len| {
            sequences[count] = (from, len);
            count += 1;
        });
        let sequences = &sequences[..count];
        // SAFETY: sequences belong to this matrix; a row has room for all of them and one more copy. The caller guarantees
        // the room for the panel.
        unsafe {
            pack_copied(simd, packer, terms, to, width, |term, row| {
                let mut at = 0;
                for &(from, len) in sequences {
                    patches.copy(from + patches.offsets[term], len, row.as_mut_ptr().add(at));
                    at += len;
                }
                if at < width {
                    row[at..].fill(bf16::ZERO);
                }
            });
        }
    }
}

/// Length of a row of numbers for [`pack_transposed`], including the excess that a copy writes.
pub(super) const ROW: usize = KC + COPIED;

/// Weights of a convolution as the left operand of its input gradient. Its rows are channels; its terms are the chosen
/// taps of one output channel after another.
#[derive(Clone, Copy)]
struct Swapped<'a> {
    weight: &'a [bf16],
    channels: usize,
    taps: usize,
    chosen: &'a [usize],
}

impl Operand<bf16> for Swapped<'_> {
    #[inline(always)]
    unsafe fn pack_panel<S: Simd, K: Packer<S, bf16>>(
        self,
        simd: S,
        packer: &mut K,
        some: Range<usize>,
        terms: Range<usize>,
        to: *mut f32,
        width: usize,
    ) {
        let Swapped { weight, channels, taps, chosen } = self;
        let count = chosen.len();
        let mut rows = [[bf16::ZERO; ROW]; MAX_ROWS];
        for output in terms.start / count..terms.end.div_ceil(count) {
            let here = terms.start.max(output * count)..terms.end.min((output + 1) * count);
            let (first, at) = (here.start - output * count, here.start - terms.start);
            for (row, channel) in rows.iter_mut().zip(some.clone()) {
                let from = &weight[(output * channels + channel) * taps..];
                if count == taps {
                    copy_few(&from[first..], &mut row[at..], here.len());
                } else {
                    let chosen = &chosen[first..first + here.len()];
                    row[at..].iter_mut().zip(chosen).for_each(|(to, &tap)| *to = from[tap]);
                }
            }
        }
        // SAFETY: the rows have these terms; the rest is guaranteed by the caller.
        unsafe {
            let from = rows.as_ptr().cast();
            pack_transposed(simd, packer, from, ROW, some.len(), terms.len(), to, width);
        }
    }
}

/// Copies the first `len` elements, and possibly some more: a copy of fixed size is faster.
#[inline(always)]
fn copy_few(from: &[bf16], to: &mut [bf16], len: usize) {
    match (from.first_chunk::<COPIED>(), to.first_chunk_mut()) {
        (Some(from), Some(to)) if len <= COPIED => *to = *from,
        _ => to[..len].copy_from_slice(&from[..len]),
    }
}

/// Weights times patches: a convolution of some images.
struct Convolution<'a, W> {
    weights: W,
    patches: Patches<'a>,
    /// Number of rows of the weights.
    rows: usize,
    /// One bias per row.
    bias: &'a [bf16],
}

impl<'a, W: Operand<bf16> + Sync> Factors for Convolution<'a, W> {
    type Of = bf16;
    type Out = bf16;
    type Left = W;
    type Right = Im2col<'a>;

    fn size(&self) -> (usize, usize) {
        (self.rows, self.patches.outputs())
    }

    fn depths(&self) -> impl Iterator<Item = usize> {
        std::iter::once(self.patches.offsets.len())
    }

    fn pair(&self, _: usize) -> (W, Im2col<'a>) {
        (self.weights, Im2col(self.patches))
    }

    fn added(&self) -> Added<'_, bf16> {
        Added::ToRows(self.bias)
    }

    fn places(&self) -> Places {
        let volume = self.patches.volume();
        Places { row: volume, columns: volume, block: self.rows * volume }
    }
}

/// Runs a convolution of all images of `x` in the layout `source`, to `rows` channels.
fn convolution(
    source: &PaddedLayout,
    x: &[bf16],
    weights: impl Operand<bf16> + Sync,
    rows: usize,
    offsets: &[usize],
    (runs, length): (&[usize], usize),
    bias: Option<&[bf16]>,
) -> Pooled<bf16> {
    let (mut out, amx) = (uninit_vec(source.geometry().batch * rows * runs.len() * length), amx::uses_amx());
    // Without a bias, the other kernels add 0, which makes -0 positive.
    let zeros = Pooled::<bf16>::zeros(rows);
    let bias = bias.unwrap_or(&zeros);
    let mut rest = &mut out[..];
    in_parts(source, x, offsets, (runs, length), |_, patches| {
        let (part, after) = std::mem::take(&mut rest).split_at_mut(rows * patches.outputs());
        rest = after;
        let convolution = Convolution { weights, patches, rows, bias };
        loops::regions(&convolution, part, |region| run_tiles_or_pairs(amx, region));
    });
    out
}

/// Pads the images of `x` in the layout `source`, as many together as fit in a [chunk](CHUNK), and calls `f` with the
/// number of the first of them and their patches.
pub(super) fn in_parts(
    source: &PaddedLayout,
    x: &[bf16],
    offsets: &[usize],
    (runs, length): (&[usize], usize),
    mut f: impl FnMut(usize, Patches),
) {
    let g = source.geometry();
    let (x_image, image) = (g.in_channels * g.in_volume(), g.in_channels * source.channel());
    let (together, sizes) = ((CHUNK / image).clamp(1, g.batch), sizes_of(x));
    let mut padded = Pooled::<bf16>::zeros(together * image + length + 2 * COPIED);
    for (part, x) in x.chunks(together * x_image).enumerate() {
        for (x, padded) in x.chunks_exact(x_image).zip(padded.chunks_exact_mut(image)) {
            source.fill_as_is(x, padded, source.channel());
        }
        let images = x.len() / x_image;
        f(part * together, Patches::new((&padded, image, images), offsets, (runs, length), sizes));
    }
}

/// Returns the layout in which a convolution reads its images, the offsets of the rows of its im2col matrix, and the starts
/// of its runs of outputs.
pub(super) fn layout(g: &Geometry) -> (PaddedLayout, Pooled<usize>, Pooled<usize>) {
    let source = PaddedLayout::phase_split(g);
    let offsets = source.offsets(source.channel());
    let first = positions([g.output[0], g.output[1], 1]);
    let runs = Pooled::collect(g.output[0] * g.output[1], first.map(|at| source.start(at)));
    (source, offsets, runs)
}

/// Runs [`forward`](super::dispatch::forward), or returns `None` if another kernel should be used.
pub(super) fn forward(g: &Geometry, x: &[bf16], weight: &[bf16], bias: Option<&[bf16]>) -> Option<Pooled<bf16>> {
    if !pay(g, g.out_channels, g.patch(), g.out_volume()) {
        return None;
    }
    let (source, offsets, runs) = layout(g);
    let weights = Matrix::new(weight, false, g.patch());
    Some(convolution(&source, x, weights, g.out_channels, &offsets, (&runs, g.output[2]), bias))
}

/// Runs [`input_gradient`](super::dispatch::input_gradient), or returns `None` if another kernel should be used.
pub(super) fn input_gradient(
    g: &Geometry,
    grad: &[bf16],
    weight: &[bf16],
    bias: Option<&[bf16]>,
) -> Option<Pooled<bf16>> {
    let (channels, taps, volume) = (g.in_channels, g.taps(), g.in_volume());
    // A stride has one product per phase: packing for several, and scattering their results, cost as much as pairs
    // saved, but less than tiles save.
    let phases_pay = g.stride == [1; 3] || amx::uses_amx();
    if !phases_pay || !pay(g, channels, g.out_channels * taps, volume) {
        return None;
    }
    let source = input_gradient_source(g);
    let phases = input_phases(g, &source, weight);
    let gradient = |phase: &Phase<bf16>| {
        let Weights::Taps { chosen, .. } = &phase.weights else { unreachable!("phases have some of the taps") };
        let runs = Pooled::collect(phase.runs.len(), phase.runs.iter().map(|run| run.0));
        let weights = Swapped { weight, channels, taps, chosen };
        convolution(&source, grad, weights, channels, &phase.offsets, (&runs, phase.length), bias)
    };
    if let [phase] = &phases[..]
        && phase.outputs() == volume
    {
        return Some(gradient(phase));
    }
    let mut out = zeros(g.sizes()[0]);
    fill_with_bias(&mut out, volume, bias);
    for phase in &phases {
        let outputs = gradient(phase);
        for (to, from) in out.chunks_exact_mut(volume).zip(outputs.chunks_exact(phase.outputs())) {
            for (run, from) in phase.runs.iter().zip(from.chunks_exact(phase.length)) {
                let to = to[run.1..].iter_mut().step_by(phase.steps.1);
                to.zip(from).for_each(|(to, from)| *to = *from);
            }
        }
    }
    Some(out)
}
