//! Sums of windows: the product of a matrix of weights with rows that are windows on planes, strip by strip of the result.
//!
//! Every element is summed as those of matrix products are: in blocks of [`DEPTH`] terms.

use std::ops::Range;

use super::{
    Geometry,
    planes::{Planes, SLACK, place},
};
use crate::kernels::{
    buffers::{take, zeros},
    gemm::{
        DEPTH, pack,
        scratch::{Scratch, with_scratch},
        tile::{Panel, Rows, TILE_ROWS, TILE_WIDTH, Tile, Windows, tile},
    },
    simd::{self, Kernel, Lanes, Vector, Width},
    threads::{self, Shared},
};

/// A run of results in each channel.
struct Strip {
    /// The place of its first element in the planes.
    from: usize,
    /// Where the result of its image begins.
    image: usize,
    /// The place of its first element in a channel of the result.
    to: usize,
}

impl Strip {
    /// The same strip of image `i` of several whose planes and results follow one another.
    fn of_image(&self, i: usize, planes: usize, result: usize) -> Strip {
        Strip { from: self.from + i * planes, image: i * result, to: self.to }
    }
}

/// Strips of results of some channels, of one image or several.
struct Strips<'a, T> {
    planes: &'a [f32],
    /// Where the windows begin, for a strip that begins at 0.
    offsets: &'a [usize],
    /// Packed weights, and how many terms they have.
    weights: &'a [f32],
    channels: Range<usize>,
    strips: &'a [Strip],
    /// Elements of a strip.
    width: usize,
    /// How far apart they are in the result.
    step: usize,
    bias: Option<&'a [T]>,
    out: Shared<'a, T>,
    /// The first element of channel 0 in `out`, and the elements of a channel.
    start: usize,
    channel: usize,
    /// Whether the strips fill every channel in order, so that writing beyond a strip does no harm before its end.
    dense: bool,
    /// Room for strips put side by side.
    panel: &'a mut Scratch,
}

/// Elements that are stored at once of a strip that does not fill vectors.
const STORED: usize = TILE_WIDTH;

impl<T: Lanes> Kernel for Strips<'_, T> {
    type Output = ();

    // SAFETY: windows lie inside the planes, as is asserted first; every element written is one of these channels'.
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let last = self.strips.iter().map(|strip| strip.from).max().unwrap_or(0);
        let offset = self.offsets.iter().max().unwrap_or(&0);
        assert!(last + offset + self.width + SLACK <= self.planes.len(), "windows lie inside the planes");
        let (width, depth) = (V::TILE.1 * V::LANES, self.offsets.len());
        let planes = self.planes.as_ptr();
        if !side_by_side(self.channels.len(), self.width, V::LANES) {
            for strip in self.strips {
                for at in (0..self.width).step_by(width) {
                    let start = planes.wrapping_add(strip.from + at);
                    let windows = |block: usize| Windows { start, offsets: &self.offsets[block..] };
                    let part = (at, width.min(self.width - at));
                    // SAFETY: the windows lie inside the planes, with slack for whole vectors.
                    unsafe { self.tiles::<V, _>(windows, part, std::slice::from_ref(strip)) };
                }
            }
            return;
        }
        // No closure: its body would not be compiled for the vectors.
        let panel = self.panel.room(depth * width + SLACK).as_mut_ptr();
        for strips in self.strips.chunks(width / self.width) {
            for (p, offset) in self.offsets.iter().enumerate() {
                for (s, strip) in strips.iter().enumerate() {
                    // SAFETY: the window lies inside the planes; whole vectors are copied, what is read and written beyond the
                    // strip is slack or written again.
                    unsafe {
                        let (from, to) = (planes.add(strip.from + offset), panel.add(p * width + s * self.width));
                        let mut at = 0;
                        while at < self.width {
                            V::store_f32(V::load_f32(from.add(at)), to.add(at));
                            at += V::LANES;
                        }
                    }
                }
            }
            // SAFETY: the panel has been packed.
            unsafe {
                self.tiles::<V, _>(
                    |block| Panel { start: panel.wrapping_add(block * width), width },
                    (0, self.width),
                    strips,
                )
            };
        }
    }
}

/// Whether strips are copied side by side before they are multiplied: where they are so short that vectors would be mostly
/// empty, and channels so many that copying is repaid.
fn side_by_side(channels: usize, width: usize, lanes: usize) -> bool {
    let empty = width.next_multiple_of(lanes) - width;
    width < 2 * lanes && channels * empty > 24 * width
}

