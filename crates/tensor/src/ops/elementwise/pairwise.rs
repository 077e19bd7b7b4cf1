//! Functions of pairs of elements with broadcasting: the engine of arithmetic and of the elementwise losses.

use ndarray::{ArrayViewD, IxDyn};
use precast_kernels::{
    elementwise::{Binary, Function, Input, MapSlices, PairSlope, PairValue, Times, map, map_stretched},
    float::{Float, Real},
    memory::{Pooled, uninit_vec, with_capacity},
    reduce,
    strides::{Broadcast, zip},
};

use crate::{
    DType, Op, Tensor,
    error::{Error, Result},
    ops::{
        Call, Reduction, by_float, dispatch, elements, loss::heads::check_difference, spatial::windows::checked_shape,
    },
    tensor::{Array, Backward, Forward, Stored, Value},
};

/// Returns the broadcast shape of two shapes. Axes are aligned at the last, and an axis of length 1 stretches.
///
/// # Errors
/// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when two axes differ and neither is 1.
pub(crate) fn broadcast_shape(a: &[usize], b: &[usize]) -> Result<Vec<usize>> {
    let rank = a.len().max(b.len());
    let at = |shape: &[usize], i: usize| (i + shape.len()).checked_sub(rank).map_or(1, |i| shape[i]);
    let shape = (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y => Ok(x),
            (1, y) => Ok(y),
            (x, 1) => Ok(x),
            _ => Err(Error::shape(format!("the shapes {a:?} and {b:?} do not broadcast"))),
        })
        .collect::<Result<_>>()?;
    checked_shape(shape)
}

/// Returns a view of `x` broadcast to `shape`, which must be compatible.
pub(crate) fn stretched<'a, T: Stored>(x: &'a Array, shape: &[usize]) -> Result<ArrayViewD<'a, T>> {
    let array = T::unwrap(x).ok_or_else(|| Error::dtype(format!("expected {}, got {}", T::DTYPE, x.dtype())))?;
    let from = array.shape().to_vec();
    array
        .broadcast(IxDyn(shape))
        .ok_or_else(|| Error::shape(format!("the shape {from:?} does not stretch to {shape:?}")))
}

/// Converts two tensors for a mixed operation such as `mask * x`: integers and booleans become floating if the other
/// tensor is, and booleans become integers if the other tensor is.
pub(crate) fn meet(a: &Tensor, b: &Tensor) -> (Tensor, Tensor) {
    let lift = |x: &Tensor, other: DType| {
        let met = x.dtype().promote(other);
        if x.dtype().is_float() || !met.is_float() && met == x.dtype() { x.clone() } else { x.cast(met) }
    };
    (lift(a, b.dtype()), lift(b, a.dtype()))
}

/// Sums over the axes that broadcasting stretched, in a fixed pairwise order.
pub(crate) fn sum_to<R: Real>(x: Pooled<R>, from: &[usize], to: &[usize]) -> Pooled<R> {
    let padded = std::iter::repeat_n(&1, from.len() - to.len()).chain(to);
    let stretched: Vec<usize> =
        padded.zip(from).enumerate().filter(|(_, (to, from))| to != from).map(|(i, _)| i).collect();
    if stretched.is_empty() {
        return x;
    }
    sum_over::<R>(&x, from, &stretched)
}

/// Sums over axes, given in ascending order, in a fixed pairwise order, without rounding. The result is in row-major
/// order.
pub(crate) fn sum_over<T: Float>(x: &[T], shape: &[usize], axes: &[usize]) -> Pooled<T::Wide> {
    let mut shape = shape.to_vec();
    let mut sums: Option<Pooled<T::Wide>> = None;
    let mut left = axes;
    // Adjacent axes are summed as one, the last ones first.
    while let Some(&last) = left.last() {
        let together = left.iter().rev().enumerate().take_while(|&(i, &axis)| axis + i == last).count();
        let first = last + 1 - together;
        left = &left[..left.len() - together];
        let outer = shape[..first].iter().product();
        let n = shape[first..=last].iter().product();
        let inner = shape[last + 1..].iter().product();
        let next = match &sums {
            None => reduce::sum_middle(x, outer, n, inner),
            Some(sums) => reduce::sum_middle::<T::Wide>(sums, outer, n, inner),
        };
        sums = Some(next);
        shape[first..=last].fill(1);
    }
    sums.unwrap_or_else(|| T::widen_slice(x).into_buffer())
}

