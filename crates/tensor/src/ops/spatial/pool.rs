//! Pooling over one, two or three spatial axes, channels first.

use std::{iter, ops::Range, sync::Arc};

use precast_kernels::{
    memory::{Pooled, room, uninit_vec},
    sample::{
        pool,
        windows::{AxisWindows, Windows, window_volume},
    },
};
use serde::{Deserialize, Serialize};

use crate::{
    Op, Tensor,
    error::{Error, Result},
    ops::{
        Call, by_float, call, dispatch, elements,
        spatial::windows::{Padding, checked_shape, positive_per_axis, spatial_axes},
    },
    tensor::{Array, Forward, Written},
};

/// Movement of a pooling window. Lists have one number per spatial axis; a list of one applies to all axes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct PoolOptions {
    /// Lengths of the window, at least 1.
    pub kernel: Vec<usize>,
    /// Stride of the window. Default when empty: the kernel's lengths, so that windows are adjacent.
    pub stride: Vec<usize>,
    /// Padding around the input, less than the kernel on each side. It is never the maximum.
    pub padding: Padding,
    /// `true` to keep a last window that begins inside the input and ends outside (torch's `ceil_mode`).
    pub ceil: bool,
    /// `true` when an average also divides by the padded elements. [`Padding::Same`] never does, as in TensorFlow.
    pub count_include_pad: bool,
}

precast_base::setters! {
    PoolOptions: kernel kernel: Vec<usize>, stride stride: Vec<usize>, padding padding: Padding, ceil ceil: bool,
        count_include_pad count_include_pad: bool
}

impl Default for PoolOptions {
    /// Returns windows of one element; set `kernel`.
    fn default() -> Self {
        PoolOptions { kernel: vec![1], stride: vec![], padding: Padding::Valid, ceil: false, count_include_pad: true }
    }
}

impl PoolOptions {
    /// Creates equal windows along every axis, without padding.
    pub fn new(kernel: usize, stride: usize) -> Self {
        PoolOptions { kernel: vec![kernel], stride: vec![stride], ..PoolOptions::default() }
    }
}

/// Extends the windows of up to three axes to exactly three.
fn three(axes: Vec<AxisWindows>) -> Windows {
    let mut axes = axes.into_iter().rev();
    let mut next =
        || axes.next().unwrap_or(AxisWindows { input: 1, ranges: iter::once(0..1).collect(), counts: vec![1] });
    let (w, h, d) = (next(), next(), next());
    [d, h, w]
}

fn sliding(input: &[usize], options: &PoolOptions) -> Result<Vec<AxisWindows>> {
    let axes = input.len();
    let kernel = positive_per_axis("kernel", &options.kernel, axes)?;
    let stride = if options.stride.is_empty() { &options.kernel } else { &options.stride };
    let stride = positive_per_axis("stride", stride, axes)?;
    let padding = options.padding.resolve(input, &kernel, &stride)?;
    let count_padding = options.count_include_pad && options.padding != Padding::Same;
    (0..axes)
        .map(|i| {
            let (len, k, s, (before, after)) = (input[i], kernel[i], stride[i], padding[i]);
            if before >= k || after >= k {
                return Err(Error::value(format!(
                    "the padding {padding:?} must be smaller than the kernel {kernel:?}, or windows are empty"
                )));
            }
            let Some(rest) = (len + before + after).checked_sub(k) else {
                return Err(Error::shape(format!(
                    "the window of {kernel:?} does not fit into {input:?} with the padding {padding:?}"
                )));
            };
            // With `ceil`, a window that would begin in the padding after the input is left out.
            let whole = rest / s + 1;
            let part = options.ceil && rest % s != 0 && whole * s < len + before;
            let windows = whole + usize::from(part);
            let (mut ranges, mut counts) = (room(windows), room(windows));
            for o in 0..windows {
                let (start, end) = (o * s, o * s + k);
                let range = start.saturating_sub(before)..(end - before).min(len);
                counts.push(if count_padding { end.min(len + before + after) - start } else { range.len() });
                ranges.push(range);
            }
            Ok(AxisWindows { input: len, ranges, counts })
        })
        .collect()
}

/// Returns adaptive windows: window `i` of `out` covers `floor(i * len / out)` to `ceil((i + 1) * len / out)`.
fn adaptive(input: &[usize], output: &[usize]) -> Result<Vec<AxisWindows>> {
    let output = positive_per_axis("output size", output, input.len())?;
    let axis = |(&len, out): (&usize, usize)| {
        let (mut ranges, mut counts) = (room::<Range<usize>>(out), room(out));
        ranges.extend((0..out).map(|i| i * len / out..((i + 1) * len).div_ceil(out)));
        counts.extend(ranges.iter().map(ExactSizeIterator::len));
        AxisWindows { input: len, counts, ranges }
    };
    Ok(input.iter().zip(output).map(axis).collect())
}

