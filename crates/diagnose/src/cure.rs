//! Cures of a faulty step: rules and a loss scale with which it is sound, found by running it again.

use std::fmt;

use precast::{
    DType, Op, Policy,
    error::Result,
    observe::{Edge, EdgeOp, FaultKind, Origin, Phase, Subject},
    policy::{LossScaleSpec, Rule, RunAs, Select},
};
use precast_base::printable::number;

use super::{fault::Fault, measure, record::Record};

/// Maximum number of runs of one attempt.
const RUNS: usize = 24;

/// Maximum number of loss scales that one attempt tries.
const SCALES: usize = 12;

/// Largest power of two of a loss scale that is tried, and the smallest without its sign.
const MOST: i32 = 100;

/// A change of a policy and of the loss scale.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cure {
    /// Rules that come before those of the policy.
    pub rules: Vec<Rule>,
    /// Loss scale in place of that of the step.
    pub loss_scale: Option<f32>,
}

impl Cure {
    /// Finds the change with which a step is sound. `step` runs the step again under a change, from the same
    /// parameters and with the same batch, and returns its record; `scale` is its loss scale. `None` if nothing helps,
    /// f32 included: then no rules are tried.
    ///
    /// A faulty gradient is cured by the largest power of two, as a loss scale, with which all gradients are finite, if
    /// it is large enough for the smallest ones. Every other fault is cured by keeping its cell in f32, and those that
    /// read its numbers as long as these do not fit.
    /// Rules that are not needed are removed. Every returned change has been run, and its record has no fault.
    ///
    /// ```
    /// use precast::{prelude::*, sequential};
    /// use precast_diagnose::{Cure, Record};
    /// let rng = &mut Rng::seed(1);
    /// let mut net: Child = sequential![Dense::new(4, 64, rng), Tanh, Dense::new(64, 1, rng)].into();
    /// let policy = Policy::new(Level::O3, DType::F16)?;
    /// let x = Tensor::full(&[1, 4], 65000.0, DType::F32); // the sums of the first layer exceed the range of f16
    /// let cure = Cure::find(1.0, |cure| {
    ///     precast::plan::undo(&mut net);
    ///     let _ = cure.apply(&policy)?.apply(&mut net)?;
    ///     let (loss, record) = Record::of(&net, |net| net.call(&x)?.sum_all());
    ///     loss?;
    ///     Ok(record)
    /// })?;
    /// let cure = cure.expect("f32 holds these numbers");
    /// assert_eq!(cure.rules.len(), 2); // the first layer, and the activation that reads its sums
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of `step` without a change.
    pub fn find(scale: f32, mut step: impl FnMut(&Cure) -> Result<Record>) -> Result<Option<Cure>> {
        let wide = Cure::in_f32(&mut step).ok();
        // A NaN of f32 may come from a number that its rounding made negative, which other roundings do not.
        if wide.as_ref().and_then(Record::fault).is_some_and(|fault| fault.kind == FaultKind::Inf) {
            return Ok(None);
        }
        let first = wide.map_or(0, |record| doublings(largest(&record, |_| true)));
        for by_scale in [true, false] {
            if let Some(cure) = attempt(scale, by_scale.then_some(first), &mut step)? {
                return fewer_rules(cure, &mut step).map(Some);
            }
        }
        Ok(None)
    }

    /// Runs a step as [`find`](Cure::find) does, with all cells in f32 and without a loss scale. If
    /// it overflows, its precision is not the cause.
    ///
    /// # Errors
    /// Those of `step`.
    pub fn in_f32(mut step: impl FnMut(&Cure) -> Result<Record>) -> Result<Record> {
        step(&Cure { rules: vec![Rule::path("**", RunAs::Full)?], loss_scale: Some(1.0) })
    }

    /// Returns the change that raises the cell with the first faulty result of a run that has stalled to f32.
    ///
    /// # Errors
    /// Those of [`Rule::path`].
    pub fn raise(origin: &Origin, step: usize) -> Result<Cure> {
        let mut cure = Cure::default();
        cure.keep(&origin.edge.cell, format!("stalled the run at step {step}: {origin}"), false)?;
        Ok(cure)
    }

    /// Adds the rules that keep a cell in f32; `alone` says that the network is this cell.
    fn keep(&mut self, cell: &str, because: String, alone: bool) -> Result<()> {
        let mut rules = rules_keeping(cell, RunAs::Full, !alone)?;
        if let Some(own) = rules.last_mut() {
            own.because = Some(because);
        }
        // A rule for the root selects all cells, and the first rule wins.
        let at = if cell.is_empty() { self.rules.len() } else { 0 };
        self.rules.splice(at..at, rules);
        Ok(())
    }