/// Runs a differentiable function of two tensors, optionally reduced, with one rounding.
pub(in crate::ops) fn pairwise<F: Binary>(call: Call<'_>, f: F, reduction: Reduction) -> Result<Tensor> {
    pairwise_as(call, call.inputs[1].shape(), f, reduction)
}

/// Runs [`pairwise`] with `b` broadcast as if it had another shape with the same number of elements.
pub(in crate::ops) fn pairwise_as<F: Binary>(
    call: Call<'_>,
    b_shape: &[usize],
    f: F,
    reduction: Reduction,
) -> Result<Tensor> {
    let slopes = if F::CONSTANT_SLOPES {
        Slopes::Constant(f.slopes(1.0, 1.0).into())
    } else {
        Slopes::Varying([Box::new(PairSlope::<F, false>(f)), Box::new(PairSlope::<F, true>(f))])
    };
    let integer = |a, b| f.integer(a, b);
    map_pairs(call, b_shape, (&PairValue(f), &integer, slopes), reduction)
}

/// Partial derivatives of a function of two numbers.
enum Slopes {
    Constant([f64; 2]),
    /// Functions of the gradient, a and b.
    Varying([Box<dyn Function>; 2]),
}

/// Runs [`pairwise_as`] with compiled functions.
fn map_pairs(
    call: Call<'_>,
    b_shape: &[usize],
    (value, integer, slopes): (&dyn Function, &dyn Fn(i64, i64) -> Option<i64>, Slopes),
    reduction: Reduction,
) -> Result<Tensor> {
    if call.op == Op::Sub {
        check_difference(call.inputs[0], call.inputs[1]);
    }
    let (a, b) = meet(call.inputs[0], call.inputs[1]);
    dispatch(Call { inputs: &[&a, &b], ..call }, move |inputs| {
        let [a, b] = inputs else { unreachable!("two inputs") };
        let shape = broadcast_shape(a.shape(), b_shape)?;
        let shapes = [a.shape().to_vec(), b_shape.to_vec()];
        if a.dtype() == DType::I64 && integer(0, 0).is_some() {
            let walk = Broadcast::new(&shape, [&shapes[0], &shapes[1]]);
            let whole = |a, b| integer(a, b).unwrap_or_default();
            let value = zip(&walk, &elements::<i64>(a), &elements::<i64>(b), whole);
            return Array::from_vec(value, &shape).map(Forward::constant);
        }
        let is_sum = call.op == Op::Add && shapes[1] == shape;
        let value: Value = match is_sum.then(|| a.unread_sum(b)).flatten() {
            Some(sum) => sum.into(),
            None => by_float!(a, T => value_of::<T>(value, [a, b], &shapes, &shape, reduction))?.into(),
        };
        let own_shapes = [a.shape().to_vec(), b.shape().to_vec()];
        let saved = match slopes {
            Slopes::Constant(_) => vec![],
            Slopes::Varying(_) => vec![a.clone(), b.clone()],
        };
        Ok(Forward::new(value, saved, move |back| {
            let grad = |which: usize| -> Result<Option<Tensor>> {
                if !back.needs[which] {
                    return Ok(None);
                }
                // Addition passes the gradient on unchanged.
                if matches!(slopes, Slopes::Constant(slopes) if slopes[which] == 1.0)
                    && own_shapes[which] == back.grad.shape()
                {
                    return Ok(Some(back.grad.clone()));
                }
                by_float!(back.grad, T => {
                    let sums = gradient::<T>(&slopes, back, which, &shapes, &shape, reduction)?;
                    Array::from_vec(sums, &own_shapes[which]).map(Tensor::from_array).map(Some)
                })
            };
            Ok(vec![grad(0)?, grad(1)?])
        }))
    })
}

