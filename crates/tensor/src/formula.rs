//! Parts of formulas: what the macro `formula!` of precast generates calls to.

use crate::{
    Param, Tensor,
    error::{Error, Result},
};

/// Part of a formula: a tensor, a parameter or a number.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a part of a formula",
    label = "allowed: tensors, parameters, numbers, and results of these"
)]
pub trait Term {
    /// [`Tensor`], or `f64` for numbers.
    type Value;

    /// Returns the value.
    ///
    /// # Errors
    /// That of a `Result`.
    fn term(self) -> Result<Self::Value>;
}

impl Term for Tensor {
    type Value = Tensor;
    fn term(self) -> Result<Tensor> {
        Ok(self)
    }
}

impl Term for &Tensor {
    type Value = Tensor;
    fn term(self) -> Result<Tensor> {
        Ok(self.clone())
    }
}

impl Term for &Param {
    type Value = Tensor;
    fn term(self) -> Result<Tensor> {
        Ok(self.tensor())
    }
}

impl<'a, T> Term for &'a &T
where
    &'a T: Term,
{
    type Value = <&'a T as Term>::Value;
    fn term(self) -> Result<Self::Value> {
        let inner: &'a T = self;
        inner.term()
    }
}

macro_rules! numbers {
    ($($number:ty),*) => { $(
        impl Term for $number {
            type Value = f64;
            fn term(self) -> Result<f64> {
                Ok(self as f64)
            }
        }
        impl Term for &$number {
            type Value = f64;
            fn term(self) -> Result<f64> {
                Ok(*self as f64)
            }
        }
    )* };
}
numbers!(f64, f32, i64, i32, u64, u32, usize);

impl<T: Term> Term for Result<T> {
    type Value = T::Value;
    fn term(self) -> Result<T::Value> {
        self.and_then(T::term)
    }
}

/// Place of an operator or of a call in a formula.
#[derive(Debug)]
pub struct Place {
    /// The source file.
    pub file: &'static str,
    /// Line in it, from 1.
    pub line: usize,
    /// Column in the line, from 1.
    pub column: usize,
    /// The part of the formula that is computed there.
    pub text: &'static str,
}

impl Place {
    fn name(&self, error: Error) -> Error {
        error.context(format_args!("`{}`", self.text)).at(self.file, self.line, self.column)
    }
}

/// Returns the value of a computed part of a formula.
///
/// # Errors
/// That of the computation, with its place.
pub fn placed<T: Term>(computed: T, place: &Place) -> Result<T::Value> {
    computed.term().map_err(|error| place.name(error))
}

/// Runs a formula.
///
/// # Errors
/// The first of its parts.
pub fn carried<T>(formula: impl FnOnce() -> Result<T>) -> Result<T> {
    formula()
}

/// The result of a call in the middle of a formula: anything, of which a `Result` is opened.
#[derive(Debug)]
pub struct Opened<T>(pub T);

impl<T> Opened<Result<T>> {
    /// Returns what the call returned.
    ///
    /// # Errors
    /// That of the call, with its place.
    pub fn open(self, place: &Place) -> Result<T> {
        self.0.map_err(|error| place.name(error))
    }
}

/// A call that cannot fail. The method of [`Opened`] itself comes first for a `Result`.
pub trait IsPlain<T> {
    /// Returns what the call returned.
    ///
    /// # Errors
    /// None.
    fn open(self, place: &Place) -> Result<T>;
}

impl<T> IsPlain<T> for Opened<T> {
    fn open(self, _place: &Place) -> Result<T> {
        Ok(self.0)
    }
}
