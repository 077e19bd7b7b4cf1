//! Functions of one tensor, element by element.

use super::{dispatch, elements, float_kernel};
use crate::dtype::Float;
use crate::{
    Op, Tensor,
    dtype::Real,
    error::Result,
    kernels::elementwise::{self, Unary},
    tensor::{Forward, Stored},
};

/// A differentiable elementwise op. One rounding forward, one backward.
pub(super) fn unary<F: Unary>(op: Op, x: &Tensor, f: F) -> Result<Tensor> {
    dispatch(op, &[x], move |inputs| {
        let x = &inputs[0];
        let value = float_kernel!(x, x.shape(), |s: T| elementwise::unary(f, s))?;
        let keep = if F::SLOPE_FROM_OUTPUT { Tensor::from_array(value.clone()) } else { x.clone() };
        Ok(Forward::new(value, vec![keep], move |b| {
            fn go<T: Stored + Float, F: Unary>(f: F, kept: &[T], grad: &Tensor) -> Vec<T> {
                elementwise::unary_backward(f, kept, &elements::<T>(grad))
            }
            let grad = float_kernel!(b.saved[0], b.grad.shape(), |s: T| go::<T, F>(f, s, b.grad))?;
            Ok(vec![Some(Tensor::from_array(grad))])
        }))
    })
}

macro_rules! unary_ops {
    ($($(#[$doc:meta])* $method:ident $op:ident $from_output:literal: |$x:ident| $value:expr, |$sx:ident, $sy:ident| $slope:expr;)*) => {
        $(
            #[derive(Clone, Copy)]
            struct $op;
            impl Unary for $op {
                fn value<R: Real>(self, $x: R) -> R { $value }
                fn slope<R: Real>(self, $sx: R, $sy: R) -> R { $slope }
                const SLOPE_FROM_OUTPUT: bool = $from_output;
            }
        )*
        impl Tensor { $(
            $(#[$doc])*
            ///
            /// # Errors
            /// [`ErrorKind::DType`](crate::ErrorKind::DType) for an integer or boolean tensor.
            pub fn $method(&self) -> Result<Tensor> { unary(Op::$op, self, $op) }
        )* }
    };
}

unary_ops! {
    /// `max(x, 0)`; the slope at 0 is 0; NaN stays NaN.
    relu Relu true: |x| if x > R::zero() || x.is_nan() { x } else { R::zero() }, |_x, y| if y > R::zero() { R::one() } else { R::zero() };
    /// `tanh(x)`.
    tanh Tanh true: |x| x.tanh(), |_x, y| R::one() - y * y;
    /// `1 / (1 + exp(-x))`.
    sigmoid Sigmoid true: |x| sigmoid(x), |_x, y| y * (R::one() - y);
    /// `exp(x)`.
    exp Exp true: |x| x.exp(), |_x, y| y;
}

/// The logistic function without overflow on either side.
pub(super) fn sigmoid<R: Real>(x: R) -> R {
    if x >= R::zero() {
        R::one() / (R::one() + (-x).exp())
    } else {
        let e = x.exp();
        e / (R::one() + e)
    }
}
