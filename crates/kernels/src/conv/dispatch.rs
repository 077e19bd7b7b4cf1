//! Choice of the kernel for a convolution or a gradient of one.

use half::{bf16, f16};

use super::{
    by_products, geometry::Geometry, im2col, patch_terms, pointwise, vector_axis::VectorAxis, weight_grad, windows,
};
use crate::{
    gemm::Gemm,
    memory::{Pooled, zeros},
    simd,
    simd::Width,
};

/// Element type of arrays that can be convolved.
pub trait Convolve: Gemm {
    // These three require vectors.
    /// Computes a convolution.
    fn forward(g: &Geometry, x: &[Self], weight: &[Self], bias: Option<&[Self]>) -> Pooled<Self>;
    /// Computes the gradient of the input, which is a transposed convolution.
    fn input_gradient(g: &Geometry, grad: &[Self], weight: &[Self], bias: Option<&[Self]>) -> Pooled<Self>;
    /// Computes the gradient of the weight.
    fn weight_gradient(g: &Geometry, x: &[Self], grad: &[Self]) -> Pooled<Self>;
}

macro_rules! convolve {
    ($($t:ty),*) => { $(
        impl Convolve for $t {
            fn forward(g: &Geometry, x: &[Self], weight: &[Self], bias: Option<&[Self]>) -> Pooled<Self> {
                by_vectors::forward(g, x, weight, bias, || None)
            }
            fn input_gradient(g: &Geometry, grad: &[Self], weight: &[Self], bias: Option<&[Self]>) -> Pooled<Self> {
                by_vectors::input_gradient(g, grad, weight, bias, || None)
            }
            fn weight_gradient(g: &Geometry, x: &[Self], grad: &[Self]) -> Pooled<Self> {
                by_vectors::weight_gradient(g, x, grad, || None)
            }
        }
    )* };
}
convolve!(f32, f16);

impl Convolve for bf16 {
    fn forward(g: &Geometry, x: &[bf16], weight: &[bf16], bias: Option<&[bf16]>) -> Pooled<bf16> {
        by_vectors::forward(g, x, weight, bias, || by_products::forward(g, x, weight, bias))
    }
    fn input_gradient(g: &Geometry, grad: &[bf16], weight: &[bf16], bias: Option<&[bf16]>) -> Pooled<bf16> {
        by_vectors::input_gradient(g, grad, weight, bias, || by_products::input_gradient(g, grad, weight, bias))
    }
    fn weight_gradient(g: &Geometry, x: &[bf16], grad: &[bf16]) -> Pooled<bf16> {
        let by_tiles = patch_terms::weight_gradient(g, x, grad);
        by_tiles.unwrap_or_else(|| by_vectors::weight_gradient(g, x, grad, || weight_grad::by_pairs(g, x, grad)))
    }
}

/// Kernels with vectors: the product of a convolution of one tap, the direct kernel of a depthwise one, else `pairs`, else
/// multiplication in f32.
mod by_vectors {
    use super::{
        super::{depthwise, depthwise_weight, windows},
        Geometry, VectorAxis, pointwise, simd, weight_grad,
    };
    use crate::{gemm::pairs::Multiply, memory::Pooled};

    pub fn forward<T: Multiply>(
        g: &Geometry,
        x: &[T],
        weight: &[T],
        bias: Option<&[T]>,
        pairs: impl FnOnce() -> Option<Pooled<T>>,
    ) -> Pooled<T> {
        let special = pointwise::forward(g, x, weight, bias).or_else(|| depthwise::forward(g, x, weight, bias));
        special.or_else(pairs).unwrap_or_else(|| {
            let choice = VectorAxis::of_windows(simd::widest(), g.out_channels, g.output[2]);
            windows::forward(choice, g, x, weight, bias)
        })
    }

    pub fn input_gradient<T: Multiply>(
        g: &Geometry,
        grad: &[T],
        weight: &[T],
        bias: Option<&[T]>,
        pairs: impl FnOnce() -> Option<Pooled<T>>,
    ) -> Pooled<T> {
        let special = pointwise::input_gradient(g, grad, weight, bias)
            .or_else(|| depthwise::input_gradient(g, grad, weight, bias));
        special.or_else(pairs).unwrap_or_else(|| {
            let choice = VectorAxis::of_windows(simd::widest(), g.in_channels, g.input[2].div_ceil(g.stride[2]));
            windows::input_gradient(choice, g, grad, weight, bias)
        })
    }

