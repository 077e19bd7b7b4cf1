//! Findings of a lint.

use std::fmt;

use serde::{Deserialize, Serialize};

use precast::observe::{EdgeOp, Phase, Subject};
use precast_base::{path::named, printable::printable};

/// Severity of a [`Finding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Nothing breaks: speed, or a habit that may break later.
    Information,
    /// Digits or updates are lost, or a number is near a limit.
    Warning,
    /// Numbers become infinite, NaN or 0.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Severity::Information => "information",
            Severity::Warning => "warning",
            Severity::Error => "error",
        })
    }
}

macro_rules! rules {
    ($($(#[$doc:meta])* $rule:ident = $name:literal,)*) => {
        /// Rule that found something.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum Rule {
            $($(#[$doc])* #[serde(rename = $name)] $rule,)*
        }

        impl Rule {
            /// All rules.
            pub const ALL: &[Rule] = &[$(Rule::$rule),*];

            /// Returns the name, as in JSON.
            pub fn name(self) -> &'static str {
                match self {
                    $(Rule::$rule => $name,)*
                }
            }
        }
    };
}

rules! {
    /// A number that is infinite or NaN in f32 already.
    NotFinite = "not_finite",
    /// A number of the forward pass beyond the largest one of its dtype.
    Overflow = "overflow",
    /// Numbers of the forward pass that become 0.
    Underflow = "underflow",
    /// A gradient, or a sum of gradients, beyond the largest number of its dtype.
    GradOverflow = "grad_overflow",
    /// Gradients, or sums of gradients, that become 0.
    GradUnderflow = "grad_underflow",
    /// A difference of nearly equal numbers, with few digits left.
    Cancellation = "cancellation",
    /// Small numbers added to a large one, which loses them.
    Absorbed = "absorbed",
    /// A sum that is rounded after every term.
    Depth = "depth",
    /// An epsilon below the smallest number of its dtype.
    EpsTooSmall = "eps_too_small",
    /// A mask that becomes negative infinity.
    MaskConstant = "mask_constant",
    /// A sum that overflows although it is divided afterwards.
    SumBeforeDiv = "sum_before_div",
    /// A softmax of exponentials without subtraction of the maximum.
    SoftmaxByHand = "softmax_by_hand",
    /// A variance as the difference of two means.
    VarianceByHand = "variance_by_hand",
    /// Statistics stored in a dtype that does not hold them.
    RunningVar = "running_var",
    /// Parameters stored low, whose updates are lost.
    LowWeights = "low_weights",
    /// A loss computed in 16 bits.
    LowOutputIntoLoss = "low_output_into_loss",
    /// Inputs of the network whose differences are lost in the dtype to which they are cast.
    InputDigits = "input_digits",
    /// Inputs or targets far beyond the others, where numbers overflow.
    FarData = "far_data",
    /// Gradients whose squares, which the optimizer averages, are beyond float32.
    UpdateOverflow = "update_overflow",
    /// A product with a side that is not a multiple of 8.
    ShapeOf8 = "shape_of_8",
    /// Counts or indices that their dtype does not hold exactly.
    CountsInFloat = "counts_in_float",
    /// Numbers of quantized operands that become 0.
    FlushedCodes = "flushed_codes",
    /// Inputs or weights in a format of two bits of mantissa.
    FewDigits = "few_digits",
    /// Quantized operands of the first or the last product.
    QuantizedEnd = "quantized_end",
    /// Two policies, or a policy and a region, around the same cells.
    DoubleWrapping = "double_wrapping",
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A result of a pass: the place of a finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Place {
    /// Phase in which it is written.
    pub phase: Phase,
    /// Path of the cell; empty for the root, and outside every cell.
    pub cell: String,
    /// Operation that writes it.
    pub op: EdgeOp,
    /// Tensor that it holds.
    pub subject: Subject,
    /// Largest magnitude among its numbers in f32.
    pub amax: f64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { op, cell, .. } = self;
        match &self.subject {
            Subject::Param(path) => write!(f, "{op} of `{}`", printable(path)),
            Subject::CellInput => write!(f, "{op} of the input of {}", named(cell)),
            Subject::CellOutput => write!(f, "{op} of the output of {}", named(cell)),
            Subject::InputOf(of) => write!(f, "{op} of an input of {of} in {}", named(cell)),
            Subject::Gradient(_) if *op == EdgeOp::Op(precast::Op::Cast) => {
                write!(f, "{op} of a gradient in {}", named(cell))
            }
            Subject::Gradient(input) => {
                write!(f, "gradient of {} of {op} in {}", op.input_name(*input), named(cell))
            }
            Subject::Output | Subject::Other => write!(f, "{op} in {}", named(cell)),
        }
    }
}

/// One finding of a lint. Its text has the place, the number found, the limit, and the cure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// The severity.
    pub severity: Severity,
    /// Path of the cell; empty for the root, and for the network as a whole.
    pub cell: String,
    /// The result of the pass, if it is about one.
    pub place: Option<Place>,
    /// The number found.
    pub number: f64,
    /// Limit that it exceeds.
    pub limit: f64,
    /// Place and numbers in words.
    pub what: String,
    /// The cure: a rule of a policy, a loss scale, or other code; empty where an earlier finding has the same cure.
    pub write: String,
    /// Later results with the same trouble, which this one causes.
    pub then: Vec<Place>,
    /// Paths of the cells that the cure keeps in f32; empty for another cure.
    #[serde(default)]
    pub keep: Vec<String>,
}

impl Finding {
    /// Creates a finding about a cell or the network.
    pub(super) fn of_cell(rule: Rule, severity: Severity, cell: &str, numbers: [f64; 2]) -> Self {
        let ([number, limit], cell) = (numbers, cell.to_string());
        Finding {
            rule,
            severity,
            cell,
            place: None,
            number,
            limit,
            what: String::new(),
            write: String::new(),
            then: Vec::new(),
            keep: Vec::new(),
        }
    }

    /// Creates a finding about a result of the pass.
    pub(super) fn at(rule: Rule, severity: Severity, place: Place, numbers: [f64; 2]) -> Self {
        let finding = Finding::of_cell(rule, severity, &place.cell, numbers);
        Finding { place: Some(place), ..finding }
    }

    pub(super) fn what(self, what: impl Into<String>) -> Self {
        Finding { what: what.into(), ..self }
    }

    pub(super) fn write(self, write: impl Into<String>) -> Self {
        Finding { write: write.into(), ..self }
    }

    pub(super) fn keep(self, keep: Vec<String>) -> Self {
        Finding { keep, ..self }
    }

    pub(super) fn then(self, then: Vec<Place>) -> Self {
        Finding { then, ..self }
    }
}

/// Number of later places that the text names.
const NAMED: usize = 3;

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.severity, self.rule, self.what)?;
        if !self.then.is_empty() {
            let named: Vec<String> = self.then.iter().take(NAMED).map(Place::to_string).collect();
            let more = self.then.len().saturating_sub(NAMED);
            write!(f, "; then {}", named.join(", "))?;
            if more > 0 {
                write!(f, " and {more} more")?;
            }
        }
        if !self.write.is_empty() {
            write!(f, "\n  write: {}", self.write)?;
        }
        Ok(())
    }
}
