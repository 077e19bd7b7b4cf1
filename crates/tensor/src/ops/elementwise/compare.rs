//! Comparisons, logic, and selection by a mask.

use std::num::FpCategory;

use precast_kernels::{
    float::Float,
    strides::{Broadcast, zip, zip3},
};

use crate::{
    DType, Op, Tensor,
    error::{Error, Result},
    ops::{
        by_float, call, dispatch, elements,
        elementwise::{
            arithmetic::Operand,
            pairwise::{broadcast_shape, meet, sum_to},
        },
    },
    tensor::{Array, Forward, Stored, recording, with_array},
};

/// Returns a boolean tensor, `true` where the relation holds for a pair.
fn compare(op: Op, a: &Tensor, b: Result<Tensor>, holds: impl Relation) -> Result<Tensor> {
    let (a, b) = meet(a, &b.map_err(|e| e.in_op(op.name()))?);
    dispatch(call!(op, &[&a, &b]), |inputs| {
        let [a, b] = inputs else { unreachable!("two inputs") };
        let shape = broadcast_shape(a.shape(), b.shape())?;
        let walk = Broadcast::new(&shape, [a.shape(), b.shape()]);
        let value = with_array!(a.array(), array: T => {
            let _ = array;
            zip(&walk, &elements::<T>(a), &elements::<T>(b), |a, b| holds.of(&a, &b))
        });
        Array::from_vec(value, &shape).map(Forward::constant)
    })
}

/// A relation of two elements of any dtype.
trait Relation {
    fn of<T: PartialOrd>(&self, a: &T, b: &T) -> bool;
}

