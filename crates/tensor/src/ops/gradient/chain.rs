//! Tensor formulas that read like formulas of numbers: an error is carried to the end.

use std::ops::{Add, Div, Mul, Neg, Sub};

use crate::{DType, Tensor, catalogue::Attributes, error::Result};

/// Formula of an op in terms of other ops.
pub(super) type Formula = fn(&Attributes, &[Tensor]) -> Result<Tensor>;

/// A tensor under computation.
#[derive(Clone)]
pub(super) struct Chain(Result<Tensor>);

/// Starts a chain with a tensor.
pub(super) fn of(x: &Tensor) -> Chain {
    Chain(Ok(x.clone()))
}

impl Chain {
    /// Returns the computed tensor.
    pub fn done(self) -> Result<Tensor> {
        self.0
    }

    /// Continues with a function.
    pub fn then(self, f: impl FnOnce(Tensor) -> Result<Tensor>) -> Chain {
        Chain(self.0.and_then(f))
    }

    /// Returns the same value as a constant.
    pub fn fixed(&self) -> Chain {
        self.clone().then(|x| Ok(x.detach()))
    }

    fn with(self, other: Chain, f: impl FnOnce(&Tensor, &Tensor) -> Result<Tensor>) -> Chain {
        self.then(|x| f(&x, &other.0?))
    }

    /// Computes `sqrt(self² + other²)`.
    pub fn hypot(self, other: Chain) -> Chain {
        self.with(other, Tensor::hypot)
    }

    fn number(&self, number: f64) -> Chain {
        self.clone().then(|x| Ok(Tensor::scalar(number, x.dtype())))
    }

    /// Returns this where `mask` is nonzero and `other` elsewhere. Elements not selected do not contribute to
    /// gradients.
    pub fn or(self, mask: &Chain, other: impl Into<Choice>) -> Chain {
        let other = match other.into() {
            Choice::Number(number) => self.number(number),
            Choice::Chain(other) => other,
        };
        let mask = mask.clone().0.and_then(|mask| mask.cast(DType::Bool).select(&self.0?, &other.0?));
        Chain(mask)
    }

    /// Returns 1 where this is above the other, 0 elsewhere.
    pub fn above(&self, other: f64) -> Chain {
        self.mask(|x| x.gt(other))
    }

    /// Returns 1 where this is below the other, 0 elsewhere.
    pub fn below(&self, other: f64) -> Chain {
        self.mask(|x| x.lt(other))
    }

    /// Returns 1 where this equals the number, 0 elsewhere.
    pub fn is(&self, number: f64) -> Chain {
        self.mask(|x| x.eq(number))
    }

    fn mask(&self, holds: impl Fn(&Tensor) -> Result<Tensor>) -> Chain {
        self.clone().then(|x| Ok(holds(&x)?.cast(x.dtype())))
    }
}

/// Alternative in a selection.
pub(super) enum Choice {
    Number(f64),
    Chain(Chain),
}

impl From<f64> for Choice {
    fn from(number: f64) -> Choice {
        Choice::Number(number)
    }
}

impl From<Chain> for Choice {
    fn from(chain: Chain) -> Choice {
        Choice::Chain(chain)
    }
}

macro_rules! functions {
    ($($name:ident),*) => { impl Chain { $(
        pub fn $name(self) -> Chain {
            self.then(|x| x.$name())
        }
    )* } };
}
functions!(
    abs, cos, cosh, erfinv, exp, floor, log, reciprocal, relu, sigmoid, sign, sin, sinh, softplus, sqrt, square, tanh,
    trunc
);

macro_rules! operators {
    ($($operator:ident $method:ident),*) => { $(
        impl $operator for Chain {
            type Output = Chain;
            fn $method(self, other: Chain) -> Chain {
                self.with(other, Tensor::$method)
            }
        }
        impl $operator<f64> for Chain {
            type Output = Chain;
            fn $method(self, other: f64) -> Chain {
                let other = self.number(other);
                $operator::$method(self, other)
            }
        }
        impl $operator<Chain> for f64 {
            type Output = Chain;
            fn $method(self, other: Chain) -> Chain {
                $operator::$method(other.number(self), other)
            }
        }
    )* };
}
operators!(Add add, Sub sub, Mul mul, Div div);

impl Neg for Chain {
    type Output = Chain;
    fn neg(self) -> Chain {
        self.then(|x| x.neg())
    }
}