fn value_of<T: Stored + MapSlices + Float<Wide: MapSlices>>(
    f: &dyn Function,
    [a, b]: [&Tensor; 2],
    shapes: &[Vec<usize>; 2],
    shape: &[usize],
    reduction: Reduction,
) -> Result<Array> {
    let (a, b) = (elements::<T>(a), elements::<T>(b));
    if reduction == Reduction::None && shapes[0] == shapes[1] {
        return Array::from_vec(map(f, &[&a, &b]), shape);
    }
    let walk = Broadcast::new(shape, [&shapes[0], &shapes[1]]);
    let inputs = [Input::Stored(&a[..]), Input::Stored(&b)];
    if reduction == Reduction::None {
        return Array::from_vec(rounded(f, &walk, inputs), shape);
    }
    let mut pairs = with_capacity(walk.len());
    map_stretched(f, &walk, inputs, &mut |part| pairs.extend_from_slice(part));
    let divisor = T::Wide::of(reduction.divisor(pairs.len()));
    Array::from_vec(vec![T::narrow(reduce::sum(&pairs) / divisor)], &[])
}

/// Runs [`map_stretched`], rounding each element once.
fn rounded<T: Float<Wide: MapSlices>, const N: usize>(
    f: &dyn Function,
    walk: &Broadcast<N>,
    inputs: [Input<'_, T>; N],
) -> Pooled<T> {
    let (mut values, mut done) = (uninit_vec(walk.len()), 0);
    map_stretched(f, walk, inputs, &mut |part| {
        T::narrow_into(part, &mut values[done..][..part.len()]);
        done += part.len();
    });
    values
}

/// Computes the gradient of one of the two inputs. `shapes` are their shapes before broadcasting to `shape`.
fn gradient<T: Stored + MapSlices>(
    slopes: &Slopes,
    back: &Backward<'_>,
    which: usize,
    shapes: &[Vec<usize>; 2],
    shape: &[usize],
    reduction: Reduction,
) -> Result<Pooled<T>>
where
    T::Wide: Stored + MapSlices,
{
    let grad = elements::<T>(back.grad);
    // Without stretching or summing: one rounding.
    let as_it_is = reduction == Reduction::None && shapes[which] == shape;
    let product: Pooled<T::Wide> = match (slopes, back.saved) {
        (Slopes::Constant(slopes), _) if as_it_is => return Ok(map(&Times(slopes[which]), &[&grad])),
        (Slopes::Constant(slopes), _) => map(&Times(slopes[which]), &[&T::widen_slice(&grad)]),
        (Slopes::Varying(slopes), [a, b]) => {
            let (slope, a, b) = (&*slopes[which], elements::<T>(a), elements::<T>(b));
            if as_it_is && shapes[0] == shapes[1] {
                return Ok(map(slope, &[&grad, &a, &b]));
            }
            let walk = Broadcast::new(shape, [back.grad.shape(), &shapes[0], &shapes[1]]);
            let others = [Input::Stored(&a[..]), Input::Stored(&b)];
            if as_it_is {
                return Ok(rounded(slope, &walk, [Input::Stored(&grad), others[0], others[1]]));
            }
            let divisor = T::Wide::of(reduction.divisor(shape.iter().product()));
            let mut grad = T::widen_slice(&grad).into_buffer();
            grad.iter_mut().for_each(|grad| *grad = *grad / divisor);
            let mut product = with_capacity(walk.len());
            let each = &mut |part: &[T::Wide]| product.extend_from_slice(part);
            map_stretched(slope, &walk, [Input::Wide(&grad), others[0], others[1]], each);
            product
        }
        (Slopes::Varying(_), _) => unreachable!("both inputs are kept"),
    };
    Ok(T::narrow_vec(sum_to(product, shape, &shapes[which])))
}