    pub fn weight_gradient<T: Multiply>(
        g: &Geometry,
        x: &[T],
        grad: &[T],
        pairs: impl FnOnce() -> Option<Pooled<T>>,
    ) -> Pooled<T> {
        if let Some(gradient) = depthwise_weight::weight_gradient(g, x, grad) {
            return gradient;
        }
        let choice @ (_, axis) = VectorAxis::of_weight(simd::widest(), g, x);
        // By outputs, sums have another order.
        let by_channels = || pointwise::weight_gradient(g, x, grad).or_else(pairs);
        let product = (axis == VectorAxis::Channels).then(by_channels).flatten();
        product.unwrap_or_else(|| weight_grad::weight_gradient(choice, g, x, grad))
    }
}

impl Convolve for f64 {
    fn forward(g: &Geometry, x: &[Self], weight: &[Self], bias: Option<&[Self]>) -> Pooled<Self> {
        im2col::forward(g, x, weight, bias)
    }
    fn input_gradient(g: &Geometry, grad: &[Self], weight: &[Self], bias: Option<&[Self]>) -> Pooled<Self> {
        im2col::input_gradient(g, grad, weight, bias)
    }
    fn weight_gradient(g: &Geometry, x: &[Self], grad: &[Self]) -> Pooled<Self> {
        im2col::weight_gradient(g, x, grad)
    }
}

/// Returns the result of a convolution without channels or images: the bias alone, for channels of `volume` elements.
fn bias_alone<T: Convolve>(len: usize, volume: usize, bias: Option<&[T]>) -> Pooled<T> {
    let mut out = zeros(len);
    windows::fill_with_bias(&mut out, volume, bias);
    out
}

/// Computes the convolution `[n, groups * in, input] -> [n, groups * out, output]` with a weight
/// `[groups * out, in, kernel]`.
pub fn forward<T: Convolve>(g: &Geometry, x: &[T], weight: &[T], bias: Option<&[T]>) -> Pooled<T> {
    assert_eq!([x.len(), weight.len()], g.sizes()[..2], "arrays of the sizes of the convolution");
    assert!(bias.is_none_or(|bias| bias.len() == g.groups * g.out_channels), "one number for each channel");
    match simd::widest() {
        _ if g.work() == 0 => bias_alone(g.sizes()[2], g.out_volume(), bias),
        width if width == Width::One || g.is_sparse() => im2col::forward(g, x, weight, bias),
        _ => T::forward(g, x, weight, bias),
    }
}

/// Computes the gradient of [`forward`] with respect to its input. This is also the transposed convolution of `grad`,
/// which then has a bias for its `groups * in` channels.
pub fn input_gradient<T: Convolve>(g: &Geometry, grad: &[T], weight: &[T], bias: Option<&[T]>) -> Pooled<T> {
    assert_eq!([weight.len(), grad.len()], g.sizes()[1..], "arrays of the sizes of the convolution");
    assert!(bias.is_none_or(|bias| bias.len() == g.groups * g.in_channels), "one number for each channel");
    match simd::widest() {
        _ if g.work() == 0 => bias_alone(g.sizes()[0], g.in_volume(), bias),
        width if width == Width::One || g.is_sparse() => im2col::input_gradient(g, grad, weight, bias),
        _ => T::input_gradient(g, grad, weight, bias),
    }
}

/// Computes the gradient of [`forward`] with respect to its weight, summed over the batch in the wide dtype and rounded
/// once.
pub fn weight_gradient<T: Convolve>(g: &Geometry, x: &[T], grad: &[T]) -> Pooled<T> {
    assert_eq!([x.len(), grad.len()], [g.sizes()[0], g.sizes()[2]], "arrays of the sizes of the convolution");
    match simd::widest() {
        _ if g.work() == 0 => zeros(g.sizes()[1]),
        width if width == Width::One || g.is_sparse() => im2col::weight_gradient(g, x, grad),
        _ => T::weight_gradient(g, x, grad),
    }
}
