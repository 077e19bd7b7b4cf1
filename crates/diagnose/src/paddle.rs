//! Paddle's checks of tensors, as in `paddle.amp.debugging`: thin layers over [`diagnose`](crate).

use std::{fmt, ops::Range};

use precast::{
    Child, DType, Op, Tensor,
    catalogue::System,
    cell::AsCell,
    error::{Error, Result},
    observe::{Edge, EdgeOp, Phase},
};

use crate::{Monitor, Record};

/// Response of a check to numbers that are not finite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DebugMode {
    /// `CHECK_NAN_INF_AND_ABORT`: the check is an error.
    #[default]
    CheckNanInfAndAbort,
    /// `CHECK_NAN_INF`: they are kept in the list of [results](TensorChecker::results), and the run continues.
    CheckNanInf,
    /// `CHECK_ALL`: all results are kept in the list, also finite ones. Each op is repeated in f64.
    CheckAll,
}

/// Options of a [`TensorChecker`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TensorCheckerConfig {
    /// `true` when steps are checked at all.
    pub enable: bool,
    /// Response to numbers that are not finite. Default: an error.
    pub debug_mode: DebugMode,
    /// Ops that are checked. Default: all.
    pub checked_op_list: Option<Vec<Op>>,
    /// Ops that are not checked, whatever the other list says. Default: none.
    pub skipped_op_list: Vec<Op>,
    /// Steps that are checked, from 0. Default: all.
    pub debug_step: Option<Range<usize>>,
}

impl TensorCheckerConfig {
    /// Creates options with their defaults.
    pub fn new(enable: bool) -> Self {
        let (debug_mode, checked_op_list) = (DebugMode::default(), None);
        TensorCheckerConfig { enable, debug_mode, checked_op_list, skipped_op_list: Vec::new(), debug_step: None }
    }

    /// Sets the ops that are checked, by Paddle's names.
    ///
    /// # Errors
    /// [`ErrorKind::List`](precast::ErrorKind::List) for a name that Paddle does not have.
    pub fn checked_op_list<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        self.checked_op_list = Some(ops(names)?);
        Ok(self)
    }

    /// Sets the ops that are not checked, by Paddle's names.
    ///
    /// # Errors
    /// As [`checked_op_list`](TensorCheckerConfig::checked_op_list).
    pub fn skipped_op_list<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        self.skipped_op_list = ops(names)?;
        Ok(self)
    }

    fn checks(&self, edge: &Edge) -> bool {
        let (checked, skipped) = (&self.checked_op_list, &self.skipped_op_list);
        match edge.op {
            EdgeOp::Op(op) => checked.as_ref().is_none_or(|ops| ops.contains(&op)) && !skipped.contains(&op),
            _ => checked.is_none(),
        }
    }
}

precast_base::setters! {
    TensorCheckerConfig: debug_mode debug_mode: DebugMode;
    optional debug_step debug_step: Range<usize>
}

fn ops<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Vec<Op>> {
    let ops = names.into_iter().map(|name| Op::named_in(System::Paddle, name)).collect::<Result<Vec<_>>>()?;
    Ok(ops.concat())
}

/// Checks the steps that it runs.
#[derive(Debug)]
pub struct TensorChecker {
    config: TensorCheckerConfig,
    steps: usize,
    monitor: Monitor,
    results: Vec<Edge>,
}

/// Creates a checker. Unlike in Paddle it is a value, which checks the [steps](TensorChecker::step) that it runs; there
/// is nothing to disable.
///
/// ```
/// use precast::{prelude::*, sequential};
/// use precast_diagnose::paddle::{TensorCheckerConfig, enable_tensor_checker};
/// let rng = &mut Rng::seed(1);
/// let mut net = Child::new(sequential![Dense::new(4, 64, rng), Tanh, Dense::new(64, 1, rng)]);
/// auto_mixed_precision(&mut net, Level::O3, DType::F16)?;
/// let config = TensorCheckerConfig::new(true).skipped_op_list(["tanh"])?.debug_step(0..100);
/// let mut checker = enable_tensor_checker(config);
/// let x = Tensor::full(&[1, 4], 65000.0, DType::F32);
/// let error = checker.step(&net, |net| net.call(&x)?.sum_all()).unwrap_err();
/// assert!(error.to_string().starts_with("Linear in `0`, forward pass: "), "{error}");
/// # Ok::<(), precast::Error>(())
/// ```
pub fn enable_tensor_checker(config: TensorCheckerConfig) -> TensorChecker {
    TensorChecker { config, steps: 0, monitor: Monitor::default(), results: Vec::new() }
}

