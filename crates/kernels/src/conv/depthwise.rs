//! Depthwise convolutions, of one input and one output channel per group, and their gradients with respect to the input.
//!
//! A plane, which is a channel of an image, is padded, convolved and rounded while it is in the nearest cache. The lanes
//! of a vector are adjacent outputs, and the terms are summed in the order of [`windows`](super::windows).

use std::ops::Range;

use super::{
    geometry::Geometry,
    pack_weights::Weights,
    padded::{PaddedLayout, Row, SLACK, copy_rows},
    task::Phase,
    windows::{input_gradient_source, input_phases, only_phase},
};
use crate::{
    arrays::{array_of, mapped},
    float::VectorFloat,
    gemm::blocking::KC,
    memory::{Pooled, Scratch, uninit_vec, with_scratch},
    simd,
    simd::{Kernel, Simd, store_first},
    threads,
    threads::Shared,
};

/// Number of vectors of outputs that are summed together, which hides the latency of additions.
const TOGETHER: usize = 8;

/// Returns whether a convolution is depthwise. Those with more than a block of terms are left to the other kernels.
pub(super) fn is_depthwise(g: &Geometry) -> bool {
    g.groups > 1 && g.in_channels == 1 && g.out_channels == 1 && g.taps() <= KC
}

/// Computes the convolution, if it is depthwise; see [`forward`](super::dispatch::forward).
pub(super) fn forward<T: VectorFloat>(g: &Geometry, x: &[T], weight: &[T], bias: Option<&[T]>) -> Option<Pooled<T>> {
    is_depthwise(g).then(|| {
        let source = PaddedLayout::phase_split(g);
        let phase = only_phase(g, &source, weight);
        convolve(&source, &[phase], x, weight, bias, (g.output, 1))
    })
}

/// Computes the gradient, if the convolution is depthwise and reads all pixels; see
/// [`input_gradient`](super::dispatch::input_gradient).
pub(super) fn input_gradient<T: VectorFloat>(
    g: &Geometry,
    grad: &[T],
    weight: &[T],
    bias: Option<&[T]>,
) -> Option<Pooled<T>> {
    if !is_depthwise(g) {
        return None;
    }
    let source = input_gradient_source(g);
    let phases = input_phases(g, &source, weight);
    let all_read = phases.iter().map(Phase::outputs).sum::<usize>() == g.in_volume();
    all_read.then(|| convolve(&source, &phases, grad, weight, bias, (g.input, g.stride[2])))
}

/// Convolves all planes. The results have the size `size`, and a phase has every `step`th of a row.
fn convolve<T: VectorFloat>(
    source: &PaddedLayout,
    phases: &[Phase<T>],
    x: &[T],
    weight: &[T],
    bias: Option<&[T]>,
    (size, step): ([usize; 3], usize),
) -> Pooled<T> {
    let g = source.geometry();
    let planes = g.batch * g.groups;
    let (volume, width) = (size.iter().product::<usize>(), size[2]);
    let mut result = uninit_vec(planes * volume);
    let weight = T::widen_slice(weight);
    let (rows, taps) = (source.rows(), weight.len() / g.groups);
    let phases: Vec<Terms> = phases.iter().map(|phase| Terms::new(phase)).collect();
    let (out, work) = (Shared::new(&mut result), planes * volume * taps);
    threads::split(planes, 1, work, |planes| {
        with_scratch(|memory| {
            let (rows, phases, weight) = (&rows[..], &phases[..], &*weight);
            let task = Planes { source, rows, phases, x, weight, bias, planes, width, step, volume, out, memory };
            assert!(simd::run(task).is_ok(), "asked for before");
        });
    });
    result
}

/// Outputs of a plane with the same terms.
struct Terms<'a> {
    /// Offset of each term from the start of an output, and its tap.
    terms: Vec<(usize, usize)>,
    /// Runs of outputs, as in [`Phase`].
    runs: &'a [(usize, usize)],
    length: usize,
}

impl<'a> Terms<'a> {
    fn new<T>(phase: &'a Phase<T>) -> Self {
        let tap = |term: usize| match &phase.weights {
            Weights::Rows(_) => term,
            Weights::Taps { chosen, .. } => chosen[term],
        };
        let terms = phase.offsets.iter().enumerate().map(|(term, &offset)| (offset, tap(term))).collect();
        Terms { terms, runs: &phase.runs, length: phase.length }
    }

    /// Returns the vectors of all runs, as starts in the padded plane and places in the result. The last one fills up
    /// its part.
    fn vectors(&self, lanes: usize, place: impl Fn(usize) -> usize) -> Vec<[(usize, usize); TOGETHER]> {
        let of_run = |&(from, to): &(usize, usize)| {
            let to = place(to);
            (0..self.length).step_by(lanes).map(move |at| (from + at, to + at))
        };
        let mut all: Vec<_> = self.runs.iter().flat_map(of_run).collect();
        let last = *all.last().expect("a phase has outputs");
        all.resize(all.len().next_multiple_of(TOGETHER), last);
        all.as_chunks().0.to_vec()
    }
}

