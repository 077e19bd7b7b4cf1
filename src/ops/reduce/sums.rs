//! Sums, means, extremes and other reductions along axes.

use crate::ops::{
    Call, by_float, call, dispatch, elements,
    elementwise::pairwise::{stretched, sum_over},
    index::shape::axis_at,
    reduce::axes::{self, Lanes, reduced},
    saved,
};
use crate::{
    Op, Tensor,
    error::{Error, Result},
    kernels::{
        float::{Float, Real},
        memory::Pooled,
        reduce::{
            AlongAxis, Deviation, Extreme, PNorm, Product, RunningProduct, RunningSum, SliceFunction, Variance,
            over_slices, over_slices_backward,
        },
        strides::row_major,
    },
    tensor::{Array, Forward, Stored, with_array},
};

/// A differentiable function of the slices along some axes. One rounding forward, one backward.
///
/// `axes` are resolved against the input inside the op, so that an error names it.
pub(in crate::ops) fn along<A: AlongAxis>(call: Call<'_>, axes: &[isize], keep_dims: bool, f: A) -> Result<Tensor> {
    on_lanes(call, axes, keep_dims, Box::new(f))
}

/// A function in both types in which kernels compute.
trait AnySliceFunction: SliceFunction<f32> + SliceFunction<f64> {}
impl<F: SliceFunction<f32> + SliceFunction<f64>> AnySliceFunction for F {}

/// [`along`] of a compiled function.
fn on_lanes(call: Call<'_>, axes: &[isize], keep_dims: bool, f: Box<dyn AnySliceFunction>) -> Result<Tensor> {
    dispatch(call, move |inputs| {
        let x = &inputs[0];
        let axes = axes::axes(axes, x.rank())?;
        let lanes = Lanes::new(x.shape(), &axes);
        let out = reduced(x.shape(), &axes, keep_dims);
        let reduces = SliceFunction::<f32>::reduces(&*f);
        let value = by_float!(x, T => {
            let y = over_slices::<T>(&*f, &lanes.pack(x), lanes.count, lanes.n);
            if reduces { Array::from_vec(y, &out) } else { lanes.unpack(y) }
        })?;
        let saved = saved(SliceFunction::<f32>::saved(&*f), x, &value);
        Ok(Forward::new(value, saved, move |back| {
            let grad = by_float!(back.grad, T => {
                let kept = back.saved.first().map(|kept| lanes.pack::<T>(kept)).unwrap_or_default();
                let dy = if reduces { elements::<T>(back.grad) } else { lanes.pack(back.grad) };
                lanes.unpack(over_slices_backward::<T>(&*f, &kept, &dy, lanes.count, lanes.n))
            })?;
            Ok(vec![Some(Tensor::from_array(grad))])
        }))
    })
}

/// The sum, divided by the number of its terms if `mean`.
fn sum_or_mean(call: Call<'_>, axes: &[isize], keep_dims: bool, mean: bool) -> Result<Tensor> {
    dispatch(call, move |inputs| {
        let x = &inputs[0];
        let shape = x.shape().to_vec();
        let axes = axes::axes(axes, x.rank())?;
        let out = reduced(&shape, &axes, keep_dims);
        if let (Array::I64(_), false) = (x.array(), mean) {
            return integer_sum(x, &axes, &out).map(Forward::constant);
        }
        let terms: usize = axes.iter().map(|&a| shape[a]).product();
        let divisor = if mean { terms as f64 } else { 1.0 };
        let value = by_float!(x, T => {
                let divisor = <T as Float>::Wide::of(divisor);
            let mut sums = sum_over::<T>(&elements::<T>(x), &shape, &axes);
            sums.iter_mut().for_each(|sum| *sum /= divisor);
            Array::from_vec(T::narrow_vec(sums), &out)
        })?;
        Ok(Forward::new(value, vec![], move |back| {
            let kept = reduced(&shape, &axes, true);
            let grad = by_float!(back.grad, T => {
                let divisor = <T as Float>::Wide::of(divisor);
                let parts = elements::<T>(back.grad).iter().map(|g| T::narrow(g.widen() / divisor)).collect::<Pooled<T>>();
                let parts = Array::from_vec::<T>(parts, &kept)?;
                Array::from_vec(row_major(&stretched::<T>(&parts, &shape)?), &shape)
            })?;
            Ok(vec![Some(Tensor::from_array(grad))])
        }))
    })
}

