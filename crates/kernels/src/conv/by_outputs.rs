//! Convolutions of few channels. The lanes of a vector are adjacent outputs, read from the padded image in place, and
//! each weight multiplies whole vectors.

use super::{pack_weights::pack_weights, task::Task};
use crate::{
    float::VectorFloat,
    gemm::{
        blocking::{KC, MAX_MR},
        micro_kernel::{Panel, Source, Wide, Windows, micro_kernel_of},
    },
    simd::{Kernel, Part, Simd, store_first},
    threads::Shared,
};

/// Number of output vectors that are summed together, given enough registers.
const TOGETHER: usize = 4;

/// Sums of [`MAX_MR`] channels and as many vectors.
type Sums = [[f32; TOGETHER * 16]; MAX_MR];

const SUMS: Sums = [[0.0; TOGETHER * 16]; MAX_MR];

/// Kernel over outputs; see [`Task`].
pub(super) struct ByOutputs<'a, T>(pub Task<'a, T>);

impl<T: VectorFloat> Kernel for ByOutputs<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let ByOutputs(mut task) = self;
        task.check();
        for first in task.channels.clone().step_by(S::MR) {
            let count = S::MR.min(task.channels.end - first);
            block_of_channels(simd, &mut task, (first, count));
        }
    }
}

/// Computes all outputs of at most `MR` channels.
#[inline(always)]
fn block_of_channels<S: Simd, T: VectorFloat>(simd: S, task: &mut Task<T>, (first, count): (usize, usize)) {
    let phase = task.phase;
    let memory = (&mut *task.panel, &mut *task.wide);
    let panel = pack_weights(simd, &task.weights, (first, count), phase.offsets.len(), S::MR, memory);
    let together = if enough_registers::<S>(count, TOGETHER) { TOGETHER } else { TOGETHER / 2 };
    let mut sums = SUMS;
    let (mut image, mut run, mut output) = (0, 0, 0);
    while image < task.images {
        // Start of each vector in the image, and its outputs: the index of the first, and their number.
        let mut starts = [task.padded.as_ptr(); TOGETHER];
        let mut places = [(0, 0); TOGETHER];
        let mut vectors = 0;
        while vectors < together && image < task.images {
            let (from, to) = task.runs[run];
            starts[vectors] = starts[vectors].wrapping_add(image * task.padded_image + from + output);
            let to = task.start + image * task.image + to + output * phase.steps.1;
            places[vectors] = (to, S::LANES.min(phase.length - output));
            vectors += 1;
            output += S::LANES;
            if output >= phase.length {
                (run, output) = (run + 1, 0);
            }
            if run == task.runs.len() {
                (image, run) = (image + 1, 0);
            }
        }
        // SAFETY: `check` has shown that all windows are inside the padded images and their slack. The panel is packed.
        // The outputs belong to this task.
        unsafe {
            let size = (count, vectors);
            simd.apart(AllTerms { starts, offsets: &phase.offsets, panel, size, sums: &mut sums });
            let result = (task.out, task.channel, phase.steps.1);
            epilogue(simd, &sums, task.bias, (first, count), &places[..vectors], result);
        }
    }
}

/// Sums of all terms for some channels and vectors of outputs, block by block: the same code for all dtypes.
///
/// All starts plus offsets are valid for reads of a vector, and the panel has `MR` numbers for each offset.
struct AllTerms<'a> {
    starts: [*const f32; TOGETHER],
    offsets: &'a [usize],
    panel: &'a [f32],
    size: (usize, usize),
    sums: &'a mut Sums,
}

impl<S: Simd> Part<S> for AllTerms<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, simd: S) {
        let AllTerms { starts, offsets, panel, size, sums } = self;
        let mut more = SUMS;
        let factors = |block: usize| Panel { start: panel[block * S::MR..].as_ptr(), row: S::MR, step: 1 };
        let windows = |block: usize| Windows { starts, offsets: offsets[block..].as_ptr() };
        // SAFETY: `block_of_channels`, which alone makes one, has checked the starts and packed the panel.
        unsafe {
            micro_kernel(simd, size, offsets.len().min(KC), factors(0), windows(0), sums);
            for block in (KC..offsets.len()).step_by(KC) {
                let depth = (offsets.len() - block).min(KC);
                micro_kernel(simd, size, depth, factors(block), windows(block), &mut more);
                sums.as_flattened_mut().iter_mut().zip(more.as_flattened()).for_each(|(sum, more)| *sum += more);
            }
        }
    }
}

/// Adds the bias of each channel, rounds the sums, and stores them. Channels of the result are `channel` apart, and
/// adjacent outputs `step`.
///
/// # Safety
/// The outputs at these places of these channels are inside the result, and no other thread uses them.
#[inline(always)]
unsafe fn epilogue<S: Simd, T: VectorFloat>(
    simd: S,
    sums: &Sums,
    bias: Option<&[T]>,
    (first, count): (usize, usize),
    places: &[(usize, usize)],
    (out, channel, step): (Shared<'_, T>, usize, usize),
) {
    for r in 0..count {
        let (c, sums) = (first + r, &sums[r]);
        let bias = simd.splat(bias.map_or(0.0, |bias| bias[c].widen()));
        for i in 0..places.len() {
            let (to, len) = (c * channel + places[i].0, places[i].1);
            // SAFETY: vector i is inside the sums; the caller guarantees the outputs.
            unsafe {
                let sum = simd.add(simd.load_f32(sums.as_ptr().add(i * S::LANES)), bias);
                if step == 1 {
                    store_first(simd, sum, out.at(to), len);
                    continue;
                }
                let mut low = [T::default(); 16];
                T::store(simd, sum, low.as_mut_ptr());
                for o in 0..len {
                    out.at(to + o * step).write(low[o]);
                }
            }
        }
    }
}

/// Returns whether the sums of `rows` and `vectors`, the vectors themselves and a factor fit into the registers.
const fn enough_registers<S: Simd>(rows: usize, vectors: usize) -> bool {
    (rows + 1) * vectors < S::REGISTERS
}

/// Computes the sums of some rows and vectors; see [`micro_kernel_of`].
///
/// # Safety
/// As for `micro_kernel_of`. With three vectors a fourth is computed as well, so it must be readable.
#[inline(always)]
unsafe fn micro_kernel<S: Simd, A: Source, B: Source>(
    simd: S,
    (rows, vectors): (usize, usize),
    depth: usize,
    a: A,
    b: B,
    to: &mut Sums,
) {
    macro_rules! sizes {
        ($($rows:literal)*) => {
            match (rows, vectors) {
                // SAFETY: guaranteed by the caller.
                $( ($rows, 1) if $rows <= S::MR => unsafe {
                    micro_kernel_of::<S, Wide, A, B, $rows, 1, _>(simd, Wide, depth, a, b, to)
                },
                // SAFETY: guaranteed by the caller.
                ($rows, 2) if $rows <= S::MR => unsafe {
                    micro_kernel_of::<S, Wide, A, B, $rows, 2, _>(simd, Wide, depth, a, b, to)
                },
                // SAFETY: guaranteed by the caller.
                ($rows, _) if $rows <= S::MR && enough_registers::<S>($rows, TOGETHER) => unsafe {
                    micro_kernel_of::<S, Wide, A, B, $rows, 4, _>(simd, Wide, depth, a, b, to)
                }, )*
                _ => unreachable!("no such tile"),
            }
        };
    }
    sizes! { 1 2 3 4 5 6 7 8 }
}
