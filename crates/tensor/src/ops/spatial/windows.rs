//! Sliding windows over the spatial axes for convolutions and pooling: padding, and settings given per axis.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Padding of the spatial axes before a window slides over them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Padding {
    /// None: only whole windows count.
    #[default]
    Valid,
    /// Enough for an output of `ceil(input / stride)` elements; an odd one goes to the end (TensorFlow, MindSpore).
    Same,
    /// Explicit amounts before and after each axis; one pair applies to all axes.
    Explicit(Vec<(usize, usize)>),
}

impl Padding {
    /// Creates a padding of `amount` on both sides of every axis.
    pub fn all(amount: usize) -> Self {
        Padding::Explicit(vec![(amount, amount)])
    }

    /// Returns the padding before and after each axis, for windows that span `extent` elements.
    pub(in crate::ops) fn resolve(
        &self,
        input: &[usize],
        extent: &[usize],
        stride: &[usize],
    ) -> Result<Vec<(usize, usize)>> {
        match self {
            Padding::Valid => Ok(vec![(0, 0); input.len()]),
            Padding::Same => Ok((0..input.len())
                .map(|i| {
                    let last_start = (input[i].div_ceil(stride[i]) - 1) * stride[i];
                    let total = (last_start + extent[i]).saturating_sub(input[i]);
                    (total / 2, total - total / 2)
                })
                .collect()),
            Padding::Explicit(pairs) => {
                let pairs = per_axis("padding", pairs, input.len())?;
                let largest = pairs.iter().map(|&(before, after)| before.max(after)).max().unwrap_or(0);
                within("padding", largest, 0)?;
                Ok(pairs)
            }
        }
    }
}

/// The same amount on both sides of every axis.
impl From<usize> for Padding {
    fn from(amount: usize) -> Self {
        Padding::all(amount)
    }
}

/// One amount per axis, on both sides.
impl<const N: usize> From<[usize; N]> for Padding {
    fn from(axes: [usize; N]) -> Self {
        Padding::Explicit(axes.map(|amount| (amount, amount)).to_vec())
    }
}

/// One pair per axis: the amounts before and after it.
impl<const N: usize> From<[(usize, usize); N]> for Padding {
    fn from(axes: [(usize, usize); N]) -> Self {
        Padding::Explicit(axes.to_vec())
    }
}

/// One amount for each of two axes, on both sides.
impl From<(usize, usize)> for Padding {
    fn from((first, second): (usize, usize)) -> Self {
        [first, second].into()
    }
}

/// One amount for each of three axes, on both sides.
impl From<(usize, usize, usize)> for Padding {
    fn from((first, second, third): (usize, usize, usize)) -> Self {
        [first, second, third].into()
    }
}

/// Bound on the lengths and settings of the spatial axes, so that no sum or product of two of them overflows.
const LIMIT: usize = i32::MAX as usize;

fn within(what: &str, value: usize, least: usize) -> Result<()> {
    if (least..=LIMIT).contains(&value) {
        return Ok(());
    }
    Err(Error::value(format!("{what} {value} is out of range: {least} to {LIMIT} is allowed")))
}

/// Returns one setting per axis; a list of one applies to all.
pub(in crate::ops) fn per_axis<T: Clone>(what: &str, given: &[T], axes: usize) -> Result<Vec<T>> {
    match given.len() {
        1 => Ok(vec![given[0].clone(); axes]),
        n if n == axes => Ok(given.to_vec()),
        n => Err(Error::value(format!("{what} is given for {n} axes; allowed: 1 (all alike) or {axes}"))),
    }
}

/// Returns settings as [`per_axis`] does, for positive numbers.
pub(in crate::ops) fn positive_per_axis(what: &str, given: &[usize], axes: usize) -> Result<Vec<usize>> {
    let given = per_axis(what, given, axes)?;
    given.iter().try_for_each(|&value| within(what, value, 1))?;
    Ok(given)
}

/// Returns the number of elements that a dilated window spans along each axis.
pub(in crate::ops) fn extents(kernel: &[usize], dilation: &[usize]) -> Vec<usize> {
    kernel.iter().zip(dilation).map(|(k, d)| (k - 1) * d + 1).collect()
}

/// Returns the spatial axes of `[n, c, spatial...]`.
pub(in crate::ops) fn spatial_axes(shape: &[usize], axes: usize) -> Result<&[usize]> {
    let [_, _, spatial @ ..] = shape else {
        return Err(Error::shape(format!("needs [n, c] and {axes} spatial axes, got {shape:?}")));
    };
    if spatial.len() != axes {
        return Err(Error::shape(format!("needs [n, c] and {axes} spatial axes, got {shape:?}")));
    }
    spatial.iter().try_for_each(|&len| within("the length of a spatial axis", len, 1))?;
    Ok(spatial)
}

/// Extends up to three axes to exactly three by prepending axes of length `fill`.
pub(in crate::ops) fn three<T: Copy>(axes: &[T], fill: T) -> [T; 3] {
    let mut all = [fill; 3];
    all[3 - axes.len()..].copy_from_slice(axes);
    all
}

/// Returns the shape, unless its number of elements exceeds addressable memory.
pub(in crate::ops) fn checked_shape(shape: Vec<usize>) -> Result<Vec<usize>> {
    // 16 bytes per element leave room for any dtype along with its widened copy.
    let bytes = shape.iter().filter(|&&len| len > 0).try_fold(16usize, |n, &len| n.checked_mul(len));
    match bytes {
        Some(bytes) if bytes <= isize::MAX as usize => Ok(shape),
        _ => Err(Error::shape(format!("the result would have the shape {shape:?}, more than memory can address"))),
    }
}