fn integer_sum(x: &Tensor, axes: &[usize], out: &[usize]) -> Result<Array> {
    let lanes = Lanes::new(x.shape(), axes);
    let x = lanes.pack::<i64>(x);
    let sum = |lane: usize| x[lane * lanes.n..(lane + 1) * lanes.n].iter().copied().fold(0, i64::wrapping_add);
    Array::from_vec((0..lanes.count).map(sum).collect::<Pooled<i64>>(), out)
}

/// Where the largest (or smallest) element of each lane is.
fn arg_extreme(call: Call<'_>, axis: isize, keep_dims: bool, largest: bool) -> Result<Tensor> {
    fn go<T: Stored>(x: &Tensor, axis: usize, keep_dims: bool, largest: bool) -> Result<Array> {
        let lanes = Lanes::new(x.shape(), &[axis]);
        let x_lanes = lanes.pack::<T>(x);
        let nan = |x: T| x.partial_cmp(&x).is_none();
        let better = |x: T, than: T| if largest { x > than } else { x < than };
        let place = |lane: usize| {
            let lane = &x_lanes[lane * lanes.n..(lane + 1) * lanes.n];
            (1..lanes.n).fold(0, |best, i| {
                let replaces = !nan(lane[best]) && (nan(lane[i]) || better(lane[i], lane[best]));
                if replaces { i } else { best }
            }) as i64
        };
        Array::from_vec((0..lanes.count).map(place).collect::<Pooled<i64>>(), &reduced(x.shape(), &[axis], keep_dims))
    }
    dispatch(call, |inputs| {
        let x = &inputs[0];
        let axis = axis_at(axis, x.rank())?;
        not_empty(x, &[axis])?;
        with_array!(x.array(), a: T => {
                let _ = a; go::<T>(x, axis, keep_dims, largest) })
        .map(Forward::constant)
    })
}

fn not_empty(x: &Tensor, axes: &[usize]) -> Result<()> {
    match axes.iter().find(|&&axis| x.shape()[axis] == 0) {
        Some(axis) => Err(Error::shape(format!("axis {axis} of {:?} has no elements to choose from", x.shape()))),
        None => Ok(()),
    }
}

