//! What is decided for a cell: the precision inside it, and why.

use std::{borrow::Cow, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{Cost, Predicted};
use crate::{
    DType,
    adapter::{Adapter, Planned},
    policy::{Entry, Level, Origin, Rule, Run},
};

/// How one cell will run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Path of the cell; the root's is empty.
    pub path: String,
    /// Kind of the cell.
    pub kind: Cow<'static, str>,
    /// The precision inside.
    pub run: Region,
    /// What is put into the cell's slot: only where the precision changes.
    pub adapter: Option<Adapter>,
    /// The rule by which its activations are recomputed in the backward pass, if one says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recompute: Option<Recompute>,
    /// Whether the gradients of its own weights are computed in f32; see [`Run::LowForward`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wide_weight_grads: bool,
    /// What its slot says of the gradients of weights from here on inwards, where that changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) turns_weight_grads: Option<bool>,
    /// Tensors of a stored cell that runs low, by their names in it, which stay as they are: they are not known as weights.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keeps: Vec<String>,
    /// What decided.
    pub because: Reason,
    /// What else applies to the cell and was overridden, strongest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overridden: Vec<Reason>,
    /// What the cell itself is predicted to take, without those inside it, in a plan made [for a machine](crate::Policy::plan_for).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted: Option<Predicted>,
}

impl Decision {
    /// What is put into the cell's slot.
    #[doc(hidden)]
    pub fn planned(&self) -> Planned {
        let (adapter, wide_weight_grads) = (self.adapter.clone(), self.turns_weight_grads);
        Planned { adapter, recompute: self.recompute.is_some(), wide_weight_grads }
    }
}

/// The precision inside a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Region {
    /// Nothing is cast: ops take their inputs as they come.
    AsIs,
    /// Each op is treated by the op lists of the level, where low is this dtype; nothing is cast at the border.
    Lists(DType),
    /// Every op runs in this dtype, and so does what goes in and comes out.
    Fixed(DType),
    /// As [`Fixed`](Region::Fixed), except for the ops on the level's black list: these run in f32 and return this dtype.
    Except(DType),
}

impl Region {
    /// The dtype of what stands in the region where it is one: what is called there gets and returns it.
    pub fn dtype(self) -> Option<DType> {
        match self {
            Region::Fixed(dtype) | Region::Except(dtype) => Some(dtype),
            Region::AsIs | Region::Lists(_) => None,
        }
    }

    /// Whether any op may run low in it.
    #[doc(hidden)]
    pub fn lowers(self) -> bool {
        match self {
            Region::AsIs => false,
            Region::Lists(_) => true,
            Region::Fixed(dtype) | Region::Except(dtype) => dtype.is_low(),
        }
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Region::AsIs => f.pad("as is"),
            Region::Lists(dtype) => f.pad(&format!("op lists {dtype}")),
            Region::Fixed(dtype) => f.pad(dtype.name()),
            Region::Except(dtype) => f.pad(&format!("{dtype}, black ops f32")),
        }
    }
}

/// Why a decision fell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// `to_float` in code.
    ToFloat(DType),
    /// A rule with the exact path of the cell, or the first that matches it.
    Rule(Arc<RuleRef>),
    /// The cell stands inside the region of the cell at this path.
    Inside(Arc<str>),
    /// The kind of the cell is on a list.
    Listed(Entry),
    /// The default of the level.
    Level(Level),
    /// The policy prefers speed, and this is the faster.
    Cost(Cost),
}

/// A rule, as a reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleRef {
    /// Which cells it is for, as written: `path encoder.*.norm`.
    pub select: String,
    /// How they run.
    pub run: Run,
    /// The writer's reason.
    pub because: Option<String>,
    /// Where it was written.
    pub origin: Origin,
}

impl RuleRef {
    /// Says whether the tensors that it names are stored low.
    #[doc(hidden)]
    pub fn stores_low(&self) -> bool {
        self.run == Run::Low
    }
}

/// A rule that says that a cell is recomputed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recompute {
    /// Which cells it is for, as written.
    pub select: String,
    /// The writer's reason.
    pub because: Option<String>,
    /// Where it was written.
    pub origin: Origin,
}

impl From<&Rule> for Recompute {
    fn from(rule: &Rule) -> Self {
        let (because, origin) = (rule.because.clone(), rule.origin.clone());
        Recompute { select: rule.select.to_string(), because, origin }
    }
}

impl RuleRef {
    /// `None` for a rule that says nothing of the precision.
    pub(super) fn of(rule: &Rule) -> Option<Self> {
        let (select, because, origin) = (rule.select.to_string(), rule.because.clone(), rule.origin.clone());
        Some(RuleRef { select, run: rule.run?, because, origin })
    }
}
