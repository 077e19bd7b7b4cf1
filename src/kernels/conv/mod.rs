//! Convolutions over up to three spatial axes: the convolution and its two gradients. A transposed convolution is the
//! input's gradient of a convolution, so it needs nothing more.
//!
//! With vectors, no matrix of columns is made: images are laid out with their padding ([`planes`]), and the numbers of that
//! matrix are read there. Vectors are filled by channels of the result where there are many ([`channels`]), and else by
//! outputs ([`strips`]). Where there are no vectors, and for f64, [`portable`] makes the matrix and multiplies.

mod channels;
mod gradient;
mod planes;
mod portable;
mod strips;
mod weights;
mod windows;

use half::{bf16, f16};

use super::{
    buffers::zeros,
    finite::all_finite,
    gemm::Gemm,
    simd::{self, Width},
};

/// The sizes of one convolution. Spatial axes that do not exist have length 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    pub batch: usize,
    pub groups: usize,
    /// Channels of one group.
    pub in_channels: usize,
    /// Channels of one group.
    pub out_channels: usize,
    pub input: [usize; 3],
    pub output: [usize; 3],
    pub kernel: [usize; 3],
    pub stride: [usize; 3],
    pub dilation: [usize; 3],
    /// Padding before each axis; what is behind follows from the sizes.
    pub before: [usize; 3],
}

impl Geometry {
    fn in_volume(&self) -> usize {
        self.input.iter().product()
    }

    fn out_volume(&self) -> usize {
        self.output.iter().product()
    }

    fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Elements of one patch: rows of the matrix of columns.
    fn patch(&self) -> usize {
        self.in_channels * self.taps()
    }

    /// Multiplications of one convolution.
    pub fn work(&self) -> usize {
        self.batch * self.groups * self.out_channels * self.patch() * self.out_volume()
    }

    /// Elements of input, weight and output, all groups together.
    pub fn sizes(&self) -> [usize; 3] {
        [
            self.batch * self.groups * self.in_channels * self.in_volume(),
            self.groups * self.out_channels * self.patch(),
            self.batch * self.groups * self.out_channels * self.out_volume(),
        ]
    }
}

/// What stands side by side in vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Across {
    Channels,
    Outputs,
}

impl Across {
    /// What is faster: so many channels, or outputs that reach `other` percent of the machine's multiply-adds. What each way
    /// reaches was measured.
    fn faster(vectors: Width, channels: usize, other: usize) -> Across {
        let lanes = lanes(vectors);
        // One vector of columns leaves the multiply-adds waiting for numbers.
        let (reached, whole) = if channels <= lanes { (65, lanes) } else { (90, 2 * lanes) };
        match reached * channels / channels.next_multiple_of(whole).max(1) > other {
            true => Across::Channels,
            false => Across::Outputs,
        }
    }

    /// For sums of windows whose outputs come in runs of `length`.
    fn of_windows(vectors: Width, channels: usize, length: usize) -> (Width, Across) {
        let length_in_vectors = length.next_multiple_of(lanes(vectors)).max(1);
        (vectors, Across::faster(vectors, channels, 85 * length / length_in_vectors))
    }

    /// For the gradient of the weight, where rows are multiplied with their padding: 0 times what is not finite is not 0.
    fn of_rows<T: Convolve>(vectors: Width, g: &Geometry, x: &[T]) -> (Width, Across) {
        let filled = 60 * g.out_volume() / planes::Planes::dealt(g).plane().max(1);
        match Across::faster(vectors, g.out_channels, filled) {
            Across::Outputs if all_finite(x) => (vectors, Across::Outputs),
            _ => (vectors, Across::Channels),
        }
    }
}

fn lanes(vectors: Width) -> usize {
    if vectors == Width::Sixteen { 16 } else { 8 }
}

/// A type whose arrays are convolved.
pub(crate) trait Convolve: Gemm {
    // With vectors; only called where there are any.
    fn forward(g: &Geometry, x: &[Self], weight: &[Self], bias: Option<&[Self]>) -> Vec<Self>;
    fn input_gradient(g: &Geometry, grad: &[Self], weight: &[Self], bias: Option<&[Self]>) -> Vec<Self>;
    fn weight_gradient(g: &Geometry, x: &[Self], grad: &[Self]) -> Vec<Self>;
}

