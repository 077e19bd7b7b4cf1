//! The record of a step, and the fault in it.

use std::{collections::HashSet, rc::Rc};

use precast::{
    Child, Op,
    cell::AsCell,
    observe::{Edge, EdgeOp, FaultKind, Phase, Subject, observed_by},
};
use serde::{Deserialize, Serialize};

use super::{
    fault::Fault,
    measure::{GROWTH, LOST},
    names::Names,
    recorder::{Raw, Recorder},
};

/// The edges of one step, in the order in which they were written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The edges.
    pub edges: Vec<Edge>,
}

/// Share of a norm that rounding to f16 loses in any case, so that flushing as much of it changes nothing.
const ROUNDING: f64 = 1.0 / 2048.0;

impl Record {
    /// Returns the first edge that went wrong, in time; `None` if the step is sound.
    ///
    /// Lost digits are a fault only where no number is infinite, NaN or flushed to 0. Negative infinities of a mask that
    /// a softmax turns into zeros are not a fault, nor are numbers that a choice such as `select` leaves out, nor is a constant
    /// of the code that becomes 0: its effect is.
    pub fn fault(&self) -> Option<Fault<'_>> {
        let harmless = self.harmless();
        let first = |wanted: &dyn Fn(FaultKind) -> bool| {
            self.edges.iter().enumerate().find_map(|(at, edge)| {
                let kind = self.kind(edge).filter(|kind| wanted(*kind) && !harmless[at])?;
                let at = if kind == FaultKind::Lost { self.origin(at) } else { at };
                Some(Fault { kind, edge: &self.edges[at], at })
            })
        };
        first(&|kind| kind != FaultKind::Lost).or_else(|| first(&|_| true))
    }

    fn kind(&self, edge: &Edge) -> Option<FaultKind> {
        let numbers = &edge.numbers;
        if numbers.nan > 0 {
            return Some(FaultKind::Nan);
        }
        if !numbers.is_finite() {
            return Some(FaultKind::Inf);
        }
        let constant = edge.from.is_empty() && matches!(edge.subject, Subject::InputOf(_) | Subject::Other);
        let matters = match edge.phase {
            // In f32, updates are lost only where gradients are far too small to matter.
            Phase::Optimizer => edge.dtype.is_low(),
            _ => numbers.flushed_norm > ROUNDING,
        };
        let matters = matters && !(constant && edge.phase == Phase::Forward);
        if numbers.flushed_share() >= 0.5 && matters {
            return Some(FaultKind::Flush);
        }
        let error = edge.error.filter(|_| edge.phase == Phase::Forward && edge.dtype.is_low())?;
        (error > LOST && error > GROWTH * self.entering(edge)).then_some(FaultKind::Lost)
    }

    /// Returns the first edge of the cell at which most of an edge's digits were lost.
    fn origin(&self, mut at: usize) -> usize {
        let error = |at: usize| self.edges[at].error.unwrap_or(0.0);
        loop {
            let inside =
                self.edges[at].from.iter().copied().filter(|&from| self.edges[from].cell == self.edges[at].cell);
            match inside.max_by(|&a, &b| error(a).total_cmp(&error(b))) {
                Some(from) if error(from) * GROWTH > error(at).max(LOST) => at = from,
                _ => return at,
            }
        }
    }

    /// Returns the largest error of the edges of other cells from which an edge was computed.
    fn entering(&self, edge: &Edge) -> f64 {
        let (mut seen, mut pending, mut most) = (HashSet::new(), edge.from.clone(), 0.0);
        while let Some(at) = pending.pop() {
            let from = &self.edges[at];
            if !seen.insert(at) {
            } else if from.cell == edge.cell && matches!(from.subject, Subject::Output) {
                pending.extend(&from.from);
            } else {
                most = from.error.unwrap_or(0.0).max(most);
            }
        }
        most
    }

    /// Returns the edges with numbers that are not finite and had no effect, such as those of a mask, or those that a
    /// choice leaves out.
    pub fn harmless_infinities(&self) -> impl Iterator<Item = &Edge> {
        self.edges.iter().zip(self.harmless()).filter_map(|(edge, harmless)| harmless.then_some(edge))
    }

    /// Returns the edges with numbers that are not finite and not harmless, in time.
    pub fn not_finite(&self) -> impl Iterator<Item = &Edge> {
        let bad =
            |(edge, harmless): (_, bool)| Some(edge).filter(|edge: &&Edge| !harmless && !edge.numbers.is_finite());
        self.edges.iter().zip(self.harmless()).filter_map(bad)
    }

    /// Returns, for each edge, whether its numbers that are not finite have no effect. Infinities of a mask are negative,
    /// come from a constant that is cast or infinite already, and everything that reads them is a finite softmax, or
    /// passes them on to one. Other numbers are left out by a [choice](is_choice), and the op that made them passes back
    /// gradients that are finite, or left out as well.
    fn harmless(&self) -> Vec<bool> {
        let mut readers = vec![Vec::new(); self.edges.len()];
        for (at, edge) in self.edges.iter().enumerate() {
            edge.from.iter().for_each(|&from| readers[from].push(at));
        }
        // Everything that reads such an edge is finite and an op that `ends` it, or such an edge as well.
        let chain = |phase: Phase, ends: fn(Op) -> bool, may_begin: &dyn Fn(&Edge) -> bool| {
            let mut chained = vec![false; self.edges.len()];
            for (at, edge) in self.edges.iter().enumerate().rev() {
                let is_ended = |&reader: &usize| {
                    let reads = &self.edges[reader];
                    chained[reader] || matches!(reads.op, EdgeOp::Op(op) if ends(op)) && reads.numbers.is_finite()
                };
                chained[at] = edge.phase == phase
                    && !edge.numbers.is_finite()
                    && may_begin(edge)
                    && !readers[at].is_empty()
                    && readers[at].iter().all(is_ended);
            }
            chained
        };
        let forward = |ends, may_begin: &dyn Fn(&Edge) -> bool| chain(Phase::Forward, ends, may_begin);
        // The gradient of a number that was chosen nowhere is 0, and times an infinite slope NaN.
        let is_nan = |edge: &Edge| edge.numbers.inf + edge.numbers.neg_inf == 0;
        let stopped = chain(Phase::Backward, |op| is_choice(op) || is_comparison(op) || is_threshold(op), &is_nan);
        let is_negative = |edge: &Edge| edge.numbers.nan == 0 && edge.numbers.inf == 0;
        let is_mask = |edge: &Edge| is_negative(edge) && (edge.op == EdgeOp::Op(Op::Cast) || !edge.good_inputs);
        let stays = |edge: &Edge| !self.reaches_gradient(edge, &stopped);
        let masked = forward(is_softmax, &is_mask);
        // The exponential of the logarithm of 0 is 0.
        let inverted = forward(|op| op == Op::Exp, &|edge| is_negative(edge) && !edge.good_inputs && stays(edge));
        let chosen = forward(is_choice, &stays);
        let compared = forward(|op| is_choice(op) || is_comparison(op), &stays);
        // A comparison with the number before it was rounded to infinity may have another result.
        let is_harmless = |(at, edge): (usize, &Edge)| {
            masked[at] || chosen[at] || stopped[at] || (compared[at] || inverted[at]) && !edge.good_inputs
        };
        self.edges.iter().enumerate().map(is_harmless).collect()
    }

    /// Returns whether the op of an edge passes back a gradient that is not finite, given one that is, and that does not stop
    /// at an op before it.
    fn reaches_gradient(&self, edge: &Edge, stopped: &[bool]) -> bool {
        let began = |back: &Edge| back.from.iter().all(|&from| self.edges[from].numbers.is_finite());
        let is_there = |(at, back): &(usize, &Edge)| {
            back.phase == Phase::Backward
                && (&back.cell, back.op) == (&edge.cell, edge.op)
                && !back.numbers.is_finite()
                && !stopped[*at]
        };
        self.edges.iter().enumerate().filter(is_there).any(|(_, back)| began(back))
    }
}

