//! `x · wᵀ + b`, and a bias added to channels.

use precast_kernels::{
    float::{Float, Real},
    gemm::{Added, Gemm, Layout, Products, products},
    memory::{Pooled, uninit_vec},
    reduce,
};

use crate::{
    Op, Tensor,
    error::{Error, Result},
    ops::{
        by_float, call, dispatch, elements,
        linear::{matmul::one_product, quantized::Quantized},
        one_float_dtype,
    },
    tensor::{Array, Forward, Stored},
};

/// Sums each channel of `x`, viewed as `[outer, channels, inner]`, over outer and inner, rounded once.
pub(in crate::ops) fn channel_sums(x: &Tensor, (outer, channels, inner): (usize, usize, usize)) -> Result<Array> {
    fn go<T: Stored + Float>(x: &Tensor, outer: usize, channels: usize, inner: usize) -> Pooled<T> {
        let x = elements::<T>(x);
        if inner == 1 {
            return T::narrow_vec(reduce::sum_middle::<T>(&x, 1, outer, channels));
        }
        let (mut sums, mut wide) = (vec![0.0; channels], Pooled::uninit(inner));
        for (i, x) in x.chunks_exact(inner.max(1)).enumerate() {
            T::widen_into(x, &mut wide);
            sums[i % channels] += reduce::sum(&wide).as_f64();
        }
        sums.into_iter().map(|sum| T::narrow(T::Wide::of(sum))).collect()
    }
    by_float!(x, T => Array::from_vec(go::<T>(x, outer, channels, inner), &[channels]))
}

/// Adds `bias[c]` to every element of channel c of `[outer, channels, inner]`.
pub(in crate::ops) fn add_to_channels<R: Float<Wide = R> + std::ops::AddAssign>(x: &mut [R], bias: &[R], inner: usize) {
    if inner > 0 {
        for (i, channel) in x.chunks_exact_mut(inner).enumerate() {
            channel.iter_mut().for_each(|x| *x += bias[i % bias.len()]);
        }
    }
}

fn linear<T: Stored + Gemm>(inputs: &[Tensor], rows: usize, width: usize, out: usize) -> Pooled<T> {
    let (x, weight) = (elements::<T>(&inputs[0]), elements::<T>(&inputs[1]));
    let bias = inputs.get(2).map(elements::<T>);
    let added = bias.as_deref().map_or(Added::Nothing, Added::ToColumns);
    let mut y = uninit_vec(rows * out);
    let (layout, mkn, terms) = (Layout::NT, (rows, width, out), &[vec![(0, 0)]]);
    products(&Products { layout, mkn, a: &x, b: &weight, terms, added }, &mut y);
    y
}

fn bias_add<T: Stored + Float>(x: &Tensor, bias: &Tensor, inner: usize) -> Pooled<T> {
    let mut y = T::widen_slice(&elements::<T>(x)).into_buffer();
    add_to_channels(&mut y, &T::widen_slice(&elements::<T>(bias)), inner);
    T::narrow_vec(y)
}

impl Tensor {
    /// Computes `x · weightᵀ + bias` for every vector along the last axis: `[..., in]` with a weight `[out, in]` and a
    /// bias `[out]` gives `[..., out]`. Product and bias are rounded together, once.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not fit,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when dtypes differ and no policy casts them.
    pub fn linear(&self, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let inputs: Vec<&Tensor> = [Some(self), Some(weight), bias].into_iter().flatten().collect();
        dispatch(call!(Op::Linear, &inputs), |inputs| {
            one_float_dtype(inputs)?;
            let (x, weight) = (&inputs[0], &inputs[1]);
            let (Some((&width, leading)), &[out, weight_width]) = (x.shape().split_last(), weight.shape()) else {
                return Err(Error::shape(format!(
                    "needs [..., in] and a weight [out, in], got {:?} and {:?}",
                    x.shape(),
                    weight.shape()
                )));
            };
            if width != weight_width {
                return Err(Error::shape(format!(
                    "{:?} and the weight {:?} of [out, in] do not fit: {width} features meet {weight_width}",
                    x.shape(),
                    weight.shape()
                )));
            }
            if let Some(bias) = inputs.get(2)
                && bias.shape() != [out]
            {
                return Err(Error::shape(format!(
                    "the bias is {:?}, the weight {:?} needs [{out}]",
                    bias.shape(),
                    weight.shape()
                )));
            }
            let rows: usize = leading.iter().product();
            if let Some(quantized) = Quantized::next(inputs)? {
                return quantized.linear(inputs, (rows, width, out));
            }
            let value =
                by_float!(x, T => Array::from_vec(linear::<T>(inputs, rows, width, out), &[leading, &[out]].concat()))?;
            let (shape, with_bias) = (x.shape().to_vec(), inputs.len() == 3);
            Ok(Forward::new(value, inputs[..2].to_vec(), move |b| {
                let wanted = |i: usize, grad: &dyn Fn() -> Result<Array>| {
                    b.needs[i].then(|| grad().map(Tensor::from_array)).transpose()
                };
                let mut grads = vec![
                    wanted(0, &|| one_product(Layout::NN, (rows, out, width), b.grad, &b.restored(1), &shape))?,
                    wanted(1, &|| one_product(Layout::TN, (out, rows, width), b.grad, &b.restored(0), &[out, width]))?,
                ];
                if with_bias {
                    grads.push(wanted(2, &|| channel_sums(b.grad, (rows, out, 1)))?);
                }
                Ok(grads)
            }))
        })
    }

    /// Adds `bias[c]` to channel c: `[n, c, ...]` with a bias `[c]`.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when axis 1 differs in length from the bias,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when dtypes differ and no policy casts them.
    pub fn bias_add(&self, bias: &Tensor) -> Result<Tensor> {
        dispatch(call!(Op::BiasAdd, &[self, bias]), |inputs| {
            one_float_dtype(inputs)?;
            let (x, bias) = (&inputs[0], &inputs[1]);
            let (&[n, channels, ref spatial @ ..], &[len]) = (x.shape(), bias.shape()) else {
                return Err(Error::shape(format!(
                    "needs [n, c, ...] and a bias [c], got {:?} and {:?}",
                    x.shape(),
                    bias.shape()
                )));
            };
            if channels != len {
                return Err(Error::shape(format!(
                    "{:?} and the bias {:?} do not fit: {channels} channels meet {len}",
                    x.shape(),
                    bias.shape()
                )));
            }
            let inner: usize = spatial.iter().product();
            let value = by_float!(x, T => Array::from_vec(bias_add::<T>(x, bias, inner), x.shape()))?;
            Ok(Forward::new(value, vec![], move |b| {
                let sums = b.needs[1].then(|| channel_sums(b.grad, (n, channels, inner)).map(Tensor::from_array));
                Ok(vec![Some(b.grad.clone()), sums.transpose()?])
            }))
        })
    }
}