/// Convolutions of some planes.
struct Planes<'a, T> {
    source: &'a PaddedLayout,
    /// Rows of a plane that are padded.
    rows: &'a [Row],
    phases: &'a [Terms<'a>],
    x: &'a [T],
    weight: &'a [f32],
    bias: Option<&'a [T]>,
    planes: Range<usize>,
    /// Length of a row of the result, and the distance of the outputs of a phase there.
    width: usize,
    step: usize,
    /// Number of elements of a plane of the result.
    volume: usize,
    out: Shared<'a, T>,
    memory: [&'a mut Scratch; 4],
}

impl<T: VectorFloat> Kernel for Planes<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Planes { source, rows, phases, x, weight, bias, planes, width, step, volume, out, memory } = self;
        let [padded, wide, parts, whole] = memory;
        let g = source.geometry();
        let (pixels, taps) = (g.in_volume(), weight.len() / g.groups);
        let padded = padded.uninit(source.channel() + SLACK);
        padded.fill(0.0);
        let (wide, whole) = (wide.uninit(pixels), whole.uninit(volume + SLACK));
        // Outputs of one phase are whole rows. A vector may extend into the next row, which is stored after it. Those
        // of several phases are stored apart first.
        let apart = phases.len() > 1;
        let pitch = width.div_ceil(step).next_multiple_of(16);
        let parts = parts.uninit(if apart { volume / width * step * pitch } else { 0 });
        let place = |to: usize| if apart { (to / width * step + to % width) * pitch } else { to };
        let phases: Vec<_> = phases.iter().map(|phase| (&phase.terms[..], phase.vectors(S::LANES, place))).collect();
        for (terms, vectors) in &phases {
            let greatest = |indices: &mut dyn Iterator<Item = usize>| indices.max().unwrap_or(0);
            let from = greatest(&mut vectors.as_flattened().iter().map(|vector| vector.0));
            let offset = greatest(&mut terms.iter().map(|term| term.0));
            assert!(from + offset + S::LANES <= padded.len(), "windows are inside the padded plane");
            let to = greatest(&mut vectors.as_flattened().iter().map(|vector| vector.1)) + S::LANES;
            assert!(to <= if apart { parts.len() } else { whole.len() }, "outputs are inside the result");
            assert!(terms.iter().all(|term| term.1 < taps), "a weight for each term");
        }
        for plane in planes {
            let group = plane % g.groups;
            let image = T::widened(&x[plane * pixels..(plane + 1) * pixels], wide);
            copy_rows(rows, source.phases[2], image, padded);
            let weight = &weight[group * taps..(group + 1) * taps];
            let to = if apart { parts.as_mut_ptr() } else { whole.as_mut_ptr() };
            for (terms, vectors) in &phases {
                for some in vectors {
                    // SAFETY: the vectors were asserted to be inside the padded plane and the result.
                    unsafe { sum_terms(simd, some, terms, padded.as_ptr(), weight.as_ptr(), to) };
                }
            }
            if apart {
                for row in 0..volume / width {
                    join(&mut whole[row * width..], width, &parts[row * step * pitch..], step, pitch);
                }
            }
            let bias = simd.splat(bias.map_or(0.0, |bias| bias[group].widen()));
            let mut at = 0;
            while at < volume {
                // SAFETY: vectors begin inside the result, which has slack; no other thread uses the elements of this
                // plane.
                unsafe {
                    let sum = simd.add(simd.load_f32(whole.as_ptr().add(at)), bias);
                    store_first(simd, sum, out.at(plane * volume + at), S::LANES.min(volume - at));
                }
                at += S::LANES;
            }
        }
    }
}

/// Sums all terms of some vectors and stores them.
///
/// # Safety
/// The vectors' starts plus each offset are valid for reads of a vector, and their places for writes. There is a weight
/// for each tap.
#[inline(always)]
unsafe fn sum_terms<S: Simd>(
    simd: S,
    vectors: &[(usize, usize); TOGETHER],
    terms: &[(usize, usize)],
    padded: *const f32,
    weight: *const f32,
    to: *mut f32,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let starts = mapped(*vectors, |(from, _)| padded.add(from));
        let mut sums = [simd.splat(0.0); TOGETHER];
        for &(offset, tap) in terms {
            let factor = simd.splat(*weight.add(tap));
            for i in 0..TOGETHER {
                sums[i] = simd.mul_add(factor, simd.load_f32(starts[i].add(offset)), sums[i]);
            }
        }
        for i in 0..TOGETHER {
            simd.store_f32(sums[i], to.add(vectors[i].1));
        }
    }
}

/// Joins a row of `width` outputs from its `step` parts, which are `pitch` numbers apart: number i of part p is output
/// `i * step + p`. Up to a vector after the row is overwritten.
#[inline(always)]
fn join(row: &mut [f32], width: usize, parts: &[f32], step: usize, pitch: usize) {
    if step == 2 {
        let (even, odd) = parts.split_at(pitch);
        let mut at = 0;
        while at < width {
            let (even, odd) = (&even[at / 2..at / 2 + 8], &odd[at / 2..at / 2 + 8]);
            let both: [f32; 16] = array_of(|i| if i % 2 == 0 { even[i / 2] } else { odd[i / 2] });
            row[at..at + 16].copy_from_slice(&both);
            at += 16;
        }
    } else {
        for part in 0..step {
            let (mut at, mut from) = (part, part * pitch);
            while at < width {
                row[at] = parts[from];
                (at, from) = (at + step, from + 1);
            }
        }
    }
}
