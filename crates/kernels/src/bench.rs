//! Kernels of one dtype, for benches and tests.

use std::sync::atomic::Ordering;

use half::{bf16, f16};

use super::{
    cast::Convert,
    conv::{self, Geometry},
    limits, threads,
};

/// Returns the name of the vector instructions used by the kernels.
pub fn vectors() -> &'static str {
    limits::vectors()
}

/// Returns how often this process has split work among threads.
pub fn shared() -> usize {
    threads::SHARED.load(Ordering::Relaxed)
}

macro_rules! casts {
    ($($name:ident: $from:ty => $to:ty;)*) => { $(
        /// Converts each element, rounded once.
        pub fn $name(from: &[$from], to: &mut [$to]) {
            Convert::convert(from, to);
        }
    )* };
}
casts! {
    f32_to_f16: f32 => f16;
    f32_to_bf16: f32 => bf16;
    f16_to_f32: f16 => f32;
    bf16_to_f32: bf16 => f32;
}

/// Batch, groups, and channels of input and output of a convolution, and for each of three axes: length, kernel,
/// stride, dilation, padding on both sides.
#[derive(Debug)]
pub struct Convolution {
    /// Batch, groups, input channels, output channels.
    pub sizes: [usize; 4],
    /// Length, kernel, stride, dilation and padding of each axis.
    pub axes: [[usize; 5]; 3],
}

impl Convolution {
    fn geometry(&self) -> Geometry {
        let [batch, groups, in_channels, out_channels] = self.sizes;
        let of = |i: usize| self.axes.map(|axis| axis[i]);
        let reach = |[_, kernel, _, dilation, _]: [usize; 5]| (kernel - 1) * dilation + 1;
        let output = self.axes.map(|axis| (axis[0] + 2 * axis[4] - reach(axis)) / axis[2] + 1);
        let (in_channels, out_channels) = (in_channels / groups, out_channels / groups);
        let (input, kernel, stride, dilation, before) = (of(0), of(1), of(2), of(3), of(4));
        Geometry { batch, groups, in_channels, out_channels, input, output, kernel, stride, dilation, before }
    }

    /// Returns the numbers of elements of input, weight and output.
    pub fn elements(&self) -> [usize; 3] {
        self.geometry().sizes()
    }

    /// Returns the number of floating-point operations.
    pub fn flops(&self) -> usize {
        2 * self.geometry().work()
    }
}

macro_rules! convolutions {
    ($($name:ident: $t:ty;)*) => { $(
        /// Computes the convolution (0), or its gradient with respect to the input (1) or the weight (2).
        pub fn $name(
            which: usize,
            c: &Convolution,
            x: &[$t],
            weight: &[$t],
            grad: &[$t],
        ) -> impl std::ops::Deref<Target = [$t]> {
            match which {
                0 => conv::forward(&c.geometry(), x, weight, None),
                1 => conv::input_gradient(&c.geometry(), grad, weight, None),
                _ => conv::weight_gradient(&c.geometry(), x, grad),
            }
        }
    )* };
}
convolutions! {
    convolution_f32: f32;
    convolution_f16: f16;
    convolution_bf16: bf16;
}