/// Returns whether an op turns the infinities of a mask into zeros.
fn is_softmax(op: Op) -> bool {
    matches!(op, Op::Softmax | Op::LogSoftmax | Op::ScaledDotProductAttention)
}

/// Returns whether an op chooses numbers by their places, whatever the others are.
fn is_choice(op: Op) -> bool {
    matches!(
        op,
        Op::Where
            | Op::MaskedFill
            | Op::Slice
            | Op::Split
            | Op::Gather
            | Op::IndexSelect
            | Op::Embedding
            | Op::IndexPut
            | Op::IndexCopy
            | Op::Scatter
            | Op::Tril
            | Op::Triu
    )
}

/// Returns whether the gradient of an op is 0 on one side of a bound, whatever reaches it.
fn is_threshold(op: Op) -> bool {
    matches!(op, Op::Relu | Op::Relu6 | Op::Clamp)
}

/// Returns whether an op chooses numbers by comparing them.
fn is_comparison(op: Op) -> bool {
    matches!(op, Op::Maximum | Op::Minimum | Op::Max | Op::Min | Op::TopK)
}

impl Record {
    /// Runs `f`, which calls a network, and returns along with its result the record of every number that was
    /// rounded on the way.
    ///
    /// The record compares the forward pass with the same pass in f64, which it runs op by op. Use it to find out why a
    /// step breaks, not in every step.
    ///
    /// ```
    /// use precast::{prelude::*, sequential};
    /// use precast_diagnose::Record;
    /// let rng = &mut Rng::seed(1);
    /// let mut net = Child::new(sequential![Dense::new(4, 4, rng), Tanh, Dense::new(4, 1, rng)]);
    /// auto_mixed_precision(&mut net, Level::O2, DType::F16)?;
    /// let (loss, record) = Record::of(&net, |net| net.call(&Tensor::full(&[2, 4], 1e5, DType::F32)));
    /// loss?;
    /// let fault = record.fault().expect("1e5 is not an f16");
    /// assert_eq!(fault.to_string(), "Cast of the input of the root cell, forward pass: 8 of 8 numbers are infinite, by rounding: they are finite in f32");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn of<C: ?Sized + AsCell, R>(net: &Child<C>, f: impl FnOnce(&Child<C>) -> R) -> (R, Record) {
        let (result, raw) = raw(|| f(net));
        (result, Record { edges: Names::read(net).edges(raw) })
    }

    /// Records as [`Record::of`] does what changes the network.
    pub fn of_changing<C: ?Sized + AsCell, R>(net: &mut Child<C>, f: impl FnOnce(&mut Child<C>) -> R) -> (R, Record) {
        let (result, raw) = raw(|| f(net));
        (result, Record { edges: Names::read(net).edges(raw) })
    }
}

/// Runs `f`, and returns along with its result the edges without their names.
fn raw<R>(f: impl FnOnce() -> R) -> (R, Vec<Raw>) {
    let recorder = Rc::new(Recorder::default());
    let result = observed_by(recorder.clone(), f);
    (result, recorder.take())
}