    /// Returns the policy with the rules and the loss scale of this change, and without its name. A dynamic loss scale
    /// stays dynamic, and begins with that of the change.
    ///
    /// # Errors
    /// Those of [`Policy::rule`].
    pub fn apply(&self, policy: &Policy) -> Result<Policy> {
        let mut cured = policy.clone();
        let replaced = |select: &Select| select.is_exact_path() && self.rules.iter().any(|rule| rule.select == *select);
        // A change of all cells alone, which the exact paths of the policy would override.
        let all = matches!(&self.rules[..], [rule] if rule.select.to_string() == "path **");
        cured.rules.retain(|rule| !all && !replaced(&rule.select));
        cured.rules.splice(0..0, self.rules.iter().cloned());
        cured.loss_scale = self.scale_for(&policy.loss_scale);
        cured.name = None;
        Ok(cured)
    }

    /// Returns the loss scale of a policy with that of this change.
    fn scale_for(&self, spec: &LossScaleSpec) -> LossScaleSpec {
        match (self.loss_scale, spec) {
            (None, _) => spec.clone(),
            (Some(scale), LossScaleSpec::Dynamic(dynamic)) => {
                let min = if scale < dynamic.min { scale / measure::ROOM_BELOW } else { dynamic.min };
                let max = dynamic.max.max(scale);
                LossScaleSpec::Dynamic(dynamic.clone().init(scale).min(min).max(max))
            }
            (Some(scale), _) => LossScaleSpec::Fixed { scale },
        }
    }

    /// Returns the change as lines of a policy file, for a policy with this loss scale.
    pub fn lines(&self, spec: &LossScaleSpec) -> String {
        let scale = match (self.scale_for(spec), spec) {
            _ if self.loss_scale.is_none() => String::new(),
            (LossScaleSpec::Dynamic(to), LossScaleSpec::Dynamic(from)) => {
                let bound = |name: &str, to: f32, from: f32| match to == from {
                    true => String::new(),
                    false => format!(", {name}: {}", number(to)),
                };
                let (min, max) = (bound("min", to.min, from.min), bound("max", to.max, from.max));
                format!("loss_scale: {{ kind: dynamic, init: {}{min}{max} }}\n", number(to.init))
            }
            (LossScaleSpec::Fixed { scale }, _) => format!("loss_scale: {{ kind: fixed, scale: {} }}\n", number(scale)),
            _ => String::new(),
        };
        let head = if self.rules.is_empty() { "" } else { "rules:\n" };
        self.rules.iter().fold(format!("{scale}{head}"), |lines, rule| {
            let entries: Vec<String> = rule.entries().iter().map(|(key, value)| format!("{key}: {value}\n")).collect();
            format!("{lines}  - {}", entries.join("    "))
        })
    }
}

impl fmt::Display for Cure {
    /// Writes the change as [lines](Cure::lines) for a policy without a dynamic loss scale.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines(&LossScaleSpec::None))
    }
}

/// A change that grows with each fault that it meets.
struct Attempt {
    cure: Cure,
    /// Paths of the cells that are kept.
    kept: Vec<String>,
    /// Power of two of the first loss scale to try; `None` where the loss scale is settled.
    first: Option<i32>,
    scale: f64,
    /// `true` when the loss scale is the largest that fits.
    is_largest: bool,
}

/// Grows a change from nothing; `first` is the power of two of the first loss scale to try, `None` for rules alone.
fn attempt(scale: f32, first: Option<i32>, step: &mut impl FnMut(&Cure) -> Result<Record>) -> Result<Option<Cure>> {
    let (cure, kept, scale) = (Cure::default(), Vec::new(), f64::from(scale));
    let mut attempt = Attempt { cure, kept, first, scale, is_largest: false };
    for _ in 0..RUNS {
        let record = match step(&attempt.cure) {
            Ok(record) => record,
            // A change that the network or the policy refuses is no cure.
            Err(_) if attempt.cure != Cure::default() => break,
            Err(error) => return Err(error),
        };
        let Some(fault) = record.fault() else { return Ok(Some(attempt.cure)) };
        if !attempt.change(&fault, &record, step)? {
            break;
        }
    }
    Ok(None)
}

impl Attempt {
    /// Changes what the fault asks for; `false` if that is done already.
    fn change(
        &mut self,
        fault: &Fault<'_>,
        record: &Record,
        step: &mut impl FnMut(&Cure) -> Result<Record>,
    ) -> Result<bool> {
        match (fault.edge.phase, self.first) {
            (Phase::Forward, _) => self.keep(&fault.edge.cell, fault, record),
            (Phase::Backward | Phase::Unscale, Some(first)) => {
                self.first = None;
                self.rescale(first, step)?;
                Ok(true)
            }
            (Phase::Unscale, None) if self.scale < 1.0 && !self.is_largest => {
                (self.scale, self.cure.loss_scale) = (1.0, Some(1.0));
                Ok(true)
            }
            (Phase::Backward, None) => {
                let cell = &fault.edge.cell;
                if !self.keeps(cell) {
                    return self.keep(cell, fault, record);
                }
                // The gradient leaves the cell for the one whose result it read.
                let Some(before) = read_by(record, cell) else { return Ok(false) };
                self.keep(before, fault, record)
            }
            (Phase::Unscale | Phase::Optimizer, _) => Ok(false),
        }
    }

