//! Convolutions of few channels: outputs that are neighbours stand side by side in vectors, read where they lie on the
//! planes, and weights are factors of whole vectors.

use super::{weights::Packed, windows::Task};
use crate::kernels::{
    gemm::{
        DEPTH,
        blocks::store_some,
        tile::{Operand, Panel, TILE_ROWS, Windows, sized},
    },
    simd::{Kernel, Lanes, Vector},
};

/// Vectors of outputs that are summed together, where the registers suffice.
const TOGETHER: usize = 4;

/// The sums of as many vectors.
type Sums = [[f32; TOGETHER * 16]; TILE_ROWS];

/// See [`Task`].
pub(super) struct Strips<'a, T>(pub Task<'a, T>);

impl<T: Lanes> Kernel for Strips<'_, T> {
    type Output = ();

    // SAFETY: what is read and written lies inside the planes and the result, as is checked first; every element written is
    // one of this task's.
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Strips(task) = self;
        task.check();
        let part = task.part;
        let (width, depth) = (V::TILE.0, part.offsets.len());
        let (mut sums, mut more): (Sums, Sums) = ([[0.0; TOGETHER * 16]; TILE_ROWS], [[0.0; TOGETHER * 16]; TILE_ROWS]);
        for c0 in task.channels.clone().step_by(width) {
            let count = width.min(task.channels.end - c0);
            let (weights, to, wide) = (&task.weights, &mut *task.panel, &mut *task.wide);
            // SAFETY: the caller has the instructions of `V`.
            let panel = unsafe { Packed { weights, first: c0, count, depth, width, to, wide }.run::<V>() };
            let together = if enough::<V>(count, TOGETHER) { TOGETHER } else { TOGETHER / 2 };
            let (mut image, mut run, mut output) = (0, 0, 0);
            while image < task.images {
                let mut starts = [task.planes.as_ptr(); TOGETHER];
                let mut places = [(0, 0); TOGETHER];
                let mut vectors = 0;
                while vectors < together && image < task.images {
                    let (from, first) = task.runs[run];
                    starts[vectors] = starts[vectors].wrapping_add(image * task.planes_image + from + output);
                    let place = task.start + image * task.image + first + output * part.steps.1;
                    places[vectors] = (place, V::LANES.min(part.length - output));
                    vectors += 1;
                    output += V::LANES;
                    if output >= part.length {
                        (run, output) = (run + 1, 0);
                    }
                    if run == task.runs.len() {
                        (image, run) = (image + 1, 0);
                    }
                }
                let size = (count, vectors);
                let factors = |block: usize| Panel { start: panel.wrapping_add(block * width), row: width, step: 1 };
                let windows = |block: usize| Windows { starts, offsets: part.offsets[block..].as_ptr() };
                // SAFETY: all windows lie inside the planes and their slack, and the panel has been packed; the outputs are
                // this task's.
                unsafe {
                    tile::<V, _, _>(size, depth.min(DEPTH), factors(0), windows(0), &mut sums);
                    for block in (DEPTH..depth).step_by(DEPTH) {
                        tile::<V, _, _>(size, (depth - block).min(DEPTH), factors(block), windows(block), &mut more);
                        sums.as_flattened_mut()
                            .iter_mut()
                            .zip(more.as_flattened())
                            .for_each(|(sum, more)| *sum += more);
                    }
                    for (c, sums) in (c0..c0 + count).zip(&sums) {
                        let bias = V::splat(task.bias.map_or(0.0, |bias| bias[c].widen()));
                        for (i, (place, len)) in places[..vectors].iter().enumerate() {
                            let sum = V::add(V::load_f32(sums.as_ptr().add(i * V::LANES)), bias);
                            let place = c * task.channel + place;
                            if part.steps.1 == 1 {
                                store_some(sum, task.out.at(place), *len);
                                continue;
                            }
                            let mut low = [T::default(); 16];
                            T::store(sum, low.as_mut_ptr());
                            for (o, &x) in low[..*len].iter().enumerate() {
                                task.out.at(place + o * part.steps.1).write(x);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Whether sums of so many rows and vectors fit into the registers, with the vectors and a factor.
const fn enough<V: Vector>(rows: usize, vectors: usize) -> bool {
    // There are 16 registers of eight lanes and 32 of sixteen.
    (rows + 1) * vectors < 2 * V::LANES
}

// SAFETY: as for `sized`.
#[inline(always)]
unsafe fn tile<V: Vector, A: Operand, B: Operand>(
    (rows, vectors): (usize, usize),
    depth: usize,
    a: A,
    b: B,
    to: &mut Sums,
) {
    macro_rules! sizes {
        ($($rows:literal)*) => {
            match (rows, vectors) {
                // SAFETY: the caller's promise. A third vector that is not there reads what the first might.
                $( ($rows, 1) if $rows <= V::TILE.0 => unsafe { sized::<V, A, B, $rows, 1, _>(depth, a, b, to) },
                ($rows, 2) if $rows <= V::TILE.0 => unsafe { sized::<V, A, B, $rows, 2, _>(depth, a, b, to) },
                ($rows, _) if $rows <= V::TILE.0 && enough::<V>($rows, TOGETHER) => unsafe {
                    sized::<V, A, B, $rows, 4, _>(depth, a, b, to)
                }, )*
                _ => unreachable!("no such tile"),
            }
        };
    }
    sizes! { 1 2 3 4 5 6 7 8 }
}