impl TensorChecker {
    /// Runs one step, and checks it if it is among the steps to check.
    ///
    /// The check comes after the whole step. In Paddle, it ends the run at the op; here, the loss scale has skipped the
    /// update of a step whose gradients were not finite.
    ///
    /// # Errors
    /// Those of the step, and then [`ErrorKind::Value`](precast::ErrorKind::Value) with the first result that is not
    /// finite, with [`DebugMode::CheckNanInfAndAbort`].
    pub fn step<C: ?Sized + AsCell, R>(
        &mut self,
        net: &Child<C>,
        step: impl FnOnce(&Child<C>) -> Result<R>,
    ) -> Result<R> {
        let at = self.steps;
        self.steps += 1;
        self.results.clear();
        if !self.config.enable || self.config.debug_step.as_ref().is_some_and(|steps| !steps.contains(&at)) {
            return step(net);
        }
        let wanted = |edge: &&Edge| self.config.checks(edge);
        if self.config.debug_mode == DebugMode::CheckAll {
            let (result, record) = Record::of(net, step);
            self.results = record.edges.iter().filter(wanted).cloned().collect();
            return result;
        }
        let result = self.monitor.watch(net, step)?;
        self.results = self.monitor.not_finite().filter(wanted).cloned().collect();
        match self.results.first() {
            Some(edge) if self.config.debug_mode == DebugMode::CheckNanInfAndAbort => {
                let numbers = &edge.numbers;
                let (nan, inf, n) = (numbers.nan, numbers.inf + numbers.neg_inf, numbers.n);
                Err(Error::value(format!("{edge}: {nan} NaN and {inf} infinities among {n} numbers, in step {at}")))
            }
            _ => Ok(result),
        }
    }

    /// Returns the results that were found in the last step, in the order in which they were written.
    pub fn results(&self) -> &[Edge] {
        &self.results
    }
}

/// Counts and values of a tensor, as [`check_numerics`] gives them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Numerics {
    /// Number of NaN.
    pub num_nan: usize,
    /// Number of infinities.
    pub num_inf: usize,
    /// Number of zeros.
    pub num_zero: usize,
    /// Largest number; NaN without numbers, as are the next two.
    pub max: f64,
    /// Smallest number.
    pub min: f64,
    /// Mean.
    pub mean: f64,
}

/// Counts the NaN, infinities and zeros of a tensor. `op_type` and `var_name` are for the message.
///
/// # Errors
/// [`ErrorKind::Value`](precast::ErrorKind::Value) when a number is not finite, with [`DebugMode::CheckNanInfAndAbort`].
///
/// ```
/// use precast::prelude::*;
/// use precast_diagnose::paddle::{DebugMode, check_numerics};
/// let x = Tensor::from_vec(vec![1.0f32, 0.0, f32::INFINITY], &[3])?;
/// let found = check_numerics(&x, "my_op", "x", DebugMode::CheckNanInf)?;
/// assert_eq!((found.num_nan, found.num_inf, found.num_zero, found.min), (0, 1, 1, 0.0));
/// assert!(check_numerics(&x, "my_op", "x", DebugMode::CheckNanInfAndAbort).is_err());
/// # Ok::<(), precast::Error>(())
/// ```
pub fn check_numerics(tensor: &Tensor, op_type: &str, var_name: &str, debug_mode: DebugMode) -> Result<Numerics> {
    let numbers = tensor.to_f64();
    let count = |is: fn(&f64) -> bool| numbers.iter().filter(|x| is(x)).count();
    let (num_nan, num_inf) = (count(|x| x.is_nan()), count(|x| x.is_infinite()));
    let extreme = |of: fn(f64, f64) -> f64| numbers.iter().copied().reduce(of).unwrap_or(f64::NAN);
    let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
    let (max, min) = (extreme(f64::max), extreme(f64::min));
    let found = Numerics { num_nan, num_inf, num_zero: count(|x| *x == 0.0), max, min, mean };
    if debug_mode == DebugMode::CheckNanInfAndAbort && num_nan + num_inf > 0 {
        let words =
            format!("`{var_name}` of {op_type} has {num_nan} NaN and {num_inf} infinities, of {}", numbers.len());
        return Err(Error::value(words));
    }
    Ok(found)
}

