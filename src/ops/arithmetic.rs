//! Arithmetic of two tensors with broadcasting.

use ndarray::{ArrayD, ArrayViewD, IxDyn, Zip};

use super::dispatch;
use crate::{
    DType, Op, Tensor,
    dtype::{Float, Real},
    error::{Error, Result},
    tensor::{Array, Forward, Stored, with_float},
};

/// The shape in which two shapes meet: axes are matched from the last, and an axis of length 1 stretches.
///
/// # Errors
/// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when two axes differ and neither is 1.
pub(crate) fn broadcast_shape(a: &[usize], b: &[usize]) -> Result<Vec<usize>> {
    let rank = a.len().max(b.len());
    let at = |shape: &[usize], i: usize| (i + shape.len()).checked_sub(rank).map_or(1, |i| shape[i]);
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y => Ok(x),
            (1, y) => Ok(y),
            (x, 1) => Ok(x),
            _ => Err(Error::shape(format!("the shapes {a:?} and {b:?} do not broadcast"))),
        })
        .collect()
}

/// A view of `x` stretched to `shape`, to which it is known to broadcast.
pub(crate) fn stretched<'a, T: Stored>(x: &'a Array, shape: &[usize]) -> Result<ArrayViewD<'a, T>> {
    let array = T::unwrap(x).ok_or_else(|| Error::dtype(format!("expected {}, got {}", T::DTYPE, x.dtype())))?;
    let from = array.shape().to_vec();
    array
        .broadcast(IxDyn(shape))
        .ok_or_else(|| Error::shape(format!("the shape {from:?} does not stretch to {shape:?}")))
}

/// `f` of every pair of elements, rounded once.
fn zip<T: Stored + Float>(a: &Array, b: &Array, f: impl Fn(T::Wide, T::Wide) -> T::Wide) -> Result<Array> {
    let shape = broadcast_shape(a.shape(), b.shape())?;
    let out: ArrayD<T> = Zip::from(stretched::<T>(a, &shape)?)
        .and(stretched::<T>(b, &shape)?)
        .map_collect(|&a, &b| T::narrow(f(a.widen(), b.widen())));
    Ok(T::wrap(out.into_shared()))
}

/// A differentiable function of two numbers.
pub(super) trait Binary: Copy + Send + Sync + 'static {
    fn value<R: Real>(self, a: R, b: R) -> R;
    /// The two partial derivatives.
    fn slopes<R: Real>(self, a: R, b: R) -> (R, R);
    /// Whether the slopes are constants, so that nothing need be kept.
    const CONSTANT_SLOPES: bool = false;
}

/// A differentiable elementwise op of two tensors.
pub(super) fn binary<F: Binary>(op: Op, a: &Tensor, b: &Tensor, f: F) -> Result<Tensor> {
    let (a, b) = meet(a, b);
    dispatch(op, &[&a, &b], move |inputs| {
        let [a, b] = inputs else { unreachable!("two inputs") };
        let value = with_float!(a.array(), x: T => { let _ = x; zip::<T>(a.array(), b.array(), |a, b| f.value(a, b)) },
            else Err(Error::dtype(format!("needs floating tensors, got {}", a.dtype()))))?;
        let shapes = [a.shape().to_vec(), b.shape().to_vec()];
        let saved = if F::CONSTANT_SLOPES { vec![] } else { vec![a.clone(), b.clone()] };
        Ok(Forward::new(value, saved, move |back| {
            fn go<T: Stored + Float, F: Binary>(
                f: F,
                back: &crate::tensor::Backward<'_>,
                which: usize,
                to: &[usize],
            ) -> Result<Tensor> {
                let grad = stretched::<T>(back.grad.array(), back.grad.shape())?;
                let pick = |(a, b): (T::Wide, T::Wide)| if which == 0 { a } else { b };
                let product: ArrayD<T::Wide> = if F::CONSTANT_SLOPES {
                    let slope = pick(f.slopes(T::Wide::one(), T::Wide::one()));
                    grad.map(|&g| g.widen() * slope)
                } else {
                    Zip::from(&grad)
                        .and(stretched::<T>(back.saved[0].array(), back.grad.shape())?)
                        .and(stretched::<T>(back.saved[1].array(), back.grad.shape())?)
                        .map_collect(|&g, &a, &b| g.widen() * pick(f.slopes(a.widen(), b.widen())))
                };
                let sum = sum_to(product, to).map(|&x| T::narrow(x));
                Ok(Tensor::from_array(T::wrap(sum.into_shared())))
            }
            let grad = |which: usize| -> Result<Option<Tensor>> {
                if !back.needs[which] {
                    return Ok(None);
                }
                with_float!(back.grad.array(), g: T => { let _ = g; go::<T, F>(f, back, which, &shapes[which]).map(Some) },
                    else unreachable!("gradients are floating"))
            };
            Ok(vec![grad(0)?, grad(1)?])
        }))
    })
}

use num_traits::One;

/// Integers and booleans beside a floating tensor become floating: `mask * x`.
fn meet(a: &Tensor, b: &Tensor) -> (Tensor, Tensor) {
    let lift = |x: &Tensor, other: DType| {
        if x.dtype().is_float() || !other.is_float() { x.clone() } else { x.cast(other) }
    };
    (lift(a, b.dtype()), lift(b, a.dtype()))
}

/// Sums over the axes that broadcasting had stretched.
pub(crate) fn sum_to<R: Real>(mut x: ArrayD<R>, shape: &[usize]) -> ArrayD<R> {
    while x.ndim() > shape.len() {
        x = x.sum_axis(ndarray::Axis(0));
    }
    for (axis, &len) in shape.iter().enumerate() {
        if len == 1 && x.shape()[axis] != 1 {
            x = x.sum_axis(ndarray::Axis(axis)).insert_axis(ndarray::Axis(axis));
        }
    }
    x
}

macro_rules! binary_ops {
    ($($(#[$doc:meta])* $method:ident $op:ident $constant:literal: |$a:ident, $b:ident| $value:expr, $slopes:expr;)*) => {
        $(
            #[derive(Clone, Copy)]
            struct $op;
            impl Binary for $op {
                fn value<R: Real>(self, $a: R, $b: R) -> R { $value }
                #[allow(unused_variables)]
                fn slopes<R: Real>(self, $a: R, $b: R) -> (R, R) { $slopes }
                const CONSTANT_SLOPES: bool = $constant;
            }
        )*
        impl Tensor { $(
            $(#[$doc])*
            /// Shapes broadcast; dtypes promote.
            ///
            /// # Errors
            /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not broadcast,
            /// [`ErrorKind::DType`](crate::ErrorKind::DType) when neither tensor is floating.
            pub fn $method(&self, other: &Tensor) -> Result<Tensor> { binary(Op::$op, self, other, $op) }
        )* }
    };
}

binary_ops! {
    /// `a + b`.
    add Add true: |a, b| a + b, (R::one(), R::one());
    /// `a - b`.
    sub Sub true: |a, b| a - b, (R::one(), -R::one());
    /// `a * b`.
    mul Mul false: |a, b| a * b, (b, a);
    /// `a / b`.
    div Div false: |a, b| a / b, (b.recip(), -a / (b * b));
}
