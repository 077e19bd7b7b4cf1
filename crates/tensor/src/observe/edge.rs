//! Edges of a step: the results that its ops, casts and updates write.

use std::{borrow::Cow, fmt};

use precast_base::path::named;
use serde::{Deserialize, Serialize};

use super::CastRole;
use crate::{DType, Op, printable::printable};

/// Phase of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The forward pass, with the loss.
    Forward,
    /// The backward pass.
    Backward,
    /// The division of the gradients by the loss scale.
    Unscale,
    /// The update of the parameters.
    Optimizer,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Forward => "forward pass",
            Phase::Backward => "backward pass",
            Phase::Unscale => "unscaling",
            Phase::Optimizer => "update",
        })
    }
}

/// Operation that writes an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EdgeOp {
    /// An op, or the gradient of one.
    Op(Op),
    /// The sum of gradients that arrive at one place.
    Accumulate,
    /// The division of a gradient by the loss scale.
    Unscale,
    /// The update of a parameter.
    Update,
}

impl EdgeOp {
    /// Returns the name of the input with this index, such as "the weight".
    pub fn input_name(self, input: usize) -> Cow<'static, str> {
        let has_weight = matches!(self, EdgeOp::Op(op) if op.has_weight());
        match input {
            0 if has_weight => "the input".into(),
            1 if has_weight => "the weight".into(),
            2 if has_weight => "the bias".into(),
            _ => format!("input {input}").into(),
        }
    }
}

impl fmt::Display for EdgeOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EdgeOp::Op(op) => op.fmt(f),
            EdgeOp::Accumulate => f.write_str("Accumulate"),
            EdgeOp::Unscale => f.write_str("Unscale"),
            EdgeOp::Update => f.write_str("Update"),
        }
    }
}

/// Tensor that an edge holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// The result of an op.
    Output,
    /// The parameter of this path.
    Param(String),
    /// An input of the cell, at its border.
    CellInput,
    /// An output of the cell, at its border.
    CellOutput,
    /// An input of this op.
    InputOf(Op),
    /// The gradient of the input with this index.
    Gradient(usize),
    /// A tensor of the code.
    Other,
}

impl Subject {
    /// Returns the tensor that a cast writes; a parameter is named later.
    pub fn of_cast(role: CastRole) -> Self {
        match role {
            CastRole::IntoCell => Subject::CellInput,
            CastRole::OutOfCell => Subject::CellOutput,
            CastRole::IntoOp(op) => Subject::InputOf(op),
            CastRole::Gradient => Subject::Gradient(0),
            CastRole::Leaf(_) | CastRole::Other => Subject::Other,
        }
    }
}

/// Counts of the numbers of an edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Numbers {
    /// Number of elements.
    pub n: usize,
    /// NaN among them.
    pub nan: usize,
    /// Positive infinities.
    pub inf: usize,
    /// Negative infinities.
    pub neg_inf: usize,
    /// Zeros.
    pub zero: usize,
    /// Elements that are not 0 when computed in f64.
    pub nonzero: usize,
    /// Elements among [`nonzero`](Numbers::nonzero) that rounding made 0.
    pub flushed: usize,
    /// Norm of these elements before rounding, divided by the norm of all.
    pub flushed_norm: f64,
    /// Largest finite magnitude.
    pub amax: f64,
    /// Largest finite magnitude before rounding, where known, or else [`amax`](Numbers::amax).
    pub exact: f64,
}

impl Numbers {
    /// Counts numbers. `exact` are the same before rounding, where known.
    pub fn of(values: &[f64], exact: Option<&[f64]>) -> Self {
        let mut numbers = Numbers { n: values.len(), ..Numbers::default() };
        let (mut lost, mut whole) = (0.0, 0.0);
        for (at, value) in values.iter().enumerate() {
            match *value {
                value if value.is_nan() => numbers.nan += 1,
                f64::INFINITY => numbers.inf += 1,
                f64::NEG_INFINITY => numbers.neg_inf += 1,
                value => {
                    numbers.amax = numbers.amax.max(value.abs());
                    numbers.zero += usize::from(value == 0.0);
                }
            }
            let exact = exact.map_or(*value, |exact| exact[at]);
            if exact.is_finite() {
                numbers.exact = numbers.exact.max(exact.abs());
            }
            if exact != 0.0 {
                numbers.nonzero += 1;
                numbers.flushed += usize::from(*value == 0.0);
                lost += if *value == 0.0 { exact * exact } else { 0.0 };
                whole += exact * exact;
            }
        }
        numbers.flushed_norm = if lost > 0.0 { (lost / whole).sqrt() } else { 0.0 };
        numbers
    }

    /// Returns whether all numbers are finite.
    pub fn is_finite(&self) -> bool {
        self.nan + self.inf + self.neg_inf == 0
    }

    /// Returns the share of the numbers other than 0 that rounding made 0.
    pub fn flushed_share(&self) -> f64 {
        self.flushed as f64 / self.nonzero.max(1) as f64
    }
}

/// One result of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Edge {
    /// Phase in which it was written.
    pub phase: Phase,
    /// Path of the cell; empty for the root, and outside every cell.
    pub cell: String,
    /// Operation that wrote it.
    pub op: EdgeOp,
    /// Tensor that it holds.
    pub subject: Subject,
    /// Call of the cell's op, from 0: a cell that is called twice has the calls 0 and 1.
    pub call: usize,
    /// Dtype of its numbers.
    pub dtype: DType,
    /// Its numbers.
    pub numbers: Numbers,
    /// Relative error against the same step in f64: the norm of the difference divided by the norm; `None` where the
    /// step in f64 is not known.
    pub error: Option<f64>,
    /// Indices of the edges that were read.
    pub from: Vec<usize>,
    /// `true` when the same operation in f32, on the numbers that were read, gives finite numbers.
    pub good_inputs: bool,
}

impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Edge { cell, op, phase, .. } = self;
        match &self.subject {
            Subject::Param(path) => write!(f, "{op} of `{}`, {phase}", printable(path)),
            Subject::CellInput => write!(f, "{op} of the input of {}, {phase}", named(cell)),
            Subject::CellOutput => write!(f, "{op} of the output of {}, {phase}", named(cell)),
            Subject::InputOf(of) => write!(f, "{op} of an input of {of} in {}, {phase}", named(cell)),
            Subject::Gradient(_) if *op == EdgeOp::Op(Op::Cast) => {
                write!(f, "{op} of a gradient in {}, {phase}", named(cell))
            }
            Subject::Gradient(input) => {
                write!(f, "gradient of {} of {op} in {}, {phase}", op.input_name(*input), named(cell))
            }
            Subject::Output | Subject::Other => write!(f, "{op} in {}, {phase}", named(cell)),
        }
    }
}
