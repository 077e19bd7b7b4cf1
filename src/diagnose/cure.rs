//! Cures of a faulty step: rules and a loss scale with which it is sound, found by running it again.

use std::fmt;

use half::f16;

use super::{
    edge::{Edge, EdgeOp, Phase, Subject},
    fault::{Fault, FaultKind},
    record::Record,
};
use crate::{
    Op, Policy,
    error::Result,
    policy::{Rule, RunAs, Select},
};

/// Maximum number of runs of one attempt.
const RUNS: usize = 24;

/// Maximum number of loss scales that one attempt tries.
const SCALES: usize = 8;

/// Factor between the largest gradient and the largest number of its dtype.
const MARGIN: f64 = 8.0;

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
    /// parameters and with the same batch, and returns its record; `scale` is its loss scale. `None` if nothing helps.
    ///
    /// A faulty gradient is cured by the loss scale if one is neither too large nor too small for any gradient. Every
    /// other fault is cured by keeping its cell in f32, and those that read its numbers as long as these do not fit.
    /// Rules that are not needed are removed. Every returned change has been run, and its record has no fault.
    ///
    /// ```
    /// use precast::{diagnose::Cure, prelude::*, sequential};
    /// let rng = &mut Rng::seed(1);
    /// let mut net: Child = sequential![Dense::new(4, 64, rng), Tanh, Dense::new(64, 1, rng)].into();
    /// let policy = Policy::new(Level::O3, DType::F16)?;
    /// let x = Tensor::full(&[1, 4], 65000.0, DType::F32); // the sums of the first layer exceed the range of f16
    /// let cure = Cure::find(1.0, |cure| {
    ///     precast::plan::undo(&mut net);
    ///     let _ = cure.apply(&policy)?.apply(&mut net)?;
    ///     let (loss, record) = net.record(|net| net.call(&x)?.sum_all());
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
        for by_scale in [true, false] {
            if let Some(cure) = attempt(scale, by_scale, &mut step)? {
                return fewer_rules(cure, &mut step).map(Some);
            }
        }
        Ok(None)
    }

    /// Returns the policy with the rules of this change.
    ///
    /// # Errors
    /// Those of [`Policy::rule`].
    pub fn apply(&self, policy: &Policy) -> Result<Policy> {
        let mut cured = policy.clone();
        let replaced = |select: &Select| select.is_exact_path() && self.rules.iter().any(|rule| rule.select == *select);
        cured.rules.retain(|rule| !replaced(&rule.select));
        cured.rules.splice(0..0, self.rules.iter().cloned());
        Ok(cured)
    }
}

impl fmt::Display for Cure {
    /// Writes the change as lines of a policy file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(scale) = self.loss_scale {
            writeln!(f, "loss_scale: {{ kind: fixed, scale: {scale} }}")?;
        }
        if !self.rules.is_empty() {
            writeln!(f, "rules:")?;
        }
        for rule in &self.rules {
            let run = rule.run.map_or(String::new(), |run| run.to_string());
            let path = rule.select.to_string();
            let path = path.strip_prefix("path ").unwrap_or(&path);
            writeln!(f, "  - path: {path:?}\n    run: {run}")?;
            if let Some(because) = &rule.because {
                writeln!(f, "    because: {because:?}")?;
            }
        }
        Ok(())
    }
}

/// Changes that led nowhere are left out of the next attempt.
struct Attempt {
    cure: Cure,
    /// Paths of the cells that are kept.
    kept: Vec<String>,
    scale: f64,
    /// Largest scale with which gradients vanished, and smallest with which one overflowed.
    too_small: f64,
    too_large: f64,
    scales: usize,
}

fn attempt(scale: f32, by_scale: bool, step: &mut impl FnMut(&Cure) -> Result<Record>) -> Result<Option<Cure>> {
    let scale = f64::from(scale);
    let (too_small, too_large) = (0.0, f64::INFINITY);
    let scales = if by_scale { 0 } else { SCALES };
    let mut attempt = Attempt { cure: Cure::default(), kept: Vec::new(), scale, too_small, too_large, scales };
    for _ in 0..RUNS {
        let record = match step(&attempt.cure) {
            Ok(record) => record,
            // A change that the network or the policy refuses is no cure.
            Err(_) if attempt.cure != Cure::default() => break,
            Err(error) => return Err(error),
        };
        let Some(fault) = record.fault() else { return Ok(Some(attempt.cure)) };
        if !attempt.change(&fault, &record)? {
            break;
        }
    }
    Ok(None)
}

