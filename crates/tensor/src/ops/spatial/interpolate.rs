//! Resizing of the spatial axes.

use precast_kernels::{
    float::Float,
    memory::room,
    sample::resample::{ResampledAxis, Taps, resample, resample_backward},
};
use serde::{Deserialize, Serialize};

use crate::{
    Op, Tensor,
    error::{Error, Result},
    ops::{
        by_float, call, dispatch, elements,
        spatial::windows::{checked_shape, per_axis, positive_per_axis, spatial_axes},
    },
    tensor::{Array, Forward},
};

/// Interpolation between elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Interpolation {
    /// The nearest element.
    #[default]
    Nearest,
    /// Mean of the neighbors weighted by proximity: linear, bilinear or trilinear.
    Linear,
    /// Cubic through four neighbors along each axis, with Keys' kernel for `a = -3/4`: bicubic for images. It may
    /// overshoot. (R. Keys, "Cubic convolution interpolation for digital image processing", 1981.)
    Cubic,
}

/// New lengths of the spatial axes. Lists have one number per axis; a list of one applies to all axes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Resize {
    /// Lengths.
    To(Vec<usize>),
    /// Scale factors; the resulting lengths are rounded down.
    By(Vec<f64>),
}

/// A new axis: its length, and the quotient that maps its positions to those of the old one.
#[derive(Clone, Copy)]
struct NewAxis {
    len: usize,
    quotient: [f64; 2],
}

impl NewAxis {
    /// Computes `i * old / new`, exact where that is whole.
    fn place(self, i: f64) -> f64 {
        i * self.quotient[0] / self.quotient[1]
    }

    /// Returns the source elements and their weights, in an old axis of length `from`.
    fn taps(self, mode: Interpolation, align_corners: bool, from: usize) -> Taps {
        let last = from - 1;
        let tap = |i: usize| {
            let i = i as f64;
            let place = match mode {
                Interpolation::Nearest => return vec![((self.place(i) as usize).min(last), 1.0)],
                Interpolation::Linear if align_corners => i * last as f64 / (self.len.max(2) - 1) as f64,
                Interpolation::Cubic if align_corners => {
                    return cubic(i * last as f64 / (self.len.max(2) - 1) as f64, last);
                }
                // As in torch, for any scale.
                Interpolation::Linear if self.len == from => i,
                Interpolation::Linear => (self.place(i + 0.5) - 0.5).clamp(0.0, last as f64),
                Interpolation::Cubic => return cubic(self.place(i + 0.5) - 0.5, last),
            };
            let (before, part) = (place as usize, place.fract());
            if part == 0.0 { vec![(before, 1.0)] } else { vec![(before, 1.0 - part), (before + 1, part)] }
        };
        // The vectors of an element each, and what they hold.
        let (mut taps, _held) = (room(self.len), room::<[(usize, f64); 4]>(self.len));
        taps.extend((0..self.len).map(tap));
        taps
    }
}

/// Returns the four elements around a position, each clamped to the axis, and their weights.
fn cubic(place: f64, last: usize) -> Vec<(usize, f64)> {
    const A: f64 = -0.75;
    let weight = |distance: f64| match distance {
        d if d <= 1.0 => ((A + 2.0) * d - (A + 3.0)) * d * d + 1.0,
        d if d < 2.0 => ((A * d - 5.0 * A) * d + 8.0 * A) * d - 4.0 * A,
        _ => 0.0,
    };
    let taps = (-1..=2).map(|step| {
        let at = place.floor() + f64::from(step);
        (at.clamp(0.0, last as f64) as usize, weight((place - at).abs()))
    });
    taps.filter(|(_, weight)| *weight != 0.0).collect()
}

