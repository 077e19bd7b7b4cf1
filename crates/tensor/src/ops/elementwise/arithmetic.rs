//! Arithmetic on two tensors with broadcasting.

use precast_kernels::{elementwise::Binary, float::Real};

use crate::{
    DType, Op, Tensor,
    error::{Error, Result},
    no_grad,
    ops::{
        Reduction, call, elements,
        elementwise::{
            Path,
            pairwise::{broadcast_shape, pairwise},
            unary::{part, power_slope},
        },
    },
    tensor::recording,
};

/// Kind of partial derivatives.
enum Slopes {
    /// Constants: the backward pass reads no input.
    Constant,
    Varying,
    /// Those of a function that is constant in one of its numbers; see [`Binary::FLAT`].
    Flat,
}

/// Each row is `method Op Slopes Path |a, b| value, slopes, integer`: whether the slopes are constants, how 16-bit
/// numbers reach the function ([`Path`]), and the function of integers, if there is one.
macro_rules! binary_ops {
    ($($(#[$doc:meta])* $method:ident $op:ident $slope:ident $path:ident
        |$a:ident, $b:ident| $value:expr, $slopes:expr, $integer:expr;)*) => {
        $(
            #[derive(Clone, Copy)]
            struct $op;
            impl Binary for $op {
                const CONSTANT_SLOPES: bool = matches!(Slopes::$slope, Slopes::Constant);
                const DIRECT: bool = matches!(Path::$path, Path::Direct);
                const FLAT: bool = matches!(Slopes::$slope, Slopes::Flat);
                #[inline(always)]
                fn value<R: Real>(self, $a: R, $b: R) -> R { $value }
                #[allow(unused_variables, reason = "constant slopes read neither")]
                #[inline(always)]
                fn slopes<R: Real>(self, $a: R, $b: R) -> (R, R) { $slopes }
                fn integer(self, a: i64, b: i64) -> Option<i64> {
                    let whole: Option<fn(i64, i64) -> i64> = $integer;
                    whole.map(|f| f(a, b))
                }
            }
        )*
        impl Tensor { $(
            $(#[$doc])*
            /// Shapes broadcast; dtypes promote.
            ///
            /// # Errors
            /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not broadcast,
            /// [`ErrorKind::DType`](crate::ErrorKind::DType) when the function is not defined for the dtypes.
            pub fn $method(&self, other: &Tensor) -> Result<Tensor> {
                pairwise(call!(Op::$op, &[self, other]), $op, Reduction::None)
            }
        )* }
    };
}

binary_ops! {
    /// Computes `a + b`. Integers wrap.
    add Add Constant Direct |a, b| a + b, (R::one(), R::one()), Some(i64::wrapping_add);
    /// Computes `a - b`. Integers wrap.
    sub Sub Constant Direct |a, b| a - b, (R::one(), -R::one()), Some(i64::wrapping_sub);
    /// Computes `a * b`. Integers wrap.
    mul Mul Varying Direct |a, b| a * b, (b, a), Some(i64::wrapping_mul);
    /// Computes `a / b` of floating tensors.
    div Div Varying Blocks |a, b| a / b, (b.recip(), -(a / b) / b), None;
    /// Computes `a` to the power `b`, for floating tensors. The gradient of `b` is 0 where `a` is 0 and `b` is not
    /// negative.
    pow Pow Varying Blocks |a, b| a.powf(b), (power_slope(a, b), exponent_slope(a, b)), None;
    /// Returns the larger of the two, NaN if one is NaN. In a tie the gradient is split equally.
    maximum Maximum Flat Blocks |a, b| if a > b || a.is_nan() { a } else { b }, shares(a > b, a < b), Some(i64::max);
    /// Returns the smaller of the two, NaN if one is NaN. In a tie the gradient is split equally.
    minimum Minimum Flat Blocks |a, b| if a < b || a.is_nan() { a } else { b }, shares(a < b, a > b), Some(i64::min);
    /// Computes the angle in radians, between -π and π, of the point with ordinate `a` and abscissa `b`. The gradient
    /// at the origin is 0.
    atan2 Atan2 Varying Blocks |a, b| a.atan2(b), {
        let length = a.hypot(b);
        // Far from the origin the slope is 0, except that overflow is treated like a quotient of infinities.
        let flat = length == R::zero() || length.is_infinite() && !(a.is_nan() || b.is_nan());
        if flat { (R::zero(), R::zero()) } else { (b / length / length, -a / length / length) }
    }, None;
    /// Computes `sqrt(a² + b²)` without intermediate overflow. The gradient at the origin is 0.
    hypot Hypot Varying Blocks |a, b| a.hypot(b), {
        let length = a.hypot(b);
        if length == R::zero() { (R::zero(), R::zero()) } else { (ratio(a, length, b), ratio(b, length, a)) }
    }, None;
    /// Computes the remainder of `a / b` with the sign of `a`, for floating tensors (C's `fmod`).
    fmod Fmod Varying Blocks |a, b| a % b, (R::one(), -(a / b).trunc()), None;
    /// Computes the remainder of `a / b` with the sign of `b`, for floating tensors (Python's `%`).
    remainder Remainder Varying Blocks |a, b| {
        let rest = a % b;
        if rest != R::zero() && (rest < R::zero()) != (b < R::zero()) { rest + b } else { rest }
    }, {
        // A quotient that underflows to 0 is still negative where the signs differ.
        let whole = (a / b).floor();
        let below = whole == R::zero() && a != R::zero() && (a < R::zero()) != (b < R::zero());
        (R::one(), if below { R::one() } else { -whole })
    }, None;
}

/// Computes `a / length` for the sides a and b, also for infinite a and for a length out of range; NaN if both sides are
/// infinite.
#[inline(always)]
fn ratio<R: Real>(a: R, length: R, b: R) -> R {
    if a.is_infinite() && b.is_finite() {
        return a.signum();
    }
    if length.is_infinite() && a.is_finite() && b.is_finite() {
        let (a, b) = (a * R::of(0.25), b * R::of(0.25));
        return a / a.hypot(b);
    }
    if length < R::min_positive_value() {
        let up = R::epsilon().recip();
        let (a, b) = (a * up * up, b * up * up);
        return a / a.hypot(b);
    }
    a / length
}

#[inline(always)]
fn exponent_slope<R: Real>(a: R, b: R) -> R {
    if a == R::zero() && b >= R::zero() { R::zero() } else { part(a.powf(b), a.ln()) }
}

#[inline(always)]
fn shares<R: Real>(first: bool, second: bool) -> (R, R) {
    match (first, second) {
        (true, _) => (R::one(), R::zero()),
        (_, true) => (R::zero(), R::one()),
        _ => (R::of(0.5), R::of(0.5)),
    }
}

#[derive(Clone, Copy)]
struct Lerp {
    weight: f64,
}

impl Binary for Lerp {
    const CONSTANT_SLOPES: bool = true;
    #[inline(always)]
    fn value<R: Real>(self, a: R, b: R) -> R {
        let (weight, rest) = (R::of(self.weight), R::of(1.0 - self.weight));
        if !(b - a).is_finite() {
            return part(rest, a) + part(weight, b);
        }
        // Computed from the nearer end, so that both ends are exact.
        if self.weight.abs() < 0.5 { a + weight * (b - a) } else { b - (b - a) * (R::one() - weight) }
    }
    #[inline(always)]
    fn slopes<R: Real>(self, _a: R, _b: R) -> (R, R) {
        (R::of(1.0 - self.weight), R::of(self.weight))
    }
}

impl Tensor {
    /// Computes the quotient rounded down, `floor(a / b)`, Python's `//`. Shapes broadcast; dtypes promote. It is computed
    /// in f32, or f64 for f64, as `(a - fmod(a, b)) / b`, so that no quotient just below a whole number is rounded up to
    /// it, and rounded once to the dtype of the result. Integers are exact. It has no gradient.
    ///
    /// No graph records the division of integers, because it reads the values.
    ///
    /// # Errors
    /// As for [`add`](Tensor::add); [`ErrorKind::Value`](crate::ErrorKind::Value) for an integer divided by 0, and for the
    /// smallest i64 divided by -1.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::Tensor;
    /// let (a, b) = (Tensor::from_vec(vec![7f32, -7.0], &[2])?, Tensor::scalar(2.0, precast::DType::F32));
    /// assert_eq!(a.floor_divide(&b)?.to_f64(), [3.0, -4.0]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn floor_divide(&self, other: &Tensor) -> Result<Tensor> {
        let dtype = self.dtype().promote(other.dtype());
        if !dtype.is_float() {
            return self.whole_quotient(other);
        }
        let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        no_grad(|| {
            let (a, b) = (self.cast(wide), other.cast(wide));
            let rest = a.fmod(&b)?;
            // The rest has the sign of `a`: where it is not that of `b`, the quotient is rounded towards 0.
            let is_negative = |x: &Tensor| x.lt(0.0);
            let is_above = rest.ne(0.0)?.logical_and(&is_negative(&rest)?.ne(&is_negative(&b)?)?)?;
            let quotient = a.sub(&rest)?.div(&b)?.round()?.sub(&is_above.cast(wide))?;
            Ok(b.eq(0.0)?.select(&a.div(&b)?, &quotient)?.cast(dtype))
        })
    }

    fn whole_quotient(&self, other: &Tensor) -> Result<Tensor> {
        let shape = broadcast_shape(self.shape(), other.shape())?;
        let whole = |x: &Tensor| {
            recording::read(x);
            x.cast(DType::I64).broadcast_to(&shape)
        };
        let (a, b) = (whole(self)?, whole(other)?);
        let quotient = |(&a, &b): (&i64, &i64)| {
            let rounded = a.checked_div(b).zip(a.checked_rem(b));
            let rounded = rounded.map(|(quotient, rest)| quotient - i64::from(rest != 0 && (rest < 0) != (b < 0)));
            rounded.ok_or_else(|| Error::value(format!("{a} divided by {b} is not an integer of 64 bits")))
        };
        let (a, b) = (elements::<i64>(&a), elements::<i64>(&b));
        Tensor::from_vec(a.iter().zip(b.iter()).map(quotient).collect::<Result<Vec<i64>>>()?, &shape)
    }

    /// Interpolates linearly between this tensor and another: `self + weight * (end - self)`. Shapes broadcast; dtypes
    /// promote.
    ///
    /// # Errors
    /// As for [`add`](Tensor::add); also [`ErrorKind::DType`](crate::ErrorKind::DType) for integer tensors.
    pub fn lerp(&self, end: &Tensor, weight: f64) -> Result<Tensor> {
        pairwise(call!(Op::Lerp, &[self, end]; weight), Lerp { weight }, Reduction::None)
    }
}

/// Operand of an operator or a comparison beside a tensor: a tensor, or a number, which takes the tensor's dtype.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not meet a tensor",
    label = "allowed: `&Tensor`, `f64` and `i64`"
)]
pub trait Operand {
    /// Returns the tensor that meets the other.
    fn beside(&self, other: &Tensor) -> Result<Tensor>;
}