/// One result in two runs.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Compared {
    /// The result in the first run.
    pub edge: Edge,
    /// Its dtype in the second run.
    pub other_dtype: DType,
    /// Largest finite magnitude in each run, without the loss scale.
    pub largest: [f64; 2],
    /// `true` for each run in which all numbers are finite.
    pub finite: [bool; 2],
}

impl Compared {
    /// Returns the difference of the largest magnitudes, relative to the larger one; infinite if numbers are finite in one
    /// of the runs alone.
    pub fn difference(&self) -> f64 {
        let [one, other] = self.largest;
        match one.max(other) {
            _ if self.finite[0] != self.finite[1] => f64::INFINITY,
            0.0 => 0.0,
            larger => (one - other).abs() / larger,
        }
    }
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |at: usize| match self.finite[at] {
            true => format!("{:.3e}", self.largest[at]),
            false => "not finite".into(),
        };
        let (dtype, other) = (self.edge.dtype, self.other_dtype);
        write!(f, "{}: {} in {dtype}, {} in {other}", self.edge, shown(0), shown(1))
    }
}

/// Compares the results of two runs of a step, usually in f32 and lowered, op by op, the largest difference first.
/// `loss_scale` is the one of the second run divided by that of the first. Casts are left out, since runs differ in them.
///
/// The dumps of Paddle are values here: [records](Record::of).
///
/// ```
/// use precast::{prelude::*, sequential};
/// use precast_diagnose::{Record, paddle::compare_accuracy};
/// let rng = &mut Rng::seed(1);
/// let mut net = Child::new(sequential![Dense::new(4, 64, rng), Tanh, Dense::new(64, 1, rng)]);
/// let x = Tensor::full(&[1, 4], 65000.0, DType::F32);
/// let (_, full) = Record::of(&net, |net| net.call(&x));
/// auto_mixed_precision(&mut net, Level::O3, DType::F16)?;
/// let (_, low) = Record::of(&net, |net| net.call(&x));
/// let compared = compare_accuracy(&full, &low, 1.0);
/// assert!(compared[0].to_string().starts_with("Linear in `0`, forward pass: "), "{}", compared[0]);
/// assert!(compared[0].to_string().ends_with(" in f32, not finite in f16"));
/// # Ok::<(), precast::Error>(())
/// ```
pub fn compare_accuracy(one: &Record, other: &Record, loss_scale: f64) -> Vec<Compared> {
    let is_result = |edge: &&Edge| edge.op != EdgeOp::Op(Op::Cast);
    let same = |a: &Edge, b: &Edge| {
        (a.phase, &a.cell, a.op, &a.subject, a.call) == (b.phase, &b.cell, b.op, &b.subject, b.call)
    };
    let mut compared = Vec::new();
    for edge in one.edges.iter().filter(is_result) {
        let Some(met) = other.edges.iter().find(|met| same(edge, met)) else { continue };
        let scale = if edge.phase == Phase::Backward { loss_scale } else { 1.0 };
        let largest = [edge.numbers.amax, met.numbers.amax / scale];
        let finite = [edge.numbers.is_finite(), met.numbers.is_finite()];
        compared.push(Compared { edge: edge.clone(), other_dtype: met.dtype, largest, finite });
    }
    // Stable, so that the first in time is the first of equal ones.
    compared.sort_by(|a, b| b.difference().total_cmp(&a.difference()));
    compared
}