impl Resize {
    fn resolve(&self, from: &[usize]) -> Result<Vec<NewAxis>> {
        match self {
            Resize::To(lengths) => {
                let lengths = positive_per_axis("the length", lengths, from.len())?;
                let axis = |(len, &from): (usize, &usize)| NewAxis { len, quotient: [from as f64, len as f64] };
                Ok(lengths.into_iter().zip(from).map(axis).collect())
            }
            Resize::By(scales) => {
                let scales = per_axis("the scale", scales, from.len())?;
                if let Some(scale) = scales.iter().find(|scale| !(scale.is_finite() && **scale > 0.0)) {
                    return Err(Error::value(format!("the scale {scale}; allowed: finite and above 0")));
                }
                let scaled = from.iter().zip(&scales).map(|(&len, scale)| (len as f64 * scale) as usize);
                let lengths = positive_per_axis("the scaled length", &scaled.collect::<Vec<_>>(), from.len())?;
                let axis = |(len, scale)| NewAxis { len, quotient: [1.0, scale] };
                Ok(lengths.into_iter().zip(scales).map(axis).collect())
            }
        }
    }
}

impl Tensor {
    /// Resizes the one to three spatial axes of `[n, c, spatial...]`, rounded once.
    ///
    /// Element i of a new axis samples the old one at `(i + 1/2) * old/new - 1/2`, clamped to the border (for a cubic,
    /// its neighbors are). With `align_corners` it samples at `i * (old - 1) / (new - 1)`, which keeps the outermost
    /// elements. The nearest element is that at `floor(i * old/new)`. These are torch's rules; after [`Resize::By`],
    /// `old/new` is one over the given scale, except that a linear axis that keeps its length is copied.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when there are not one to three spatial axes with elements,
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a length or scale out of range, or for `align_corners` with
    /// the nearest element, [`ErrorKind::DType`](crate::ErrorKind::DType) for an integer or boolean tensor.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::{Interpolation, Resize, Tensor};
    /// let x = Tensor::from_vec(vec![1f32, 3.], &[1, 1, 2])?;
    /// let double = Resize::By(vec![2.0]);
    /// assert_eq!(x.interpolate(&double, Interpolation::Nearest, false)?.to_f64(), [1., 1., 3., 3.]);
    /// assert_eq!(x.interpolate(&double, Interpolation::Linear, false)?.to_f64(), [1., 1.5, 2.5, 3.]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn interpolate(&self, size: &Resize, mode: Interpolation, align_corners: bool) -> Result<Tensor> {
        dispatch(call!(Op::Interpolate, &[self]; size, mode, align_corners), |inputs| {
            let x = &inputs[0];
            if !(3..=5).contains(&x.rank()) {
                return Err(Error::shape(format!("needs [n, c] and 1 to 3 spatial axes, got {:?}", x.shape())));
            }
            if align_corners && mode == Interpolation::Nearest {
                return Err(Error::value("`align_corners` is not supported in nearest mode; allowed: false"));
            }
            let spatial = spatial_axes(x.shape(), x.rank() - 2)?;
            let axes = size.resolve(spatial)?;
            let lengths: Vec<usize> = axes.iter().map(|axis| axis.len).collect();
            let shape = checked_shape([&x.shape()[..2], &lengths].concat())?;
            // One axis at a time, the last first. Without samples there is nothing to do, whatever the lengths.
            let mut steps: Vec<(ResampledAxis, Taps)> = Vec::new();
            for axis in (0..spatial.len()).rev().filter(|_| !x.is_empty()) {
                let outer = x.shape()[..axis + 2].iter().product();
                let along = ResampledAxis { outer, len: spatial[axis], inner: lengths[axis + 1..].iter().product() };
                steps.push((along, axes[axis].taps(mode, align_corners, spatial[axis])));
            }
            let value = by_float!(x, T => {
                let x = elements::<T>(x);
                let wide = T::widen_slice(&x).into_buffer();
                let y = steps.iter().fold(wide, |x, (along, taps)| resample(&x, *along, taps));
                Array::from_vec(T::narrow_vec(y), &shape)
            })?;
            let from = x.shape().to_vec();
            Ok(Forward::new(value, vec![], move |back| {
                let grad = by_float!(back.grad, T => {
                    let grad = elements::<T>(back.grad);
                    let wide = T::widen_slice(&grad).into_buffer();
                    let dx = steps.iter().rev().fold(wide, |dy, (along, taps)| resample_backward(&dy, *along, taps));
                    Array::from_vec(T::narrow_vec(dx), &from)
                })?;
                Ok(vec![Some(Tensor::from_array(grad))])
            }))
        })
    }
}