macro_rules! convolve {
    ($($t:ty),*) => { $(
        impl Convolve for $t {
            fn forward(g: &Geometry, x: &[Self], weight: &[Self], bias: Option<&[Self]>) -> Vec<Self> {
                let way = Across::of_windows(simd::widest(), g.out_channels, g.output[2]);
                windows::forward(way, g, x, weight, bias)
            }
            fn input_gradient(g: &Geometry, grad: &[Self], weight: &[Self], bias: Option<&[Self]>) -> Vec<Self> {
                let way = Across::of_windows(simd::widest(), g.in_channels, g.input[2].div_ceil(g.stride[2]));
                windows::input_gradient(way, g, grad, weight, bias)
            }
            fn weight_gradient(g: &Geometry, x: &[Self], grad: &[Self]) -> Vec<Self> {
                gradient::of_weight(Across::of_rows(simd::widest(), g, x), g, x, grad)
            }
        }
    )* };
}
convolve!(f32, f16, bf16);

impl Convolve for f64 {
    fn forward(g: &Geometry, x: &[Self], weight: &[Self], bias: Option<&[Self]>) -> Vec<Self> {
        portable::forward(g, x, weight, bias)
    }
    fn input_gradient(g: &Geometry, grad: &[Self], weight: &[Self], bias: Option<&[Self]>) -> Vec<Self> {
        portable::input_gradient(g, grad, weight, bias)
    }
    fn weight_gradient(g: &Geometry, x: &[Self], grad: &[Self]) -> Vec<Self> {
        portable::weight_gradient(g, x, grad)
    }
}

/// A result in which no product is added up, because there are no channels or no images: zeros, and the bias of each of its
/// channels of `volume` elements.
fn bias_alone<T: Convolve>(len: usize, volume: usize, bias: Option<&[T]>) -> Vec<T> {
    let mut out = zeros(len);
    fill_with_bias(&mut out, volume, bias);
    out
}

/// Sets channels of `volume` elements to their bias.
fn fill_with_bias<T: Copy>(out: &mut [T], volume: usize, bias: Option<&[T]>) {
    let Some(bias) = bias else { return };
    for (channel, out) in out.chunks_exact_mut(volume).enumerate() {
        out.fill(bias[channel % bias.len()]);
    }
}

/// The convolution `[n, groups * in, input] -> [n, groups * out, output]` with a weight `[groups * out, in, kernel]`.
pub(crate) fn forward<T: Convolve>(g: &Geometry, x: &[T], weight: &[T], bias: Option<&[T]>) -> Vec<T> {
    assert_eq!([x.len(), weight.len()], g.sizes()[..2], "arrays of the sizes of the convolution");
    assert!(bias.is_none_or(|bias| bias.len() == g.groups * g.out_channels), "one number for each channel");
    match simd::widest() {
        _ if g.work() == 0 => bias_alone(g.sizes()[2], g.out_volume(), bias),
        Width::One => portable::forward(g, x, weight, bias),
        _ => T::forward(g, x, weight, bias),
    }
}

/// The gradient of [`forward`] with respect to its input, and so the transposed convolution of `grad`, which then has a
/// bias for its `groups * in` channels.
pub(crate) fn input_gradient<T: Convolve>(g: &Geometry, grad: &[T], weight: &[T], bias: Option<&[T]>) -> Vec<T> {
    assert_eq!([weight.len(), grad.len()], g.sizes()[1..], "arrays of the sizes of the convolution");
    assert!(bias.is_none_or(|bias| bias.len() == g.groups * g.in_channels), "one number for each channel");
    match simd::widest() {
        _ if g.work() == 0 => bias_alone(g.sizes()[0], g.in_volume(), bias),
        Width::One => portable::input_gradient(g, grad, weight, bias),
        _ => T::input_gradient(g, grad, weight, bias),
    }
}

/// The gradient of [`forward`] with respect to its weight, summed over the batch in the wide dtype and rounded once.
pub(crate) fn weight_gradient<T: Convolve>(g: &Geometry, x: &[T], grad: &[T]) -> Vec<T> {
    assert_eq!([x.len(), grad.len()], [g.sizes()[0], g.sizes()[2]], "arrays of the sizes of the convolution");
    match simd::widest() {
        _ if g.work() == 0 => zeros(g.sizes()[1]),
        Width::One => portable::weight_gradient(g, x, grad),
        _ => T::weight_gradient(g, x, grad),
    }
}

#[cfg(test)]
mod tests;
