//! Sums, means, extrema and other reductions along axes.

use precast_kernels::{
    float::{Float, Real},
    memory::Pooled,
    reduce::{
        AlongAxis, Deviation, Extreme, PNorm, Product, RunningProduct, RunningSum, SliceFunction, Variance,
        over_slices, over_slices_backward, power_below,
    },
    strides::row_major,
};

use num_traits::Float as _;

use crate::{
    DType, Op, Tensor,
    error::{Error, Result},
    ops::{
        Call, by_float, call, dispatch, elements,
        elementwise::pairwise::{stretched, sum_over},
        index::shape::axis_at,
        reduce::axes::{self, Lanes, reduced},
        saved,
    },
    tensor::{Array, Forward, Stored, with_array},
};

/// Runs a differentiable function of the slices along some axes, with one rounding forward and one backward.
///
/// `axes` are resolved against the input inside the op, so that an error names the op.
pub(in crate::ops) fn along<A: AlongAxis>(call: Call<'_>, axes: &[isize], keep_dims: bool, f: A) -> Result<Tensor> {
    on_lanes(call, axes, keep_dims, Box::new(f))
}

/// Function in both types used by kernels.
trait AnySliceFunction: SliceFunction<f32> + SliceFunction<f64> {}
impl<F: SliceFunction<f32> + SliceFunction<f64>> AnySliceFunction for F {}

/// Runs [`along`] with a compiled function.
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

/// Computes means over axes, also where the sum leaves the range.
fn means<T: Float>(x: &[T], shape: &[usize], axes: &[usize], terms: usize) -> Pooled<T::Wide>
where
    T::Wide: Real,
{
    let over = |mut sums: Pooled<T::Wide>, divisor: T::Wide| {
        sums.iter_mut().for_each(|sum| *sum = *sum / divisor);
        sums
    };
    let terms = T::Wide::of(terms as f64);
    let means = over(sum_over::<T>(x, shape, axes), terms);
    if means.iter().all(|mean| mean.is_finite()) {
        return means;
    }
    // Multiplying by a power of two changes no digit of a sum that is out of range.
    let scale = power_below(terms.recip());
    let small: Vec<T::Wide> = x.iter().map(|x| x.widen() * scale).collect();
    let small = over(sum_over::<T::Wide>(&small, shape, axes), terms * scale);
    means.iter().zip(&*small).map(|(&mean, &small)| if mean.is_finite() { mean } else { small }).collect()
}

