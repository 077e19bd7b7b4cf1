//! Sizes of a convolution, and indices of three axes.

/// Sizes of one convolution. Missing spatial axes have length 1.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    /// Number of images.
    pub batch: usize,
    /// Number of groups of channels.
    pub groups: usize,
    /// Input channels per group.
    pub in_channels: usize,
    /// Output channels per group.
    pub out_channels: usize,
    /// Lengths of the axes of the input.
    pub input: [usize; 3],
    /// Lengths of the axes of the output.
    pub output: [usize; 3],
    /// Taps along each axis.
    pub kernel: [usize; 3],
    /// Distance of neighbouring outputs along each axis.
    pub stride: [usize; 3],
    /// Distance of neighbouring taps along each axis.
    pub dilation: [usize; 3],
    /// Padding before each axis; the padding after it follows from the sizes.
    pub before: [usize; 3],
}

impl Geometry {
    /// Returns the number of elements of a channel of the input.
    pub fn in_volume(&self) -> usize {
        self.input.iter().product()
    }

    /// Returns the number of elements of a channel of the output.
    pub fn out_volume(&self) -> usize {
        self.output.iter().product()
    }

    /// Returns the number of taps.
    pub fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Returns the number of elements of one patch: rows of the im2col matrix.
    pub fn patch(&self) -> usize {
        self.in_channels * self.taps()
    }

    /// Returns whether a padded channel, of images or of gradients, would be far larger than its part of the im2col
    /// matrix, because taps or outputs are far apart.
    pub fn is_sparse(&self) -> bool {
        let volume = |length: &dyn Fn(usize) -> usize| (0..3).map(length).fold(1, usize::saturating_mul);
        let reach = |a: usize| (self.kernel[a] - 1) * self.dilation[a];
        let image = volume(&|a| (self.output[a] * self.stride[a]).saturating_add(reach(a)));
        let gradient = volume(&|a| self.output[a].saturating_add(2 * (reach(a) / self.stride[a])));
        image.max(gradient) > (64 * self.taps()).saturating_mul(self.out_volume())
    }

    /// Returns the multiply-adds of one convolution.
    pub fn work(&self) -> usize {
        self.batch * self.groups * self.out_channels * self.patch() * self.out_volume()
    }

    /// Returns the numbers of elements of input, weight and output, over all groups.
    pub fn sizes(&self) -> [usize; 3] {
        [
            self.batch * self.groups * self.in_channels * self.in_volume(),
            self.groups * self.out_channels * self.patch(),
            self.batch * self.groups * self.out_channels * self.out_volume(),
        ]
    }
}

/// Returns three numbers, one per axis.
pub(super) fn each(f: impl Fn(usize) -> usize) -> [usize; 3] {
    std::array::from_fn(f)
}

/// Returns the row-major index of `[a, b, c]` in a box of `size`.
pub(super) fn index(at: [usize; 3], size: [usize; 3]) -> usize {
    (at[0] * size[1] + at[1]) * size[2] + at[2]
}

/// Iterates over all positions of a box of `size` in row-major order.
pub(super) fn positions(size: [usize; 3]) -> impl Iterator<Item = [usize; 3]> {
    let all = size.iter().product::<usize>();
    (0..all).map(move |i| [i / (size[1] * size[2]), i / size[2] % size[1], i % size[2]])
}