macro_rules! comparisons {
    ($($(#[$doc:meta])* $method:ident $op:ident $holds:ident;)*) => {
        $(
            struct $op;
            impl Relation for $op {
                fn of<T: PartialOrd>(&self, a: &T, b: &T) -> bool { a.$holds(b) }
            }
        )*
        impl Tensor { $(
            $(#[$doc])*
            /// The other is a tensor or a number, which takes this tensor's dtype. Shapes broadcast; dtypes promote. The
            /// result is boolean.
            ///
            /// # Errors
            /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not broadcast,
            /// [`ErrorKind::DType`](crate::ErrorKind::DType) when the dtype does not have the number.
            pub fn $method(&self, other: impl Operand) -> Result<Tensor> { compare(Op::$op, self, other.beside(self), $op) }
        )* }
    };
}

comparisons! {
    /// Computes `a == b`; NaN equals nothing.
    eq Equal eq;
    /// Computes `a != b`; NaN differs from everything.
    ne NotEqual ne;
    /// Computes `a < b`; false for NaN.
    lt Less lt;
    /// Computes `a <= b`; false for NaN.
    le LessEqual le;
    /// Computes `a > b`; false for NaN.
    gt Greater gt;
    /// Computes `a >= b`; false for NaN.
    ge GreaterEqual ge;
}

fn only_bool(x: &Tensor) -> Result<()> {
    match x.dtype() {
        DType::Bool => Ok(()),
        other => Err(Error::dtype(format!("needs boolean tensors, got {other}; compare first, or cast"))),
    }
}

fn logical(op: Op, a: &Tensor, b: &Tensor, f: impl Fn(bool, bool) -> bool) -> Result<Tensor> {
    dispatch(call!(op, &[a, b]), |inputs| {
        let [a, b] = inputs else { unreachable!("two inputs") };
        only_bool(a)?;
        only_bool(b)?;
        let shape = broadcast_shape(a.shape(), b.shape())?;
        let walk = Broadcast::new(&shape, [a.shape(), b.shape()]);
        Array::from_vec(zip(&walk, &elements(a), &elements(b), f), &shape).map(Forward::constant)
    })
}

impl Tensor {
    /// Computes the logical AND of two boolean tensors. Shapes broadcast.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not broadcast,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when a tensor is not boolean.
    pub fn logical_and(&self, other: &Tensor) -> Result<Tensor> {
        logical(Op::LogicalAnd, self, other, |a, b| a && b)
    }

    /// Computes the logical OR of two boolean tensors. Shapes broadcast.
    ///
    /// # Errors
    /// As for [`logical_and`](Tensor::logical_and).
    pub fn logical_or(&self, other: &Tensor) -> Result<Tensor> {
        logical(Op::LogicalOr, self, other, |a, b| a || b)
    }

    /// Computes the logical NOT of a boolean tensor.
    ///
    /// # Errors
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when the tensor is not boolean.
    pub fn logical_not(&self) -> Result<Tensor> {
        dispatch(call!(Op::LogicalNot, &[self]), |inputs| {
            only_bool(&inputs[0])?;
            let not: Vec<bool> = elements::<bool>(&inputs[0]).iter().map(|x| !x).collect();
            Array::from_vec::<bool>(not, inputs[0].shape()).map(Forward::constant)
        })
    }

    /// Returns `a` where this boolean tensor is true, and `b` elsewhere. The three shapes broadcast; the dtypes of `a`
    /// and `b` promote.
    ///
    /// Elements that are not selected do not contribute to gradients, even if they are NaN.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not broadcast,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when this tensor is not boolean.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// use precast::Tensor;
    /// let x = Tensor::from_vec(vec![-1f32, 2.], &[2])?;
    /// let zero = Tensor::scalar(0.0, x.dtype());
    /// assert_eq!(x.gt(&zero)?.select(&x, &zero)?.to_f64(), [0., 2.]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn select(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        let (a, b) = meet(a, b);
        dispatch(call!(Op::Where, &[self, &a, &b]), |inputs| {
            let [mask, a, b] = inputs else { unreachable!("three inputs") };
            only_bool(mask)?;
            let shape = broadcast_shape(&broadcast_shape(mask.shape(), a.shape())?, b.shape())?;
            let walk = Broadcast::new(&shape, [mask.shape(), a.shape(), b.shape()]);
            let value = with_array!(a.array(), array: T => {
                let _ = array;
                let chosen = zip3(&walk, &elements(mask), &elements::<T>(a), &elements::<T>(b), |m, a, b| if m { a } else { b });
                Array::from_vec(chosen, &shape)
            })?;
            if !a.dtype().is_float() {
                return Ok(Forward::constant(value));
            }
            let shapes = [a.shape().to_vec(), b.shape().to_vec()];
            Ok(Forward::new(value, vec![mask.clone()], move |back| {
                let grad = |which: usize| {
                    match back.needs[which + 1] {
                    true => {
                        by_float!(back.grad, T => chosen_gradient::<T>(&back.saved[0], back.grad, which == 0, &shapes[which]))
                            .map(Some)
                    }
                    false => Ok(None),
                }
                };
                Ok(vec![None, grad(0)?, grad(1)?])
            }))
        })
    }

    /// Returns `value` where a boolean mask is true and this tensor elsewhere. The mask broadcasts to this tensor's
    /// shape.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the mask does not broadcast to this tensor,
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when the value is finite and outside the range of the dtype,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when the mask is not boolean or this tensor not floating.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::{DType, Tensor};
    /// let mask = Tensor::from_vec(vec![true, false], &[2])?;
    /// let scores = Tensor::ones(&[2, 2], DType::F16);
    /// assert_eq!(scores.masked_fill(&mask, f64::NEG_INFINITY)?.to_f64()[2..], [f64::NEG_INFINITY, 1.0]);
    /// let message = scores.masked_fill(&mask, -1e9).unwrap_err().to_string();
    /// assert_eq!(message, "MaskedFill: -1000000000 is beyond what f16 holds; minus infinity is allowed");
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn masked_fill(&self, mask: &Tensor, value: f64) -> Result<Tensor> {
        dispatch(call!(Op::MaskedFill, &[self, mask]; value), |inputs| {
            let (x, mask) = (&inputs[0], &inputs[1]);
            only_bool(mask)?;
            let shape = x.shape().to_vec();
            if broadcast_shape(&shape, mask.shape()).ok().as_ref() != Some(&shape) {
                return Err(Error::shape(format!("the mask {:?} does not stretch to {shape:?}", mask.shape())));
            }
            let fill = Tensor::scalar(value, x.dtype());
            if value.is_finite() && !fill.all_finite() {
                let infinity = if value < 0.0 { "minus infinity" } else { "infinity" };
                let message = format!("{value} is beyond what {} holds; {infinity} is allowed", x.dtype());
                return Err(Error::value(message));
            }
            let walk = Broadcast::new(&shape, [mask.shape(), x.shape()]);
            let value = by_float!(x, T => {
                let fill = elements::<T>(&fill)[0];
                let filled = zip(&walk, &elements(mask), &elements::<T>(x), |masked, x| if masked { fill } else { x });
                Array::from_vec(filled, &shape)
            })?;
            Ok(Forward::new(value, vec![mask.clone()], move |back| {
                let grad = by_float!(back.grad, T => chosen_gradient::<T>(&back.saved[0], back.grad, false, &shape))?;
                Ok(vec![Some(grad), None])
            }))
        })
    }

    /// Returns a boolean tensor, `true` where this tensor is neither infinite nor NaN. Integers and booleans are always
    /// finite.
    ///
    /// # Errors
    /// None of its own; a region may cast the tensor first.
    pub fn is_finite(&self) -> Result<Tensor> {
        self.has_form(Op::IsFinite, |category| category != FpCategory::Infinite && category != FpCategory::Nan)
    }

    /// Returns a boolean tensor, `true` where this tensor is NaN. Integers and booleans never are.
    ///
    /// # Errors
    /// None of its own; a region may cast the tensor first.
    pub fn is_nan(&self) -> Result<Tensor> {
        self.has_form(Op::IsNan, |category| category == FpCategory::Nan)
    }

    /// Returns a boolean tensor, `true` where this tensor is infinite, of either sign. Integers and booleans never are.
    ///
    /// # Errors
    /// None of its own; a region may cast the tensor first.
    pub fn is_inf(&self) -> Result<Tensor> {
        self.has_form(Op::IsInf, |category| category == FpCategory::Infinite)
    }

    /// Tests the category of each number; that of integers and booleans is [`FpCategory::Normal`].
    fn has_form(&self, op: Op, holds: impl Fn(FpCategory) -> bool) -> Result<Tensor> {
        dispatch(call!(op, &[self]), |inputs| {
            let x = &inputs[0];
            let found = match x.dtype().is_float() {
                true => by_float!(x, T => {
                    Ok(T::widen_slice(&elements::<T>(x)).iter().map(|x| holds(x.classify())).collect())
                })?,
                false => vec![holds(FpCategory::Normal); x.len()],
            };
            Array::from_vec(found, x.shape()).map(Forward::constant)
        })
    }

    /// Replaces NaN and the infinities by numbers. The gradient of a replaced element is 0.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when a number is finite and outside the range of the dtype,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when this tensor is not floating.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::Tensor;
    /// let x = Tensor::from_vec(vec![f32::NAN, 1.0, f32::NEG_INFINITY], &[3])?;
    /// assert_eq!(x.nan_to_num(0.0, 9.0, -9.0)?.to_f64(), [0.0, 1.0, -9.0]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn nan_to_num(&self, nan: f64, infinity: f64, minus_infinity: f64) -> Result<Tensor> {
        let infinite = self.is_inf()?;
        let negative = self.lt(&Tensor::scalar(0.0, self.dtype()))?;
        let numbers = self.masked_fill(&self.is_nan()?, nan)?;
        let below = numbers.masked_fill(&infinite.logical_and(&negative)?, minus_infinity)?;
        below.masked_fill(&infinite.logical_and(&negative.logical_not()?)?, infinity)
    }

    /// Returns whether each element differs from that of the other tensor by at most `atol + rtol · |other|`. Shapes
    /// broadcast. Equal infinities are close, NaN is close to nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not broadcast.
    #[doc(alias = "isclose")]
    pub fn all_close(&self, other: &Tensor, rtol: f64, atol: f64) -> Result<bool> {
        recording::read(self);
        recording::read(other);
        let shape = broadcast_shape(self.shape(), other.shape())?;
        let walk = Broadcast::new(&shape, [self.shape(), other.shape()]);
        let (a, b) = (self.to_f64(), other.to_f64());
        Ok(zip(&walk, &a, &b, |a, b| a == b || (a - b).abs() <= atol + rtol * b.abs() && b.is_finite())
            .iter()
            .all(|x| *x))
    }

    /// Returns whether no element is infinite or NaN, as a loss scaler checks for every gradient.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// use precast::{DType, Tensor};
    /// assert!(Tensor::scalar(65504.0, DType::F16).all_finite());
    /// assert!(!Tensor::scalar(65520.0, DType::F16).all_finite());
    /// ```
    pub fn all_finite(&self) -> bool {
        recording::read(self);
        self.has_only_finite()
    }
}

/// Computes the gradient of the elements selected by a mask (`wanted` is the mask's value there), summed to their shape
/// with one rounding.
fn chosen_gradient<T: Stored + Float>(mask: &Tensor, grad: &Tensor, wanted: bool, to: &[usize]) -> Result<Tensor>
where
    T::Wide: Stored,
{
    let walk = Broadcast::new(grad.shape(), [mask.shape(), grad.shape()]);
    let wide = elements::<T>(grad);
    let chosen = |m: bool, g: T::Wide| if m == wanted { g } else { T::Wide::default() };
    let passed = zip(&walk, &elements(mask), &T::widen_slice(&wide), chosen);
    Array::from_vec(T::narrow_vec(sum_to(passed, grad.shape(), to)), to).map(Tensor::from_array)
}