impl Tensor {
    /// The sum over the axes. Negative axes count from the end; none given means all. Empty sums are 0.
    ///
    /// Accumulated pairwise in f32 (f64 for f64), rounded once. Integers wrap and have no gradient.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) for an axis that does not exist or is named twice,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for a boolean tensor.
    ///
    /// ```
    /// use precast::Tensor;
    /// let x = Tensor::from_vec(vec![1f32, 2., 3., 4., 5., 6.], &[2, 3])?;
    /// assert_eq!(x.sum(&[-1], false)?.to_f64(), [6., 15.]);
    /// assert_eq!(x.sum(&[0], true)?.shape(), [1, 3]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn sum(&self, axes: &[isize], keep_dims: bool) -> Result<Tensor> {
        sum_or_mean(call!(Op::Sum, &[self]; axes, keep_dims), axes, keep_dims, false)
    }

    /// The mean over the axes, as [`sum`](Tensor::sum). Empty means are NaN.
    ///
    /// # Errors
    /// As [`sum`](Tensor::sum); [`ErrorKind::DType`](crate::ErrorKind::DType) for an integer tensor, too.
    pub fn mean(&self, axes: &[isize], keep_dims: bool) -> Result<Tensor> {
        sum_or_mean(call!(Op::Mean, &[self]; axes, keep_dims), axes, keep_dims, true)
    }

    /// The sum of all elements, a scalar.
    ///
    /// # Errors
    /// As [`sum`](Tensor::sum).
    pub fn sum_all(&self) -> Result<Tensor> {
        self.sum(&[], false)
    }

    /// The mean of all elements, a scalar.
    ///
    /// # Errors
    /// As [`mean`](Tensor::mean).
    pub fn mean_all(&self) -> Result<Tensor> {
        self.mean(&[], false)
    }

    /// The largest element along the axes, NaN if there is one. The gradient is shared equally among ties.
    ///
    /// # Errors
    /// As [`mean`](Tensor::mean); [`ErrorKind::Shape`](crate::ErrorKind::Shape) when there are no elements along the axes.
    pub fn max(&self, axes: &[isize], keep_dims: bool) -> Result<Tensor> {
        Self::extreme(call!(Op::Max, &[self]; axes, keep_dims), axes, keep_dims, true)
    }

    /// The smallest element along the axes, NaN if there is one. The gradient is shared equally among ties.
    ///
    /// # Errors
    /// As [`max`](Tensor::max).
    pub fn min(&self, axes: &[isize], keep_dims: bool) -> Result<Tensor> {
        Self::extreme(call!(Op::Min, &[self]; axes, keep_dims), axes, keep_dims, false)
    }

    fn extreme(call: Call<'_>, axes: &[isize], keep_dims: bool, largest: bool) -> Result<Tensor> {
        let x = call.inputs[0];
        axes::axes(axes, x.rank()).and_then(|axes| not_empty(x, &axes)).map_err(|e| e.in_op(call.op.name()))?;
        along(call, axes, keep_dims, Extreme { largest })
    }

    /// The product along the axes, in f64, rounded once; 1 of no elements. The gradient is right also where elements are 0.
    ///
    /// # Errors
    /// As [`mean`](Tensor::mean).
    pub fn prod(&self, axes: &[isize], keep_dims: bool) -> Result<Tensor> {
        along(call!(Op::Prod, &[self]; axes, keep_dims), axes, keep_dims, Product)
    }

    /// The variance along the axes: squared deviations from the mean over `n - correction`, in two passes. 0 for the
    /// biased, 1 for the unbiased estimate. NaN or infinite when n is not above the correction.
    ///
    /// # Errors
    /// As [`mean`](Tensor::mean).
    pub fn var(&self, axes: &[isize], correction: usize, keep_dims: bool) -> Result<Tensor> {
        along(call!(Op::Var, &[self]; axes, correction, keep_dims), axes, keep_dims, Variance { correction })
    }

    /// The square root of the [variance](Tensor::var), with one rounding. The gradient is 0 where it is 0.
    ///
    /// # Errors
    /// As [`mean`](Tensor::mean).
    pub fn std(&self, axes: &[isize], correction: usize, keep_dims: bool) -> Result<Tensor> {
        along(call!(Op::Std, &[self]; axes, correction, keep_dims), axes, keep_dims, Deviation(Variance { correction }))
    }

    /// The p-norm along the axes: `(sum |x|^p)^(1/p)`, the largest `|x|` for infinite p, also where a power leaves the range. The
    /// gradient is 0 where the norm is 0; ties of the infinite norm share it equally.
    ///
    /// # Errors
    /// As [`mean`](Tensor::mean); [`ErrorKind::Value`](crate::ErrorKind::Value) when p is not above 0.
    pub fn norm(&self, p: f64, axes: &[isize], keep_dims: bool) -> Result<Tensor> {
        if p.is_nan() || p <= 0.0 {
            return Err(Error::value(format!("p = {p}; allowed: above 0, or infinite")).in_op(Op::Norm.name()));
        }
        along(call!(Op::Norm, &[self]; p, axes, keep_dims), axes, keep_dims, PNorm { p })
    }

    /// The sums of the first 1, 2, ... elements along an axis, accumulated in f64, each rounded once.
    ///
    /// # Errors
    /// As [`mean`](Tensor::mean).
    pub fn cumsum(&self, axis: isize) -> Result<Tensor> {
        along(call!(Op::CumSum, &[self]; axis), &[axis], false, RunningSum)
    }

    /// The products of the first 1, 2, ... elements along an axis. The gradient is right also where elements are 0.
    ///
    /// # Errors
    /// As [`mean`](Tensor::mean).
    pub fn cumprod(&self, axis: isize) -> Result<Tensor> {
        along(call!(Op::CumProd, &[self]; axis), &[axis], false, RunningProduct)
    }

    /// The place of the largest element along an axis, as i64: the first of ties, the first NaN if there is one.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when there is no such axis, or nothing along it.
    pub fn argmax(&self, axis: isize, keep_dims: bool) -> Result<Tensor> {
        arg_extreme(call!(Op::ArgMax, &[self]; axis, keep_dims), axis, keep_dims, true)
    }

    /// The place of the smallest element along an axis, as [`argmax`](Tensor::argmax).
    ///
    /// # Errors
    /// As [`argmax`](Tensor::argmax).
    pub fn argmin(&self, axis: isize, keep_dims: bool) -> Result<Tensor> {
        arg_extreme(call!(Op::ArgMin, &[self]; axis, keep_dims), axis, keep_dims, false)
    }
}