impl<T: Lanes> Strips<'_, T> {
    /// One tile of every channel: the part (first element, length) of each of `strips`, side by side.
    ///
    // SAFETY: the caller has the instructions of `V`; `rows` are those from a term on, and each has whole vectors.
    #[inline(always)]
    unsafe fn tiles<V: Vector, R: Rows>(&self, rows: impl Fn(usize) -> R, part: (usize, usize), strips: &[Strip]) {
        let (depth, tile_rows) = (self.offsets.len(), V::TILE.0);
        let vectors = (part.1 * strips.len()).div_ceil(V::LANES);
        let mut sums: Tile = [[0.0; TILE_WIDTH]; TILE_ROWS];
        let mut more = sums;
        for c0 in self.channels.clone().step_by(tile_rows) {
            let count = tile_rows.min(self.channels.end - c0);
            let weights = &self.weights[c0 * depth..(c0 + tile_rows) * depth];
            // SAFETY: `depth` times as many weights as a tile has rows are in the slice; the rest is the caller's promise.
            unsafe {
                tile::<V, R>((count, vectors), depth.min(DEPTH), weights.as_ptr(), rows(0), &mut sums);
                for block in (DEPTH..depth).step_by(DEPTH) {
                    let weights = weights[block * tile_rows..].as_ptr();
                    tile::<V, R>((count, vectors), (depth - block).min(DEPTH), weights, rows(block), &mut more);
                    sums.as_flattened_mut().iter_mut().zip(more.as_flattened()).for_each(|(sum, more)| *sum += more);
                }
            }
            for (c, sums) in (c0..c0 + count).zip(&sums) {
                // SAFETY: the caller's promise.
                unsafe { self.store::<V>(c, sums, part, strips) };
            }
        }
    }

    /// Rounds a row of a tile, with the channel's bias, and puts it to its places.
    ///
    // SAFETY: the caller has the instructions of `V`.
    #[inline(always)]
    unsafe fn store<V: Vector>(&self, c: usize, sums: &[f32; TILE_WIDTH], (at, len): (usize, usize), strips: &[Strip]) {
        let mut low = [T::default(); TILE_WIDTH + STORED];
        for i in (0..TILE_WIDTH).step_by(V::LANES) {
            // SAFETY: a vector at `i` lies inside both.
            unsafe {
                let mut sum = V::load_f32(sums.as_ptr().add(i));
                if let Some(bias) = self.bias {
                    sum = V::add(sum, V::splat(bias[c].widen()));
                }
                T::store(sum, low.as_mut_ptr().add(i));
            }
        }
        for (s, strip) in strips.iter().enumerate() {
            let (low, first) = (&low[s * len..], strip.to + at * self.step);
            assert!(first + (len - 1) * self.step < self.channel, "a strip lies inside its channel");
            // A strip of another image begins in another place.
            let to = self.out.at(self.start + c * self.channel + strip.image + first);
            // SAFETY: the elements are this channel's. What a dense channel is given beyond the strip is written again.
            unsafe {
                if self.dense && first + STORED <= self.channel {
                    std::ptr::copy_nonoverlapping(low.as_ptr(), to, STORED);
                } else if self.step == 1 {
                    std::ptr::copy_nonoverlapping(low.as_ptr(), to, len);
                } else {
                    low[..len].iter().enumerate().for_each(|(i, &x)| to.add(i * self.step).write(x));
                }
            }
        }
    }
}

/// The weights of `rows` channels, `depth` for each, in the order of the tiles: a tile's rows side by side, term by term.
struct Packed<'a, T> {
    rows: usize,
    depth: usize,
    from: From<'a, T>,
    to: &'a mut [f32],
}

