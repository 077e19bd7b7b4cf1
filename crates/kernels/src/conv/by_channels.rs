//! Convolutions of many channels. The lanes of a vector are channels of the result, and each number of a padded image
//! multiplies a whole vector. So vectors are full whatever the sizes of images and windows.

use super::{pack_weights::pack_weights, task::Task};
use crate::{
    float::VectorFloat,
    gemm::{
        blocking::{KC, MAX_MR, MAX_NR},
        micro_kernel::{Panel, TILE, Tile, Wide, Windows, micro_kernel},
    },
    simd::{Kernel, Lanes, Simd},
    threads::Shared,
};

/// Kernel over channels; see [`Task`].
pub(super) struct ByChannels<'a, T>(pub Task<'a, T>);

impl<T: VectorFloat> Kernel for ByChannels<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let ByChannels(mut task) = self;
        task.check();
        let mut columns = Columns::default();
        for first in task.channels.clone().step_by(S::NR) {
            let count = S::NR.min(task.channels.end - first);
            block_of_channels(simd, &mut task, (first, count), &mut columns);
        }
    }
}

/// Computes all outputs of at most `NR` channels.
#[inline(always)]
fn block_of_channels<S: Simd, T: VectorFloat>(
    simd: S,
    task: &mut Task<T>,
    (first, count): (usize, usize),
    columns: &mut Columns<T>,
) {
    let phase = task.phase;
    let depth = phase.offsets.len();
    let memory = (&mut *task.panel, &mut *task.wide);
    let panel = pack_weights(simd, &task.weights, (first, count), depth, S::NR, memory);
    let mut bias = [0f32; MAX_NR];
    if let Some(from) = task.bias {
        bias.iter_mut().zip(&from[first..first + count]).for_each(|(to, x)| *to = x.widen());
    }
    let outputs = task.images * task.runs.len() * phase.length;
    let mut sums = TILE;
    let (mut image, mut run, mut output) = (0, 0, 0);
    for at in (0..outputs).step_by(S::MR) {
        // Rows after the last output read the input of the first.
        let length = S::MR.min(outputs - at);
        let mut starts = [task.padded.as_ptr(); MAX_MR];
        let mut to = [0; MAX_MR];
        for r in 0..length {
            let (from, first) = task.runs[run];
            starts[r] = starts[r].wrapping_add(image * task.padded_image + from + output * phase.steps.0);
            to[r] = task.start + image * task.image + first + output * phase.steps.1;
            output += 1;
            if output == phase.length {
                (run, output) = (run + 1, 0);
            }
            if run == task.runs.len() {
                (image, run) = (image + 1, 0);
            }
        }
        // SAFETY: `check` has shown that all terms of these outputs are inside the padded images. The panel is packed.
        // The outputs belong to this task.
        unsafe {
            all_terms(simd, starts, &phase.offsets, panel, count.div_ceil(S::LANES), &mut sums);
            let place = (first * task.channel, task.channel);
            epilogue(simd, &mut sums, &bias, columns, count, &to[..length], place, task.out);
        }
    }
}

/// Sums all terms for `MR` outputs and some vectors of channels, block by block.
///
/// # Safety
/// All starts plus offsets are valid for reads, and the panel has `NR` numbers for each offset.
#[inline(always)]
unsafe fn all_terms<S: Simd>(
    simd: S,
    starts: [*const f32; MAX_MR],
    offsets: &[usize],
    panel: &[f32],
    vectors: usize,
    sums: &mut Tile,
) {
    let mut more = TILE;
    let size = (S::MR, vectors);
    let windows = |block: usize| Windows { starts, offsets: offsets[block..].as_ptr() };
    let weights = |block: usize| Panel { start: panel[block * S::NR..].as_ptr(), row: S::NR, step: S::LANES };
    // SAFETY: guaranteed by the caller.
    unsafe {
        micro_kernel(simd, Wide, size, offsets.len().min(KC), windows(0), weights(0), sums);
        for block in (KC..offsets.len()).step_by(KC) {
            let depth = (offsets.len() - block).min(KC);
            micro_kernel(simd, Wide, size, depth, windows(block), weights(block), &mut more);
            sums.as_flattened_mut().iter_mut().zip(more.as_flattened()).for_each(|(sum, more)| *sum += more);
        }
    }
}

/// Adds the bias to the first `count` columns of a tile, rounds them, and stores row r of column c at
/// `first + to[r] + c * step`.
///
/// # Safety
/// These elements of `out` are inside it, and no other thread uses them.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
unsafe fn epilogue<S: Simd, T: Lanes>(
    simd: S,
    sums: &mut Tile,
    bias: &[f32; MAX_NR],
    columns: &mut Columns<T>,
    count: usize,
    to: &[usize],
    (first, step): (usize, usize),
    out: Shared<'_, T>,
) {
    let contiguous = to.len() == S::MR && to.iter().enumerate().all(|(r, &index)| index == to[0] + r);
    // SAFETY: vectors are inside the tile and the bias; the caller guarantees the elements of `out`.
    unsafe {
        for row in sums.iter_mut() {
            let mut c = 0;
            while c < count {
                let at = row.as_mut_ptr().add(c);
                simd.store_f32(simd.add(simd.load_f32(at), simd.load_f32(bias.as_ptr().add(c))), at);
                c += S::LANES;
            }
        }
        columns.round(simd, sums.as_ptr().cast(), MAX_NR, count);
        for c in 0..count {
            let (low, first) = (&columns.low[c], first + c * step);
            if contiguous {
                std::ptr::copy_nonoverlapping(low.as_ptr(), out.at(first + to[0]), S::MR);
            } else {
                for r in 0..to.len() {
                    out.at(first + to[r]).write(low[r]);
                }
            }
        }
    }
}

/// Columns of a tile of [`MAX_MR`] rows.
pub(super) struct Columns<T> {
    wide: [[f32; MAX_MR]; MAX_NR],
    /// Rounded columns.
    pub low: [[T; MAX_MR]; MAX_NR],
}

impl<T: Lanes> Default for Columns<T> {
    fn default() -> Self {
        Columns { wide: [[0.0; MAX_MR]; MAX_NR], low: [[T::default(); MAX_MR]; MAX_NR] }
    }
}

impl<T: Lanes> Columns<T> {
    /// Transposes and rounds the first `count` columns of eight rows that are `row` numbers apart.
    ///
    /// # Safety
    /// `from` is valid for reads of eight rows, each of `count` numbers rounded up to eight. `count` is at most
    /// [`MAX_NR`].
    #[inline(always)]
    pub unsafe fn round<S: Simd>(&mut self, simd: S, from: *const f32, row: usize, count: usize) {
        // SAFETY: whole transposes are inside the rows, and whole vectors inside both arrays.
        unsafe {
            for c in (0..count).step_by(MAX_MR) {
                simd.transpose(from.add(c), row, self.wide[c].as_mut_ptr(), MAX_MR);
            }
            let (from, to) = (self.wide.as_ptr().cast::<f32>(), self.low.as_mut_ptr().cast::<T>());
            for at in (0..count * MAX_MR).step_by(S::LANES) {
                T::store(simd, simd.load_f32(from.add(at)), to.add(at));
            }
        }
    }
}
