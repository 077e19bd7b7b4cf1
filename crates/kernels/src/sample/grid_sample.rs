//! Sampling of an image at the positions of a grid.

use crate::{
    float::Real,
    memory::{Pooled, zeros},
};

/// Treatment of positions between elements or outside the image.
#[derive(Clone, Copy)]
pub struct Sampling {
    /// `true` to read only the nearest element, instead of a weighted mean of the neighbors.
    pub nearest: bool,
    /// `true` to move positions outside to the border, instead of reading 0.
    pub border: bool,
    /// `true` if -1 and 1 are the centers of the outermost elements, instead of their outer edges.
    pub align_corners: bool,
}

/// Sizes: `x [n, c, from]` and `grid [n, positions, axes]` give `[n, c, positions]`.
#[derive(Clone, Copy)]
pub struct Sizes {
    /// Number of images.
    pub n: usize,
    /// Number of channels.
    pub c: usize,
    /// Lengths of the axes of an image.
    pub from: [usize; 3],
    /// Positions that are read in each image.
    pub positions: usize,
    /// Number of coordinates of each position, the last axis of the image first.
    pub axes: usize,
}

/// An element of an axis, its weight, and the derivative of the weight with respect to the coordinate.
#[derive(Clone, Copy)]
struct Tap<R> {
    at: usize,
    weight: R,
    slope: R,
}

impl Sampling {
    /// Returns the elements of an axis that are read at a coordinate. The image spans -1 to 1.
    fn taps<R: Real>(self, coordinate: R, len: usize) -> [Option<Tap<R>>; 2] {
        if coordinate.is_nan() {
            return [Some(Tap { at: 0, weight: coordinate, slope: coordinate }), None];
        }
        let (size, last, half) = (R::of(len as f64), R::of(len as f64 - 1.0), R::of(0.5));
        let (mut place, mut slope) = match self.align_corners {
            true => ((coordinate + R::one()) * half * last, last * half),
            false => (((coordinate + R::one()) * size - R::one()) * half, size * half),
        };
        if self.border && (place <= R::zero() || place >= last) {
            (place, slope) = (place.max(R::zero()).min(last), R::zero());
        }
        let tap = |at: R, weight, slope| {
            let inside = at >= R::zero() && at <= last;
            at.to_usize().filter(|_| inside).map(|at| Tap { at, weight, slope })
        };
        if self.nearest {
            return [tap(place.round_even(), R::one(), R::zero()), None];
        }
        let before = place.floor();
        let part = place - before;
        [tap(before, R::one() - part, -slope), tap(before + R::one(), part, slope)]
    }
}

impl Sizes {
    fn picture_len(&self) -> usize {
        self.from.iter().product()
    }

    /// Calls `f` with the sample and the position, and for each element read there its offset, its weight, and the
    /// derivative of the weight with respect to each coordinate.
    fn each_position<R: Real>(
        &self,
        grid: &[R],
        sampling: Sampling,
        mut f: impl FnMut(usize, usize, &[(usize, R, [R; 3])]),
    ) {
        let only = [Some(Tap { at: 0, weight: R::one(), slope: R::zero() }), None];
        let mut read = Vec::with_capacity(8);
        for sample in 0..self.n {
            for position in 0..self.positions {
                let coordinates = &grid[(sample * self.positions + position) * self.axes..][..self.axes];
                let taps = |axis: usize| coordinates.get(axis).map_or(only, |&x| sampling.taps(x, self.from[2 - axis]));
                let axes = [taps(0), taps(1), taps(2)];
                read.clear();
                for z in axes[2].iter().flatten() {
                    for y in axes[1].iter().flatten() {
                        for x in axes[0].iter().flatten() {
                            let offset = (z.at * self.from[1] + y.at) * self.from[2] + x.at;
                            let slopes = [
                                x.slope * y.weight * z.weight,
                                x.weight * y.slope * z.weight,
                                x.weight * y.weight * z.slope,
                            ];
                            read.push((offset, x.weight * y.weight * z.weight, slopes));
                        }
                    }
                }
                f(sample, position, &read);
            }
        }
    }
}

/// Computes the sampled image.
pub fn grid_sample<R: Real>(x: &[R], grid: &[R], sizes: &Sizes, sampling: Sampling) -> Pooled<R> {
    let (len, positions) = (sizes.picture_len(), sizes.positions);
    let mut y = zeros(sizes.n * sizes.c * positions);
    sizes.each_position(grid, sampling, |sample, position, read| {
        for channel in sample * sizes.c..(sample + 1) * sizes.c {
            let x = &x[channel * len..][..len];
            y[channel * positions + position] =
                read.iter().fold(R::zero(), |sum, &(at, weight, _)| sum + x[at] * weight);
        }
    });
    y
}

/// Computes the gradients of the image and of the grid from that of the sampled image.
pub fn grid_sample_backward<R: Real>(
    dy: &[R],
    x: &[R],
    grid: &[R],
    sizes: &Sizes,
    sampling: Sampling,
) -> (Pooled<R>, Pooled<R>) {
    let (len, positions, axes) = (sizes.picture_len(), sizes.positions, sizes.axes);
    // Any number of positions may read one element.
    let (mut dx, mut dgrid) = (Pooled::<f64>::zeros(x.len()), zeros(grid.len()));
    sizes.each_position(grid, sampling, |sample, position, read| {
        let mut sums = [0.0; 3];
        for channel in sample * sizes.c..(sample + 1) * sizes.c {
            let dy = dy[channel * positions + position];
            for &(at, weight, slopes) in read {
                dx[channel * len + at] += (dy * weight).as_f64();
                let x = x[channel * len + at];
                sums.iter_mut().zip(slopes).for_each(|(sum, slope)| *sum += (dy * x * slope).as_f64());
            }
        }
        let dgrid = &mut dgrid[(sample * positions + position) * axes..][..axes];
        dgrid.iter_mut().zip(sums).for_each(|(dgrid, sum)| *dgrid = R::of(sum));
    });
    (dx.iter().map(|&dx| R::of(dx)).collect(), dgrid)
}