impl Operand for &Tensor {
    fn beside(&self, _other: &Tensor) -> Result<Tensor> {
        Ok(Tensor::clone(self))
    }
}

impl Operand for i64 {
    fn beside(&self, other: &Tensor) -> Result<Tensor> {
        match other.dtype() {
            DType::I64 => Ok(Tensor::from(*self)),
            _ => (*self as f64).beside(other),
        }
    }
}

impl Operand for f64 {
    fn beside(&self, other: &Tensor) -> Result<Tensor> {
        // f64 represents every integer up to 2^53.
        let exact = self.fract() == 0.0 && self.abs() <= (1u64 << f64::MANTISSA_DIGITS) as f64;
        match other.dtype() {
            DType::I64 if exact => Ok(Tensor::scalar(*self, DType::I64)),
            dtype if dtype.is_float() => Ok(Tensor::scalar(*self, dtype)),
            dtype => {
                Err(Error::dtype(format!("the number {self} meets a tensor of dtype {dtype}; cast the tensor first")))
            }
        }
    }
}

macro_rules! operators {
    ($($operator:ident $method:ident),*) => { $(
        operators!(@ $operator $method, &Tensor, Tensor, &Tensor);
        operators!(@ $operator $method, Tensor, Tensor, &Tensor);
        operators!(@@ $operator $method, Tensor, &Tensor);
    )* };
    (@ $operator:ident $method:ident, $left:ty, $($right:ty),*) => { $(
        impl std::ops::$operator<$right> for $left {
            type Output = Result<Tensor>;
            fn $method(self, right: $right) -> Result<Tensor> {
                Tensor::$method(&self, &right)
            }
        }
    )* };
    // Beside a number.
    (@@ $operator:ident $method:ident, $($tensor:ty),*) => { $(
        impl std::ops::$operator<f64> for $tensor {
            type Output = Result<Tensor>;
            fn $method(self, right: f64) -> Result<Tensor> {
                Tensor::$method(&self, &right.beside(&self).map_err(|e| e.in_op(stringify!($operator)))?)
            }
        }
        impl std::ops::$operator<$tensor> for f64 {
            type Output = Result<Tensor>;
            fn $method(self, right: $tensor) -> Result<Tensor> {
                let left = self.beside(&right).map_err(|e| e.in_op(stringify!($operator)))?;
                Tensor::$method(&left, &right)
            }
        }
    )* };
}
operators!(Add add, Sub sub, Mul mul, Div div);

impl std::ops::Neg for &Tensor {
    type Output = Result<Tensor>;
    fn neg(self) -> Result<Tensor> {
        Tensor::neg(self)
    }
}

impl std::ops::Neg for Tensor {
    type Output = Result<Tensor>;
    fn neg(self) -> Result<Tensor> {
        Tensor::neg(&self)
    }
}
