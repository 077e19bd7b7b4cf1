//! Padding with border elements, and windows laid out as columns.

use precast_kernels::memory::room;

use crate::{
    Op, Tensor,
    error::{Error, Result},
    ops::{
        Call, call,
        composed::composed,
        spatial::windows::{checked_shape, extents, per_axis, positive_per_axis, spatial_axes},
    },
    tensor::fitting,
};

/// Gathers `x` along every axis; `place` maps positions of the padded axis to positions of the original.
fn padded(
    call: Call<'_>,
    pairs: &[(usize, usize)],
    place: impl Fn(isize, usize, (usize, usize)) -> Result<usize>,
) -> Result<Tensor> {
    composed(call, |inputs| {
        let from = inputs[0].shape();
        if pairs.len() != from.len() {
            return Err(Error::shape(format!("{} pairs pad {} axes: {from:?}", pairs.len(), from.len())));
        }
        let lengths = from.iter().zip(pairs).map(|(len, (a, b))| len.saturating_add(*a).saturating_add(*b));
        let to = checked_shape(lengths.collect())?;
        let mut steps = Vec::new();
        for (axis, &(before, after)) in pairs.iter().enumerate().filter(|(_, pair)| **pair != (0, 0)) {
            let at = (0..to[axis]).map(|i| place(i as isize - before as isize, from[axis], (before, after)));
            let mut places = room(to[axis]);
            for place in at {
                places.push(place? as i64);
            }
            steps.push((axis as isize, Tensor::from_vec(places, &[to[axis]])?));
        }
        Ok(move |x: &[Tensor]| steps.iter().try_fold(x[0].clone(), |x, (axis, at)| x.index_select(*axis, at)))
    })
}

impl Tensor {
    /// Pads each axis before and after, one pair per axis, by mirroring it at its first and last elements, which are
    /// not repeated.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when there is not one pair per axis, or a padding is not shorter
    /// than its axis,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for an integer or boolean tensor.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::Tensor;
    /// let x = Tensor::from_vec(vec![1f32, 2., 3.], &[3])?;
    /// assert_eq!(x.reflection_pad(&[(2, 1)])?.to_f64(), [3., 2., 1., 2., 3., 2.]);
    /// assert_eq!(x.replication_pad(&[(2, 1)])?.to_f64(), [1., 1., 1., 2., 3., 3.]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn reflection_pad(&self, pairs: &[(usize, usize)]) -> Result<Tensor> {
        padded(call!(Op::ReflectionPad, &[self]; pairs), pairs, |at, len, (before, after)| {
            if before.max(after) >= len {
                let message = format!("the padding {:?} is not shorter than the axis of {len}", (before, after));
                return Err(Error::shape(message));
            }
            let mirrored = at.unsigned_abs();
            Ok(if mirrored < len { mirrored } else { 2 * (len - 1) - mirrored })
        })
    }

    /// Pads each axis before and after, one pair per axis, by repeating its first and last element.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when there is not one pair per axis, or an axis has no elements,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for an integer or boolean tensor.
    pub fn replication_pad(&self, pairs: &[(usize, usize)]) -> Result<Tensor> {
        padded(call!(Op::ReplicationPad, &[self]; pairs), pairs, |at, len, _| match len.checked_sub(1) {
            Some(last) => Ok(at.clamp(0, last as isize) as usize),
            None => Err(Error::shape("an axis without elements has none to repeat")),
        })
    }

    /// Lays out the windows of `[n, c, h, w]` as columns: `[n, c kh kw, l]`, one column for each of the l positions of
    /// a window of `kernel`, in the order of a convolution. Lists have one number per spatial axis; a list of one
    /// applies to both.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when there are not four axes or the window does not fit,
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when a list is out of range.
    pub fn unfold(&self, kernel: &[usize], stride: &[usize], padding: &[usize], dilation: &[usize]) -> Result<Tensor> {
        let spatial = spatial_axes(self.shape(), 2).map_err(|e| e.in_op("unfold"))?;
        let kernel = positive_per_axis("kernel", kernel, 2)?;
        let stride = positive_per_axis("stride", stride, 2)?;
        let dilation = positive_per_axis("dilation", dilation, 2)?;
        let padding = per_axis("padding", padding, 2)?;
        let extent = extents(&kernel, &dilation);
        let length = |axis: usize| spatial[axis].saturating_add(padding[axis].saturating_mul(2));
        let windows = |axis: usize| match length(axis).checked_sub(extent[axis]) {
            Some(room) => Ok(room / stride[axis] + 1),
            None => Err(Error::shape(format!("the window {kernel:?} does not fit into {spatial:?}")).in_op("unfold")),
        };
        let (rows, columns) = (windows(0)?, windows(1)?);
        let [n, c] = [self.shape()[0], self.shape()[1]];
        let all = |factors: &[usize]| factors.iter().fold(1, |n: usize, len| n.saturating_mul(*len));
        let shape = checked_shape(vec![n, all(&[c, kernel[0], kernel[1]]), all(&[rows, columns])])?;
        let padded = self.pad(&[(0, 0), (0, 0), (padding[0], padding[0]), (padding[1], padding[1])], 0.0)?;
        let mut at =
            fitting(|| Ok(room(all(&[kernel[0], kernel[1], rows, columns])))).map_err(|e| e.in_op("unfold"))?;
        for (i, j) in (0..kernel[0]).flat_map(|i| (0..kernel[1]).map(move |j| (i, j))) {
            for (y, x) in (0..rows).flat_map(|y| (0..columns).map(move |x| (y, x))) {
                let row = y * stride[0] + i * dilation[0];
                at.push((row * length(1) + x * stride[1] + j * dilation[1]) as i64);
            }
        }
        let count = at.len();
        let at = Tensor::from_vec(at, &[count])?;
        padded.flatten(2)?.index_select(2, &at)?.reshape(&[n, shape[1], shape[2]])
    }
}
