//! What an optimizer is made of: its formula.

use std::fmt::Debug;

use crate::{
    error::{Error, Result},
    kernels::{
        float::Real,
        gemm::Gemm,
        update::{MOMENTS, Multiplied, Values},
    },
    tensor::Stored,
};

/// The types of the arithmetic: f32, and f64 for f64 parameters.
pub(super) trait Number: Real + Gemm<Wide = Self> + Stored {}
impl<R: Real + Gemm<Wide = R> + Stored> Number for R {}

/// The formula of an optimizer: its own hyperparameters, and what they do to the elements of a parameter.
///
/// An update is [`prepare`](Rule::prepare), once for a parameter, and then [`apply`](Rule::apply) for parts of its elements,
/// on several threads. A formula that goes by elements prepares its coefficients, and no more. One that needs norms, sums or
/// products of the whole parameter says so by [`LOOKS`](Rule::LOOKS).
pub(super) trait Rule: Clone + Debug + Send + Sync {
    /// Its name in saved states.
    const NAME: &'static str;

    /// Whether `prepare` looks at values, gradients and what is kept.
    const LOOKS: bool = false;

    /// What `prepare` hands to `apply`.
    type Known<R: Number>: Sync;

    /// Checks its hyperparameters.
    fn check(&self) -> Result<()>;

    /// Checks that it can train parameters of a shape.
    fn check_shape(&self, _shape: &[usize]) -> Result<()> {
        Ok(())
    }

    /// What it keeps of a parameter of a shape.
    fn kept(&self, shape: &[usize]) -> Vec<Kept>;

    /// What the elements of one update have in common. Coefficients are computed in f64 and rounded once, as torch's are.
    fn prepare<R: Number>(&self, step: &Step, whole: Whole<'_, R>) -> Self::Known<R>;

    /// Updates some elements, from number `start` of the parameter on. `moments` are what is kept in the parameter's shape; the
    /// last are empty where there are fewer.
    fn apply<R: Number>(
        known: &Self::Known<R>,
        start: usize,
        value: &mut Values<'_, R>,
        grad: Multiplied<'_, R>,
        moments: [&mut [R]; MOMENTS],
    );
}

/// The numbers of one update of one parameter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// Updates of this parameter, this one included.
    pub count: u64,
    pub lr: f64,
    pub weight_decay: f64,
}

/// A whole parameter in the dtype of the arithmetic. All but the shape is empty unless a rule [`LOOKS`](Rule::LOOKS).
pub(super) struct Whole<'a, R> {
    pub shape: &'a [usize],
    pub value: &'a [R],
    pub grad: &'a [R],
    /// Each tensor that the rule keeps.
    pub kept: Vec<&'a mut [R]>,
}

/// A tensor that a rule keeps of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Kept {
    /// Its name in saved states.
    pub name: &'static str,
    pub shape: Vec<usize>,
    /// The number it begins with.
    pub start: f64,
    /// Whether it can be kept in 8 bits, and is negative at times.
    pub eight_bit: Option<Sign>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Sign {
    Signed,
    Unsigned,
}

impl Kept {
    /// Zeros of a shape, in the dtype of the arithmetic.
    pub fn new(name: &'static str, shape: &[usize]) -> Kept {
        Kept { name, shape: shape.to_vec(), start: 0.0, eight_bit: None }
    }

    /// Allowed in 8 bits.
    pub fn in_eight_bit(self, sign: Sign) -> Kept {
        Kept { eight_bit: Some(sign), ..self }
    }
}

/// Checks a hyperparameter: a finite number for which `allowed` holds.
pub(super) fn check(name: &str, value: f64, allowed: bool, range: &str) -> Result<()> {
    if value.is_finite() && allowed {
        return Ok(());
    }
    Err(Error::value(format!("the optimizer's {name} is {value}; allowed: {range}")))
}

/// Checks a hyperparameter that is not negative.
pub(super) fn check_not_negative(name: &str, value: f64) -> Result<()> {
    check(name, value, value >= 0.0, "a finite number of at least 0")
}

/// Checks the decay rate of a running average.
pub(super) fn check_rate(name: &str, rate: f64) -> Result<()> {
    check(name, rate, (0.0..1.0).contains(&rate), "0 up to but not including 1")
}