/// Where the weights of a row are.
enum From<'a, T> {
    /// One after the other.
    Rows(&'a [T]),
    /// In runs of the kernel's taps: those of output channel o and row c are at `(o * rows + c) * taps`.
    Runs { weight: &'a [T], taps: usize },
    /// As in `Runs`, but only some of the taps.
    Some { weight: &'a [T], taps: usize, chosen: &'a [usize] },
}

impl<T: Lanes> Kernel for Packed<'_, T> {
    type Output = ();

    // SAFETY: every read lies inside the weights, as the slices' bounds show; `to` has room for whole tiles and slack.
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let (rows, depth, to, tile_rows) = (self.rows, self.depth, self.to, V::TILE.0);
        assert!(to.len() >= rows.next_multiple_of(tile_rows) * depth + SLACK, "room for whole tiles");
        let mut eight: pack::Eight = [[0.0; DEPTH]; pack::STEP];
        for r0 in (0..rows).step_by(tile_rows) {
            let count = tile_rows.min(rows - r0);
            let to = &mut to[r0 * depth..];
            // Runs of weights that follow one another in a row: where they begin, how far apart rows are, and their length.
            let mut across = |from: &[T], row: usize, len: usize, to: &mut [f32]| {
                for block in (0..len).step_by(DEPTH) {
                    let terms = DEPTH.min(len - block);
                    assert!((count - 1) * row + block + terms <= from.len());
                    // SAFETY: asserted; `to` has room for this, and what is written beyond is written again or slack.
                    unsafe {
                        let (from, to) = (from.as_ptr().add(block), to[block * tile_rows..].as_mut_ptr());
                        pack::across::<V, T>(from, row, count, terms, to, tile_rows, &mut eight);
                    }
                }
            };
            match self.from {
                From::Rows(weight) => across(&weight[r0 * depth..], depth, depth, to),
                From::Runs { weight, taps } => {
                    for (o, from) in weight.chunks_exact(rows * taps).enumerate() {
                        across(&from[r0 * taps..], taps, taps, &mut to[o * taps * tile_rows..]);
                    }
                }
                From::Some { weight, taps, chosen } => {
                    for (o, from) in weight.chunks_exact(rows * taps).enumerate() {
                        for (t, tap) in chosen.iter().enumerate() {
                            for r in 0..count {
                                let place = (o * chosen.len() + t) * tile_rows + r;
                                to[place] = from[(r0 + r) * taps + tap].widen();
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Results of every channel of one group that are computed alike.
struct Part {
    offsets: Vec<usize>,
    /// Packed, group by group; `rows` after one another.
    weights: Scratch,
    /// Numbers of one group's weights.
    group: usize,
    /// Of one image.
    strips: Vec<Strip>,
    width: usize,
    step: usize,
    dense: bool,
}

impl Part {
    fn pack<'a, T: Lanes>(
        &mut self,
        vectors: Width,
        g: &Geometry,
        rows: usize,
        weight: &'a [T],
        from: impl Fn(&'a [T]) -> From<'a, T>,
    ) {
        let depth = self.offsets.len();
        self.group = (rows + TILE_ROWS) * depth;
        let all = self.weights.room(g.groups * self.group + SLACK);
        for (group, weight) in weight.chunks_exact(weight.len() / g.groups).enumerate() {
            let to = &mut all[group * self.group..];
            let done = simd::run_with(vectors, Packed { rows, depth, from: from(weight), to });
            assert!(done.is_ok(), "a width that the machine has");
        }
    }
}

/// A sum of windows of all images of `x`, of which `source` says how they are laid out; `rows` channels of `volume`
/// elements for each group.
struct Whole<'a, T> {
    vectors: Width,
    source: Planes,
    x: &'a [T],
    parts: &'a [Part],
    rows: usize,
    volume: usize,
    bias: Option<&'a [T]>,
    work: usize,
}

impl<T: Lanes> Whole<'_, T> {
    fn run(self, out: &mut [T]) {
        let Whole { vectors, source, x, parts, rows, volume, bias, work } = self;
        let g = source.geometry();
        let (batch, x_image, out_image) = (g.batch, x.len() / g.batch, out.len() / g.batch);
        let planes_image = g.groups * g.in_channels * source.channel();
        let lanes = if vectors == Width::Sixteen { 16 } else { 8 };
        // As many images together as fill several tiles, where strips are put side by side.
        let short = |part: &Part| side_by_side(rows, part.width, lanes);
        let tiles = |part: &Part| (8 * lanes / part.width).div_ceil(part.strips.len().max(1));
        let together = parts.iter().filter(|part| short(part)).map(tiles).max().unwrap_or(1).clamp(1, batch);
        let out = Shared::new(out);
        let images = |units: Range<usize>, channels: Range<usize>| {
            with_scratch(|[planes, wide, panel]| {
                let planes = planes.room(together * planes_image + SLACK);
                planes.fill(0.0);
                for first in units.map(|unit| unit * together) {
                    let count = together.min(batch - first);
                    for (image, planes) in (first..first + count).zip(planes.chunks_exact_mut(planes_image)) {
                        source.fill(&x[image * x_image..(image + 1) * x_image], planes, source.channel(), wide);
                    }
                    for part in parts {
                        let strips: Vec<Strip> = (0..count)
                            .flat_map(|i| {
                                part.strips.iter().map(move |strip| strip.of_image(i, planes_image, out_image))
                            })
                            .collect();
                        for group in 0..g.groups {
                            let done = simd::run_with(
                                vectors,
                                Strips {
                                    planes: &planes[group * g.in_channels * source.channel()..],
                                    offsets: &part.offsets,
                                    weights: &part.weights.numbers()[group * part.group..],
                                    channels: channels.clone(),
                                    strips: &strips,
                                    width: part.width,
                                    step: part.step,
                                    bias: bias.map(|bias| &bias[group * rows..(group + 1) * rows]),
                                    out,
                                    start: first * out_image + group * rows * volume,
                                    channel: volume,
                                    dense: part.dense,
                                    panel: &mut *panel,
                                },
                            );
                            assert!(done.is_ok(), "a width that the machine has");
                        }
                    }
                }
            });
        };
        let units = batch.div_ceil(together);
        if units > 1 {
            threads::split(units, 1, work, |units| images(units, 0..rows));
        } else {
            threads::split(rows, TILE_ROWS * 3, work, |channels| images(0..1, channels));
        }
    }
}

/// See [`forward`](super::forward).
pub(super) fn forward<T: Lanes>(vectors: Width, g: &Geometry, x: &[T], weight: &[T], bias: Option<&[T]>) -> Vec<T> {
    let mut out = take(g.sizes()[2]);
    if out.is_empty() {
        return out;
    }
    let source = Planes::new(g);
    let rows = (0..g.output[0]).flat_map(|d| (0..g.output[1]).map(move |h| [d, h, 0]));
    let strips = rows.map(|at| Strip { from: place(at, source.size), image: 0, to: place(at, g.output) }).collect();
    let (offsets, width) = (source.offsets(source.channel()), g.output[2]);
    let mut part = Part { offsets, weights: Scratch::default(), group: 0, strips, width, step: 1, dense: true };
    part.pack(vectors, g, g.out_channels, weight, From::Rows);
    let (rows, volume, work) = (g.out_channels, g.out_volume(), g.work());
    Whole { vectors, source, x, parts: &[part], rows, volume, bias, work }.run(&mut out);
    out
}

/// See [`input_gradient`](super::input_gradient). The pixels of one phase are a convolution, of stride 1, of the gradient
/// with those taps that fall on the phase.
pub(super) fn input_gradient<T: Lanes>(
    vectors: Width,
    g: &Geometry,
    grad: &[T],
    weight: &[T],
    bias: Option<&[T]>,
) -> Vec<T> {
    let mut out = zeros(g.sizes()[0]);
    if out.is_empty() {
        return out;
    }
    let planes = Planes::new(g);
    let reach = planes.reach;
    // The gradient, padded on both sides as far as taps reach.
    let source = Planes::new(&Geometry {
        in_channels: g.out_channels,
        out_channels: g.in_channels,
        input: g.output,
        output: std::array::from_fn(|a| g.output[a] + reach[a]),
        kernel: reach.map(|reach| reach + 1),
        stride: [1; 3],
        dilation: [1; 3],
        before: reach,
        ..*g
    });
    let mut parts = Vec::new();
    let mut covered = 0;
    for number in 0..g.stride.iter().product() {
        let phase = [number / (g.stride[1] * g.stride[2]), number / g.stride[2] % g.stride[1], number % g.stride[2]];
        let [(ds, d0), (hs, h0), (ws, w0)] = std::array::from_fn(|a| planes.pixels(a, phase[a]));
        let (chosen, taps): (Vec<usize>, Vec<_>) =
            planes.taps().enumerate().filter(|(_, tap)| tap.phase == phase).unzip();
        let offset = |shift: [usize; 3]| place(std::array::from_fn(|a| reach[a] - shift[a]), source.size);
        let offsets = (0..g.out_channels).flat_map(|o| taps.iter().map(move |tap| (o, tap.shift)));
        let offsets: Vec<usize> = offsets.map(|(o, shift)| o * source.channel() + offset(shift)).collect();
        let (width, step) = (ws.len(), g.stride[2]);
        let strips: Vec<Strip> = ds
            .enumerate()
            .flat_map(|(i, d)| hs.clone().enumerate().map(move |(j, h)| (i, d, j, h)))
            .map(|(i, d, j, h)| Strip {
                from: place([d, h, ws.start], source.size),
                image: 0,
                to: place([d0 + i * g.stride[0], h0 + j * g.stride[1], w0], g.input),
            })
            .collect();
        if width == 0 || strips.is_empty() {
            continue;
        }
        covered += strips.len() * width;
        let dense = strips.len() * width == g.in_volume();
        let mut part = Part { offsets, weights: Scratch::default(), group: 0, strips, width, step, dense };
        part.pack(vectors, g, g.in_channels, weight, |weight| match chosen.len() == g.taps() {
            true => From::Runs { weight, taps: g.taps() },
            false => From::Some { weight, taps: g.taps(), chosen: &chosen },
        });
        parts.push(part);
    }
    let volume = g.in_volume();
    if let Some(bias) = bias
        && covered < volume
    {
        // What no output reads is the bias alone.
        for (channel, out) in out.chunks_exact_mut(volume).enumerate() {
            out.fill(bias[channel % bias.len()]);
        }
    }
    let (rows, work) = (g.in_channels, g.work());
    Whole { vectors, source, x: grad, parts: &parts, rows, volume, bias, work }.run(&mut out);
    out
}
