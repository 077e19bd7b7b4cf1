//! Sampling of images and volumes at the positions of a grid (Jaderberg et al. 2015, section 3.3).

use precast_kernels::{
    float::Float,
    memory::room,
    sample::grid_sample::{Sampling, Sizes, grid_sample, grid_sample_backward},
};
use serde::{Deserialize, Serialize};

use crate::{
    DType, Op, Tensor,
    error::{Error, Result},
    ops::{
        Interpolation, by_float, call,
        composed::composed,
        dispatch, elements, one_float_dtype,
        spatial::windows::{checked_shape, spatial_axes, three},
    },
    tensor::{Array, Forward},
};

/// Values read outside an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum GridPadding {
    /// Zero.
    #[default]
    Zeros,
    /// The nearest element on the border.
    Border,
}

impl Tensor {
    /// Samples images `[n, c, h, w]` or volumes `[n, c, d, h, w]` at the positions of a grid: `[n, h', w', 2]` or
    /// `[n, d', h', w', 3]` gives `[n, c, h', w']` or `[n, c, d', h', w']`, rounded once. Floating dtypes promote.
    ///
    /// The coordinates of a position are x, y (and z), each from -1 to 1. With `align_corners` these are the centers of
    /// the outermost elements, without it their outer edges. Between elements the neighbors are interpolated linearly,
    /// or the nearest is taken (the even one in a tie), which gives the grid no gradient. A NaN coordinate reads NaN.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not fit,
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for cubic interpolation,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for an integer or boolean tensor.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::{GridPadding, Interpolation, Tensor};
    /// let picture = Tensor::from_vec(vec![1f32, 3.], &[1, 1, 1, 2])?;
    /// let middle = Tensor::from_vec(vec![0f32, 0.], &[1, 1, 1, 2])?;
    /// assert_eq!(picture.grid_sample(&middle, Interpolation::Linear, GridPadding::Zeros, true)?.item()?, 2.0);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn grid_sample(
        &self,
        grid: &Tensor,
        mode: Interpolation,
        padding: GridPadding,
        align_corners: bool,
    ) -> Result<Tensor> {
        let (op, axes) = if self.rank() == 5 { (Op::GridSampler3d, 3) } else { (Op::GridSampler2d, 2) };
        let (nearest, border) = (mode == Interpolation::Nearest, padding == GridPadding::Border);
        let sampling = Sampling { nearest, border, align_corners };
        dispatch(call!(op, &[self, grid]; mode, padding, align_corners), |inputs| {
            if mode == Interpolation::Cubic {
                return Err(Error::value("a grid is read with the nearest element or linearly, not with a cubic"));
            }
            one_float_dtype(inputs)?;
            let (x, grid) = (&inputs[0], &inputs[1]);
            let spatial = spatial_axes(x.shape(), axes)?;
            let (n, c) = (x.shape()[0], x.shape()[1]);
            let places = match grid.shape() {
                &[samples, ref places @ .., coordinates]
                    if samples == n && places.len() == axes && coordinates == axes =>
                {
                    places
                }
                met => {
                    let wanted = format!("{n}, {axes} axes of places, {axes} coordinates");
                    return Err(Error::shape(format!(
                        "the grid {met:?} does not fit {:?}: needs [{wanted}]",
                        x.shape()
                    )));
                }
            };
            let shape = checked_shape([&[n, c], places].concat())?;
            let sizes = Sizes { n, c, from: three(spatial, 1), positions: places.iter().product(), axes };
            let value = by_float!(x, T => {
                let (x, grid) = (elements::<T>(x), elements::<T>(grid));
                let y = grid_sample(&T::widen_slice(&x), &T::widen_slice(&grid), &sizes, sampling);
                Array::from_vec(T::narrow_vec(y), &shape)
            })?;
            Ok(Forward::new(value, inputs.to_vec(), move |back| {
                let (x, grid) = (&back.saved[0], &back.saved[1]);
                by_float!(back.grad, T => {
                    let [dy, xs, places] = [back.grad, x, grid].map(|x| elements::<T>(x));
                    let [dy, xs, places] = [&dy, &xs, &places].map(|x| T::widen_slice(x));
                    let (dx, dgrid) = grid_sample_backward(&dy, &xs, &places, &sizes, sampling);
                    let tensor = |data, like: &Tensor| {
                        Array::from_vec(T::narrow_vec(data), like.shape()).map(Tensor::from_array)
                    };
                    Ok(vec![Some(tensor(dx, x)?), Some(tensor(dgrid, grid)?)])
                })
            }))
        })
    }

    /// Computes the grid for [`grid_sample`](Tensor::grid_sample) from affine maps. This tensor holds a map `[2, 3]`
    /// per sample (`[3, 4]` for volumes) and `size` is `[n, c, h, w]` (`[n, c, d, h, w]`). Computed in f32, rounded
    /// once.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not fit,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for an integer or boolean tensor.
    pub fn affine_grid(&self, size: &[usize], align_corners: bool) -> Result<Tensor> {
        composed(call!(Op::AffineGrid, &[self]; size, align_corners), |inputs| {
            let [n, _, places @ ..] = size else {
                return Err(Error::shape(format!("needs [n, c] and 2 or 3 spatial axes, got {size:?}")));
            };
            let axes = places.len();
            if !(2..=3).contains(&axes) || inputs[0].shape() != [*n, axes, axes + 1] {
                let (met, wanted) = (inputs[0].shape(), [*n, axes, axes + 1]);
                return Err(Error::shape(format!("maps {met:?} for the size {size:?}; needs {wanted:?}")));
            }
            let shape = checked_shape([&[*n], places, &[axes]].concat())?;
            let places = places.to_vec();
            Ok(move |maps: &[Tensor]| {
                places_of(&places, align_corners, maps[0].dtype())?
                    .matmul_ext(&maps[0].transpose(-1, -2)?)?
                    .reshape(&shape)
            })
        })
    }
}

/// Returns the coordinates of each position, the last axis first, and a 1 for the translation of a map:
/// `[places, axes + 1]`.
fn places_of(places: &[usize], align_corners: bool, dtype: DType) -> Result<Tensor> {
    let axes = places.len();
    let coordinate = |i: usize, len: usize| match align_corners {
        true if len > 1 => -1.0 + 2.0 * i as f64 / (len - 1) as f64,
        true => 0.0,
        false => (2.0 * i as f64 + 1.0) / len as f64 - 1.0,
    };
    let count: usize = places.iter().product();
    let mut all = room(count * (axes + 1));
    for place in ndarray::indices(places) {
        all.extend((0..axes).rev().map(|axis| coordinate(place[axis], places[axis])));
        all.push(1.0);
    }
    Tensor::from_f64(&all, &[count, axes + 1], dtype)
}