/// Gathers the elements at these positions of their planes: the result of a pool that selected them, for other numbers.
fn largest_of(x: &Tensor, places: &[i64], rows: [usize; 2], out: &[usize]) -> Result<Tensor> {
    let plane = |shape: &[usize]| [rows[0], rows[1], shape[2..].iter().product()];
    let places = Tensor::from_vec(places.to_vec(), &plane(out))?;
    x.reshape(&plane(x.shape()))?.gather(2, &places)?.reshape(out)
}

/// Indices packed into as few bytes as their range needs: eight, four or two per i64.
#[derive(Clone, Copy)]
struct Packed {
    bytes: usize,
}

impl Packed {
    fn below(volume: usize) -> Packed {
        Packed {
            bytes: if volume <= 1 << 8 {
                1
            } else if volume <= 1 << 16 {
                2
            } else {
                4
            },
        }
    }

    fn pack(&self, indices: &[u32]) -> Result<Tensor> {
        let mut words = uninit_vec(indices.len().div_ceil(8 / self.bytes));
        match self.bytes {
            1 => pack::<8>(indices, &mut words),
            2 => pack::<4>(indices, &mut words),
            _ => pack::<2>(indices, &mut words),
        }
        let len = words.len();
        Array::from_vec(words, &[len]).map(Tensor::from_array)
    }

    /// Returns all packed indices, possibly with a few extra at the end.
    fn unpack(&self, words: &Tensor) -> Pooled<u32> {
        let words = elements::<i64>(words);
        let mut indices = Pooled::uninit(words.len() * (8 / self.bytes));
        match self.bytes {
            1 => unpack::<8>(&words, &mut indices),
            2 => unpack::<4>(&words, &mut indices),
            _ => unpack::<2>(&words, &mut indices),
        }
        indices
    }
}

/// Packs `COUNT` indices per word; the last word may have fewer.
fn pack<const COUNT: usize>(indices: &[u32], words: &mut [i64]) {
    let word = |indices: &[u32]| {
        indices.iter().rev().fold(0u64, |word, &index| word << (64 / COUNT) | u64::from(index)) as i64
    };
    let whole = indices.chunks_exact(COUNT);
    if let (rest @ [_, ..], Some(last)) = (whole.remainder(), words.last_mut()) {
        *last = word(rest);
    }
    whole.zip(words).for_each(|(indices, to)| *to = word(indices));
}

fn unpack<const COUNT: usize>(words: &[i64], indices: &mut [u32]) {
    for (to, &word) in indices.chunks_exact_mut(COUNT).zip(words) {
        for (i, to) in to.iter_mut().enumerate() {
            *to = (word as u64 >> (i * 64 / COUNT) & (u64::MAX >> (64 - 64 / COUNT))) as u32;
        }
    }
}

impl Tensor {
    fn pool(
        call: Call<'_>,
        axes: usize,
        windows: impl FnOnce(&[usize]) -> Result<Vec<AxisWindows>>,
        largest: bool,
    ) -> Result<Tensor> {
        dispatch(call, |inputs| {
            let x = &inputs[0];
            let shape = x.shape().to_vec();
            let windows = windows(spatial_axes(&shape, axes)?)?;
            let lengths: Vec<usize> = windows.iter().map(|axis| axis.ranges.len()).collect();
            let (out, planes) = (checked_shape([&shape[..2], &lengths].concat())?, shape[0] * shape[1]);
            let windows = Arc::new(three(windows));
            if !largest {
                let value =
                    by_float!(x, T => Array::from_vec(pool::average(&windows, planes, &elements::<T>(x)), &out))?;
                return Ok(Forward::new(value, vec![], move |b| {
                    let grad = by_float!(b.grad, T => {
                        Array::from_vec(pool::average_backward(&windows, planes, &elements::<T>(b.grad)), &shape)
                    })?;
                    Ok(vec![Some(Tensor::from_array(grad))])
                }));
            }
            let packed = Packed::below(window_volume(&windows));
            let (value, indices) = by_float!(x, T => {
                let (value, indices) = pool::max(&windows, planes, &elements::<T>(x));
                Ok((Array::from_vec(value, &out)?, packed.pack(&indices)?))
            })?;
            let count = out.iter().product();
            let written = {
                let (windows, indices, rows) = (windows.clone(), indices.clone(), [shape[0], shape[1]]);
                move |x: &[Tensor]| {
                    let places = pool::max_places(&windows, &packed.unpack(&indices)[..count]);
                    largest_of(&x[0], &places, rows, &out)
                }
            };
            let forward = Forward::new(value, vec![indices], move |b| {
                let indices = packed.unpack(&b.saved[0]);
                let grad = by_float!(b.grad, T => {
                    Array::from_vec(pool::max_backward(&windows, planes, &indices, &elements::<T>(b.grad)), &shape)
                })?;
                Ok(vec![Some(Tensor::from_array(grad))])
            });
            Ok(forward.written(Written::Op(Arc::new(written))))
        })
    }
}