    /// Sets the loss scale to the largest power of two with which all gradients are finite and fit into 16 bits, if there
    /// is one. Tries `first`, and follows the largest gradient of each try.
    fn rescale(&mut self, first: i32, step: &mut impl FnMut(&Cure) -> Result<Record>) -> Result<()> {
        let (mut at, mut fits, mut too_large) = (first, None, i32::MAX);
        for _ in 0..SCALES {
            let record = step(&Cure { loss_scale: Some(2f32.powi(at)), ..self.cure.clone() })?;
            let room = room(&record);
            let next = match room {
                Some(more @ 0..) => {
                    fits = Some(at);
                    (at + more).min(MOST).min(too_large - 1)
                }
                _ => {
                    too_large = at;
                    at + room.unwrap_or(-1)
                }
            };
            if fits.is_some_and(|fits| next <= fits) || next < -MOST {
                break;
            }
            at = next;
        }
        if let Some(fits) = fits {
            (self.scale, self.cure.loss_scale) = (2f64.powi(fits), Some(2f32.powi(fits)));
            self.is_largest = true;
        }
        Ok(())
    }

    fn keeps(&self, cell: &str) -> bool {
        self.kept.iter().any(|kept| kept == cell)
    }

    /// Keeps a cell in f32; `false` if it is.
    fn keep(&mut self, cell: &str, fault: &Fault<'_>, record: &Record) -> Result<bool> {
        if self.keeps(cell) {
            return Ok(false);
        }
        let because = match fault.edge.phase {
            Phase::Backward if self.is_largest => {
                format!("no loss scale fits: with {}, the largest that does not overflow, {fault}", number(self.scale))
            }
            _ => fault.to_string(),
        };
        self.kept.push(cell.to_string());
        self.cure.keep(cell, because, record.edges.iter().all(|edge| edge.cell.is_empty()))?;
        Ok(true)
    }
}

/// Returns the rules that keep a cell in f32 with its results, its own last. `others` says whether there are cells besides
/// the root, which are lowered where the root is kept.
pub(crate) fn rules_keeping(cell: &str, run: RunAs, others: bool) -> Result<Vec<Rule>> {
    if !cell.is_empty() {
        return Ok(vec![Rule::path(cell, run)?]);
    }
    // No path selects the root alone.
    let lowered = others.then(|| Rule::path("*.**", RunAs::Low)).transpose()?;
    Ok(lowered.into_iter().chain([Rule::path("**", RunAs::Full)?]).collect())
}

/// Returns the path of the cell whose result a cell reads, in the forward pass.
fn read_by<'a>(record: &'a Record, cell: &str) -> Option<&'a str> {
    let forward = |edge: &&Edge| edge.phase == Phase::Forward;
    let is_param = |edge: &Edge| matches!(edge.subject, Subject::Param(_)) && edge.op == EdgeOp::Op(Op::Cast);
    let first = record.edges.iter().filter(forward).position(|edge| edge.cell == cell && !is_param(edge))?;
    let before = record.edges.iter().filter(forward).take(first);
    before.filter(|edge| edge.cell != cell && !edge.cell.is_empty()).last().map(|edge| edge.cell.as_str())
}

/// Returns the number of times that all gradients can be doubled; `None` if one is not finite.
fn room(record: &Record) -> Option<i32> {
    let gradients = || record.edges.iter().filter(|edge| matches!(edge.phase, Phase::Backward | Phase::Unscale));
    if gradients().any(|edge| !edge.numbers.is_finite()) {
        return None;
    }
    Some(match largest(record, |edge| edge.dtype.is_low()) {
        0.0 => 0,
        largest => doublings(largest),
    })
}

/// Returns the number of times that a gradient can be doubled in f16, with the headroom of a lint.
fn doublings(gradient: f64) -> i32 {
    power(measure::largest(DType::F16) / measure::HEADROOM / gradient)
}

/// Returns the largest gradient among these edges, before rounding.
fn largest(record: &Record, wanted: impl Fn(&Edge) -> bool) -> f64 {
    let gradients = record.edges.iter().filter(|edge| edge.phase == Phase::Backward && wanted(edge));
    gradients.map(|edge| edge.numbers.exact).fold(0.0, f64::max)
}

/// Returns the largest power of two up to a number.
fn power(x: f64) -> i32 {
    x.log2().floor().clamp(f64::from(-MOST), f64::from(MOST)) as i32
}

/// Removes the rules that are not needed to keep a cell in f32.
fn fewer_rules(mut cure: Cure, step: &mut impl FnMut(&Cure) -> Result<Record>) -> Result<Cure> {
    let mut at = 0;
    while cure.rules.len() > 1 && at < cure.rules.len() {
        let mut fewer = cure.clone();
        if fewer.rules.remove(at).run != Some(RunAs::Full) {
            at += 1;
            continue;
        }
        match step(&fewer) {
            Ok(record) if record.fault().is_none() => cure = fewer,
            _ => at += 1,
        }
    }
    Ok(cure)
}
