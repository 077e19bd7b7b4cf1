//! The formula of an optimizer.

use std::fmt::Debug;

use precast_kernels::{
    Stored,
    float::Real,
    gemm::Gemm,
    update::{MOMENTS, Multiplied, Values},
};

use crate::{
    error::{Error, Result},
    options::Options,
};

/// The types of the arithmetic: f32, and f64 for f64 parameters.
pub(super) trait Number: Real + Gemm<Wide = Self> + Stored {}
impl<R: Real + Gemm<Wide = R> + Stored> Number for R {}

/// The formula of an optimizer: its options, and their effect on the elements of a parameter.
///
/// An update is one call of [`prepare`](Rule::prepare) per parameter, followed by [`apply`](Rule::apply) on ranges of
/// its elements, on several threads. An elementwise formula only prepares coefficients. One that needs norms, sums or
/// products of the whole parameter sets [`LOOKS`](Rule::LOOKS).
pub(super) trait Rule: Options + Clone + Debug + Send + Sync {
    /// Its name in saved states.
    const NAME: &'static str;

    /// `true` when `prepare` reads values, gradients and state.
    const LOOKS: bool = false;

    /// The data that `prepare` passes to `apply`.
    type Known<R: Number>: Sync;

    /// Returns the weight decay.
    fn weight_decay(&self) -> f64;

    /// Returns whether running averages are in 8 bits where the rule permits it.
    fn eight_bit(&self) -> bool {
        false
    }

    /// Checks what the ranges of the options do not say.
    fn check_together(&self) -> Result<()> {
        Ok(())
    }

    /// Checks that it can train parameters of this shape.
    fn check_shape(&self, _shape: &[usize]) -> Result<()> {
        Ok(())
    }

    /// Returns the tensors that it keeps for a parameter of this shape.
    fn kept(&self, shape: &[usize]) -> Vec<Kept>;

    /// Computes what the elements of one update have in common. Coefficients are computed in f64 and rounded once, as
    /// in torch.
    fn prepare<R: Number>(&self, step: &Step, whole: Whole<'_, R>) -> Self::Known<R>;

    /// Updates a range of elements, beginning at element `start` of the parameter. `moments` are the tensors kept in
    /// the parameter's shape; unused ones at the end are empty.
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
    /// Number of updates of this parameter, including this one.
    pub count: u64,
    pub lr: f64,
    pub weight_decay: f64,
}

/// A whole parameter in the dtype of the arithmetic. Everything but the shape is empty unless a rule sets
/// [`LOOKS`](Rule::LOOKS).
pub(super) struct Whole<'a, R> {
    pub shape: &'a [usize],
    pub value: &'a [R],
    pub grad: &'a [R],
    /// The tensors kept by the rule.
    pub kept: Vec<&'a mut [R]>,
}

/// A tensor that a rule keeps for a parameter.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Kept {
    /// Its name in saved states.
    pub name: &'static str,
    pub shape: Vec<usize>,
    /// The initial value of its elements.
    pub start: f64,
    /// `Some` if it can be kept in 8 bits.
    pub eight_bit: Option<Of>,
}

/// Numbers of a tensor, which decide on its codes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Of {
    Gradients,
    Squares,
}

impl Kept {
    /// Describes a tensor of zeros, in the dtype of the arithmetic.
    pub fn new(name: &'static str, shape: &[usize]) -> Kept {
        Kept { name, shape: shape.to_vec(), start: 0.0, eight_bit: None }
    }

    /// Permits 8 bits.
    pub fn in_eight_bit(self, of: Of) -> Kept {
        Kept { eight_bit: Some(of), ..self }
    }
}

/// Checks a hyperparameter that must not be negative.
pub(super) fn check_not_negative(name: &str, value: f64) -> Result<()> {
    if value.is_finite() && value >= 0.0 {
        return Ok(());
    }
    Err(Error::value(format!("the optimizer's {name} is {value}; allowed: a finite number of at least 0")))
}