impl Attempt {
    /// Changes what the fault asks for; `false` if that is done already.
    fn change(&mut self, fault: &Fault<'_>, record: &Record) -> Result<bool> {
        match fault.edge.phase {
            Phase::Forward => self.keep(&fault.edge.cell, fault),
            Phase::Unscale if self.scale < 1.0 => {
                (self.scale, self.cure.loss_scale) = (1.0, Some(1.0));
                Ok(true)
            }
            Phase::Backward if self.scales < SCALES => Ok(self.rescale(fault, record)),
            Phase::Backward => {
                let cell = &fault.edge.cell;
                if !self.keeps(cell) {
                    return self.keep(cell, fault);
                }
                // The gradient leaves the cell for the one whose result it read.
                let Some(before) = read_by(record, cell) else { return Ok(false) };
                self.keep(before, fault)
            }
            Phase::Unscale | Phase::Optimizer => Ok(false),
        }
    }

    /// Changes the loss scale.
    fn rescale(&mut self, fault: &Fault<'_>, record: &Record) -> bool {
        self.scales += 1;
        let gradients = record.edges.iter().filter(|edge| edge.phase == Phase::Backward && edge.dtype.is_low());
        let largest = gradients.map(|edge| edge.numbers.exact).fold(0.0, f64::max);
        let limit = f16::MAX.to_f64() / MARGIN;
        let wanted = match fault.kind {
            FaultKind::Flush => {
                self.too_small = self.too_small.max(self.scale);
                self.scale * limit / largest.max(f64::MIN_POSITIVE)
            }
            _ => {
                self.too_large = self.too_large.min(self.scale);
                self.scale * (limit / largest.max(f64::MIN_POSITIVE)).min(0.5)
            }
        };
        // Between those that failed.
        let next = match wanted > self.too_small && wanted < self.too_large {
            true => wanted,
            false if self.too_small > 0.0 && self.too_large.is_finite() => (self.too_small * self.too_large).sqrt(),
            false => return self.give_up(),
        };
        let next = 2f64.powi(next.log2().floor().clamp(-100.0, 100.0) as i32);
        if next == self.scale || next <= self.too_small || next >= self.too_large {
            return self.give_up();
        }
        self.scale = next;
        self.cure.loss_scale = Some(next as f32);
        true
    }

    /// Stops trying loss scales; the next fault is cured by rules.
    fn give_up(&mut self) -> bool {
        let tried = self.scales;
        self.scales = SCALES;
        tried < SCALES
    }

    fn keeps(&self, cell: &str) -> bool {
        self.kept.iter().any(|kept| kept == cell)
    }

    /// Keeps a cell in f32; `false` if it is.
    fn keep(&mut self, cell: &str, fault: &Fault<'_>) -> Result<bool> {
        if self.keeps(cell) {
            return Ok(false);
        }
        let because = fault.to_string();
        self.kept.push(cell.to_string());
        if cell.is_empty() {
            // No path selects the root alone.
            self.cure.rules.push(Rule::path("*.**", RunAs::Low)?);
            self.cure.rules.push(Rule::path("**", RunAs::Full)?.because(because));
        } else {
            self.cure.rules.insert(0, Rule::path(cell, RunAs::Full)?.because(because));
        }
        Ok(true)
    }
}

/// Returns the path of the cell whose result a cell reads, in the forward pass.
fn read_by<'a>(record: &'a Record, cell: &str) -> Option<&'a str> {
    let forward = |edge: &&Edge| edge.phase == Phase::Forward;
    let is_param = |edge: &Edge| matches!(edge.subject, Subject::Param(_)) && edge.op == EdgeOp::Op(Op::Cast);
    let first = record.edges.iter().filter(forward).position(|edge| edge.cell == cell && !is_param(edge))?;
    let before = record.edges.iter().filter(forward).take(first);
    before.filter(|edge| edge.cell != cell && !edge.cell.is_empty()).last().map(|edge| edge.cell.as_str())
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
