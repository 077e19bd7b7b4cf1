//! Convolutions of many channels: the channels of the result stand side by side in vectors, and the numbers of the images
//! are factors of whole vectors, read where they lie. So images and windows fill vectors whatever their size.

use super::{weights::Packed, windows::Task};
use crate::kernels::{
    gemm::{
        DEPTH,
        tile::{Panel, TILE_ROWS, TILE_WIDTH, Tile, Windows, tile},
    },
    simd::{Kernel, Lanes, Vector},
    threads::Shared,
};

/// See [`Task`].
pub(super) struct Channels<'a, T>(pub Task<'a, T>);

impl<T: Lanes> Kernel for Channels<'_, T> {
    type Output = ();

    // SAFETY: what is read and written lies inside the planes and the result, as is checked first; every element written is
    // one of this task's.
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Channels(task) = self;
        task.check();
        let part = task.part;
        let (rows, width, depth) = (V::TILE.0, V::TILE.1 * V::LANES, part.offsets.len());
        let outputs = task.images * task.runs.len() * part.length;
        let (mut sums, mut more): (Tile, Tile) = ([[0.0; TILE_WIDTH]; TILE_ROWS], [[0.0; TILE_WIDTH]; TILE_ROWS]);
        let mut columns = Columns::default();
        for c0 in task.channels.clone().step_by(width) {
            let count = width.min(task.channels.end - c0);
            let (weights, to, wide) = (&task.weights, &mut *task.panel, &mut *task.wide);
            // SAFETY: the caller has the instructions of `V`.
            let panel = unsafe { Packed { weights, first: c0, count, depth, width, to, wide }.run::<V>() };
            let mut bias = [0f32; TILE_WIDTH];
            if let Some(from) = task.bias {
                bias.iter_mut().zip(&from[c0..c0 + count]).for_each(|(to, x)| *to = x.widen());
            }
            let (mut image, mut run, mut output) = (0, 0, 0);
            for at in (0..outputs).step_by(rows) {
                // Rows beyond the last output read what the first reads.
                let length = rows.min(outputs - at);
                let mut starts = [task.planes.as_ptr(); TILE_ROWS];
                let mut to = [0; TILE_ROWS];
                for (start, to) in starts[..length].iter_mut().zip(&mut to) {
                    let (from, first) = task.runs[run];
                    *start = start.wrapping_add(image * task.planes_image + from + output * part.steps.0);
                    *to = task.start + image * task.image + first + output * part.steps.1;
                    output += 1;
                    if output == part.length {
                        (run, output) = (run + 1, 0);
                    }
                    if run == task.runs.len() {
                        (image, run) = (image + 1, 0);
                    }
                }
                let size = (rows, count.div_ceil(V::LANES));
                let windows = |block: usize| Windows { starts, offsets: part.offsets[block..].as_ptr() };
                let weights =
                    |block: usize| Panel { start: panel.wrapping_add(block * width), row: width, step: V::LANES };
                // SAFETY: all factors lie inside the planes, and the panel has been packed; the outputs are this task's.
                unsafe {
                    tile::<V, _, _>(size, depth.min(DEPTH), windows(0), weights(0), &mut sums);
                    for block in (DEPTH..depth).step_by(DEPTH) {
                        tile::<V, _, _>(size, (depth - block).min(DEPTH), windows(block), weights(block), &mut more);
                        sums.as_flattened_mut()
                            .iter_mut()
                            .zip(more.as_flattened())
                            .for_each(|(sum, more)| *sum += more);
                    }
                    let first = c0 * task.channel;
                    store::<V, T>(
                        &mut sums,
                        &bias,
                        &mut columns,
                        count,
                        &to[..length],
                        (first, task.channel),
                        task.out,
                    );
                }
            }
        }
    }
}

/// Adds the bias to the first `count` columns of a tile, rounds them, and puts row r of column c to `first + to[r] + c * step`.
///
// SAFETY: the caller has the instructions of `V`, and these elements of `out` are its own.
#[inline(always)]
unsafe fn store<V: Vector, T: Lanes>(
    sums: &mut Tile,
    bias: &[f32; TILE_WIDTH],
    columns: &mut Columns<T>,
    count: usize,
    to: &[usize],
    (first, step): (usize, usize),
    out: Shared<'_, T>,
) {
    let side_by_side = to.len() == V::TILE.0 && to.iter().enumerate().all(|(r, &place)| place == to[0] + r);
    // SAFETY: vectors lie inside the tile and the bias; the places are the caller's promise.
    unsafe {
        for row in sums.iter_mut() {
            let mut c = 0;
            while c < count {
                let at = row.as_mut_ptr().add(c);
                V::store_f32(V::add(V::load_f32(at), V::load_f32(bias.as_ptr().add(c))), at);
                c += V::LANES;
            }
        }
        columns.take::<V>(sums.as_ptr().cast(), TILE_WIDTH, count);
        for (c, low) in columns.low[..count].iter().enumerate() {
            let first = first + c * step;
            if side_by_side {
                std::ptr::copy_nonoverlapping(low.as_ptr(), out.at(first + to[0]), V::TILE.0);
            } else {
                for (&place, &x) in to.iter().zip(low) {
                    out.at(first + place).write(x);
                }
            }
        }
    }
}

/// The columns of a tile, of eight rows.
pub(super) struct Columns<T> {
    wide: [[f32; TILE_ROWS]; TILE_WIDTH],
    /// Rounded.
    pub low: [[T; TILE_ROWS]; TILE_WIDTH],
}

impl<T: Lanes> Default for Columns<T> {
    fn default() -> Self {
        Columns { wide: [[0.0; TILE_ROWS]; TILE_WIDTH], low: [[T::default(); TILE_ROWS]; TILE_WIDTH] }
    }
}

impl<T: Lanes> Columns<T> {
    /// Takes the first `count` columns of eight rows that are `row` numbers apart.
    ///
    // SAFETY: the caller has the instructions of `V`; `from` is valid for eight rows, of `count` rounded up to eight.
    #[inline(always)]
    pub unsafe fn take<V: Vector>(&mut self, from: *const f32, row: usize, count: usize) {
        // SAFETY: whole transposes lie inside the rows, whole vectors inside both arrays.
        unsafe {
            for c in (0..count).step_by(TILE_ROWS) {
                V::transpose(from.add(c), row, self.wide[c].as_mut_ptr(), TILE_ROWS);
            }
            let (from, to) = (self.wide.as_ptr().cast::<f32>(), self.low.as_mut_ptr().cast::<T>());
            for at in (0..count * TILE_ROWS).step_by(V::LANES) {
                T::store(V::load_f32(from.add(at)), to.add(at));
            }
        }
    }
}