/// Computes the sum, divided by the number of terms if `mean`.
fn sum_or_mean(call: Call<'_>, axes: &[isize], keep_dims: bool, mean: bool) -> Result<Tensor> {
    dispatch(call, move |inputs| {
        let x = &inputs[0];
        let shape = x.shape().to_vec();
        let axes = axes::axes(axes, x.rank())?;
        let out = reduced(&shape, &axes, keep_dims);
        match x.dtype() {
            DType::I64 if !mean => return integer_sum(x, &axes, &out).map(Forward::constant),
            DType::Bool if !mean => {
                return Err(Error::dtype(
                    "needs a floating tensor or i64, got bool; `cast(DType::I64)` counts the elements that are true",
                ));
            }
            _ => {}
        }
        let terms: usize = axes.iter().map(|&a| shape[a]).product();
        let divisor = if mean { terms as f64 } else { 1.0 };
        let value = by_float!(x, T => {
            let x = elements::<T>(x);
            let sums = if mean { means::<T>(&x, &shape, &axes, terms) } else { sum_over::<T>(&x, &shape, &axes) };
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

/// Returns the position of the largest (or smallest) element of each lane.
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
    /// Sums over the axes. Negative axes count from the end; an empty list means all. Empty sums are 0.
    ///
    /// Accumulated pairwise in f32 (f64 for f64), rounded once. Integers wrap and have no gradient.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) for an axis that does not exist or is named twice,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for a boolean tensor.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// use precast::Tensor;
    /// let x = Tensor::from_vec(vec![1f32, 2., 3., 4., 5., 6.], &[2, 3])?;
    /// assert_eq!(x.sum(&[-1], false)?.to_f64(), [6., 15.]);
    /// assert_eq!(x.sum(&[0], true)?.shape(), [1, 3]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn sum(&self, axes: &[isize], keep_dims: bool) -> Result<Tensor> {
        sum_or_mean(call!(Op::Sum, &[self]; axes, keep_dims), axes, keep_dims, false)
    }

    /// Computes the mean over the axes, like [`sum`](Tensor::sum). Empty means are NaN.
    ///
    /// # Errors
    /// As for [`sum`](Tensor::sum); also [`ErrorKind::DType`](crate::ErrorKind::DType) for an integer tensor.
    pub fn mean(&self, axes: &[isize], keep_dims: bool) -> Result<Tensor> {
        sum_or_mean(call!(Op::Mean, &[self]; axes, keep_dims), axes, keep_dims, true)
    }

    /// Sums all elements to a scalar.
    ///
    /// # Errors
    /// As for [`sum`](Tensor::sum).
    pub fn sum_all(&self) -> Result<Tensor> {
        self.sum(&[], false)
    }

    /// Computes the mean of all elements, a scalar.
    ///
    /// # Errors
    /// As for [`mean`](Tensor::mean).
    pub fn mean_all(&self) -> Result<Tensor> {
        self.mean(&[], false)
    }

    /// Returns the largest element along the axes, NaN if any is NaN. The gradient is split equally among ties.
    ///
    /// # Errors
    /// As for [`mean`](Tensor::mean); [`ErrorKind::Shape`](crate::ErrorKind::Shape) when there are no elements along
    /// the axes.
    pub fn max(&self, axes: &[isize], keep_dims: bool) -> Result<Tensor> {
        Self::extreme(call!(Op::Max, &[self]; axes, keep_dims), axes, keep_dims, true)
    }

    /// Returns the smallest element along the axes, NaN if any is NaN. The gradient is split equally among ties.
    ///
    /// # Errors
    /// As for [`max`](Tensor::max).
    pub fn min(&self, axes: &[isize], keep_dims: bool) -> Result<Tensor> {
        Self::extreme(call!(Op::Min, &[self]; axes, keep_dims), axes, keep_dims, false)
    }

    fn extreme(call: Call<'_>, axes: &[isize], keep_dims: bool, largest: bool) -> Result<Tensor> {
        let x = call.inputs[0];
        axes::axes(axes, x.rank()).and_then(|axes| not_empty(x, &axes)).map_err(|e| e.in_op(call.op.name()))?;
        along(call, axes, keep_dims, Extreme { largest })
    }

    /// Computes the product along the axes in f64, rounded once; 1 for no elements. The gradient is correct even where
    /// elements are 0.
    ///
    /// # Errors
    /// As for [`mean`](Tensor::mean).
    pub fn prod(&self, axes: &[isize], keep_dims: bool) -> Result<Tensor> {
        along(call!(Op::Prod, &[self]; axes, keep_dims), axes, keep_dims, Product)
    }

    /// Computes the variance along the axes: squared deviations from the mean over `n - correction`, in two passes. A
    /// correction of 0 gives the biased, 1 the unbiased estimate. NaN or infinite when n is not above the correction.
    ///
    /// # Errors
    /// As for [`mean`](Tensor::mean).
    pub fn var(&self, axes: &[isize], correction: usize, keep_dims: bool) -> Result<Tensor> {
        along(call!(Op::Var, &[self]; axes, correction, keep_dims), axes, keep_dims, Variance { correction })
    }

    /// Computes the square root of the [variance](Tensor::var), with one rounding. Where it is 0, so is the gradient.
    ///
    /// # Errors
    /// As for [`mean`](Tensor::mean).
    pub fn std(&self, axes: &[isize], correction: usize, keep_dims: bool) -> Result<Tensor> {
        along(call!(Op::Std, &[self]; axes, correction, keep_dims), axes, keep_dims, Deviation(Variance { correction }))
    }

    /// Computes the p-norm along the axes: `(sum |x|^p)^(1/p)`, or the largest `|x|` for infinite p, also where a power
    /// overflows or underflows. Where the norm is 0, so is the gradient; ties of the infinity norm split it equally.
    ///
    /// # Errors
    /// As for [`mean`](Tensor::mean); [`ErrorKind::Value`](crate::ErrorKind::Value) when p is not above 0.
    pub fn norm(&self, p: f64, axes: &[isize], keep_dims: bool) -> Result<Tensor> {
        if p.is_nan() || p <= 0.0 {
            return Err(Error::value(format!("p = {p}; allowed: above 0, or infinite")).in_op(Op::Norm.name()));
        }
        along(call!(Op::Norm, &[self]; p, axes, keep_dims), axes, keep_dims, PNorm { p })
    }

    /// Computes the sums of the first 1, 2, ... elements along an axis, accumulated in f64, each rounded once.
    ///
    /// # Errors
    /// As for [`mean`](Tensor::mean).
    pub fn cumsum(&self, axis: isize) -> Result<Tensor> {
        along(call!(Op::CumSum, &[self]; axis), &[axis], false, RunningSum)
    }

    /// Computes the products of the first 1, 2, ... elements along an axis. The gradient is correct even where elements
    /// are 0.
    ///
    /// # Errors
    /// As for [`mean`](Tensor::mean).
    pub fn cumprod(&self, axis: isize) -> Result<Tensor> {
        along(call!(Op::CumProd, &[self]; axis), &[axis], false, RunningProduct)
    }

    /// Returns the position of the largest element along an axis, as i64: the first among ties, the first NaN if there
    /// is one.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when there is no such axis, or it is empty.
    pub fn argmax(&self, axis: isize, keep_dims: bool) -> Result<Tensor> {
        arg_extreme(call!(Op::ArgMax, &[self]; axis, keep_dims), axis, keep_dims, true)
    }

    /// Returns the position of the smallest element along an axis, like [`argmax`](Tensor::argmax).
    ///
    /// # Errors
    /// As for [`argmax`](Tensor::argmax).
    pub fn argmin(&self, axis: isize, keep_dims: bool) -> Result<Tensor> {
        arg_extreme(call!(Op::ArgMin, &[self]; axis, keep_dims), axis, keep_dims, false)
    }
}