macro_rules! pools {
    ($($axes:literal $spatial:literal:
        $max:ident $max_with:ident $max_op:ident, $avg:ident $avg_with:ident $avg_op:ident, $adaptive:ident $adaptive_op:ident,
        $adaptive_max:ident $adaptive_max_op:ident;)*) => {
        impl Tensor { $(
            #[doc = concat!("The largest element of each window of `[n, c, ", $spatial, "]`; NaN wins.")]
            ///
            /// # Errors
            /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) or [`ErrorKind::Value`](crate::ErrorKind::Value) when the
            /// window does not fit.
            pub fn $max(&self, kernel: usize, stride: usize) -> Result<Tensor> {
                self.$max_with(&PoolOptions::new(kernel, stride))
            }

            #[doc = concat!("The largest element of each window of `[n, c, ", $spatial, "]`; NaN wins.")]
            ///
            /// # Errors
            /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) or [`ErrorKind::Value`](crate::ErrorKind::Value) when the
            /// window does not fit or the options are out of range.
            pub fn $max_with(&self, options: &PoolOptions) -> Result<Tensor> {
                Self::pool(call!(Op::$max_op, &[self]; options), $axes, |input| sliding(input, options), true)
            }

            #[doc = concat!("The mean of each window of `[n, c, ", $spatial, "]`, summed in f32, rounded once.")]
            ///
            /// # Errors
            /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) or [`ErrorKind::Value`](crate::ErrorKind::Value) when the
            /// window does not fit.
            pub fn $avg(&self, kernel: usize, stride: usize) -> Result<Tensor> {
                self.$avg_with(&PoolOptions::new(kernel, stride))
            }

            #[doc = concat!("The mean of each window of `[n, c, ", $spatial, "]`, summed in f32, rounded once.")]
            ///
            /// # Errors
            /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) or [`ErrorKind::Value`](crate::ErrorKind::Value) when the
            /// window does not fit or the options are out of range.
            pub fn $avg_with(&self, options: &PoolOptions) -> Result<Tensor> {
                Self::pool(call!(Op::$avg_op, &[self]; options), $axes, |input| sliding(input, options), false)
            }

            #[doc = concat!("Means of `[n, c, ", $spatial, "]` over windows of nearly equal length, as many along each ",
                "axis as `output` says: window i of `out` covers `floor(i * len / out)` to `ceil((i + 1) * len / out)`.")]
            ///
            /// # Errors
            /// [`ErrorKind::Value`](crate::ErrorKind::Value) when `output` does not have one positive number per axis,
            /// or one for all.
            pub fn $adaptive(&self, output: &[usize]) -> Result<Tensor> {
                Self::pool(call!(Op::$adaptive_op, &[self]; output), $axes, |input| adaptive(input, output), false)
            }

            #[doc = concat!("The largest elements of `[n, c, ", $spatial, "]` in the windows of [`", stringify!($adaptive),
                "`](Tensor::", stringify!($adaptive), "); NaN wins.")]
            ///
            /// # Errors
            /// [`ErrorKind::Value`](crate::ErrorKind::Value) when `output` does not have one positive number per axis,
            /// or one for all.
            pub fn $adaptive_max(&self, output: &[usize]) -> Result<Tensor> {
                Self::pool(call!(Op::$adaptive_max_op, &[self]; output), $axes, |input| adaptive(input, output), true)
            }
        )* }
    };
}

pools! {
    1 "w": max_pool1d max_pool1d_with MaxPool1d, avg_pool1d avg_pool1d_with AvgPool1d, adaptive_avg_pool1d AdaptiveAvgPool1d,
        adaptive_max_pool1d AdaptiveMaxPool1d;
    2 "h, w": max_pool2d max_pool2d_with MaxPool2d, avg_pool2d avg_pool2d_with AvgPool2d, adaptive_avg_pool2d AdaptiveAvgPool2d,
        adaptive_max_pool2d AdaptiveMaxPool2d;
    3 "d, h, w": max_pool3d max_pool3d_with MaxPool3d, avg_pool3d avg_pool3d_with AvgPool3d, adaptive_avg_pool3d AdaptiveAvgPool3d,
        adaptive_max_pool3d AdaptiveMaxPool3d;
}
