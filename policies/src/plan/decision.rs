//! Decisions: the precision inside a cell, and the reason.

use std::{borrow::Cow, sync::Arc};

use precast_base::{DType, Error, Result, path::named};
use serde::{Deserialize, Serialize};

use super::{
    cost::{Cost, Predicted},
    region::Region,
};
use crate::{
    adapter::{Adapter, Planned},
    policy::{Entry, GraphList, Kept, Level, Operands, Origin, Rule, RunAs},
};

/// The decision for one cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Path of the cell; the root's is empty.
    pub path: String,
    /// Kind of the cell.
    pub kind: Cow<'static, str>,
    /// The precision inside the cell.
    pub run: Region,
    /// The adapter for the cell's slot; `None` where the precision does not change.
    pub adapter: Option<Adapter>,
    /// The rule that recomputes its activations in the backward pass, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recompute: Option<ByRule<bool>>,
    /// The form in which it keeps its activations for the backward pass, if a rule is about them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<ByRule<Kept>>,
    /// The operands of its products, if it has products and a rule is about them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operands: Option<ByRule<Quantization>>,
    /// `true` when a rule raises the cell to f32 if it [stalls a run](crate::policy::Rule::raise_after_stall).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub raise_after_stall: bool,
    /// Decisions that follow this one in a run, when rules [end](crate::policy::Rule::until).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub later: Vec<Later>,
    /// `true` when the gradients of its own weights are computed in f32; see [`RunAs::LowForward`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wide_weight_grads: bool,
    /// Switch of weight gradients in f32 in its slot, from here on inwards; `None` where it does not change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) turns_weight_grads: Option<bool>,
    /// Tensors of a stored low-precision cell, by their names in it, that are kept unchanged because they are not known
    /// as weights.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keeps: Vec<String>,
    /// The reason for the decision.
    pub because: Reason,
    /// Other claims on the cell that were overridden, strongest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overridden: Vec<Reason>,
    /// Predicted cost of the cell without those inside it, in a plan made [for a machine](crate::Policy::plan_for).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted: Option<Predicted>,
}

impl Decision {
    /// Returns the contents of the cell's slot.
    pub fn planned(&self) -> Planned {
        let (adapter, wide_weight_grads) = (self.adapter.clone(), self.turns_weight_grads);
        let (recompute, kept) = (self.recompute.is_some(), self.kept.as_ref().map(|kept| kept.says));
        Planned { adapter, recompute, kept, wide_weight_grads, operands: self.quantized() }
    }

    /// Returns the form in which it keeps its activations; `None` for that in which they were computed.
    pub fn kept(&self) -> Option<Kept> {
        self.kept.as_ref().map(|kept| kept.says).filter(|kept| kept.format().is_some())
    }

    /// Returns the operands of its products; `None` where they are not quantized.
    pub fn quantized(&self) -> Option<Operands> {
        let Quantization { operands, left_out } = &self.operands.as_ref()?.says;
        Some(*operands).filter(|operands| operands.recipe().is_some() && left_out.is_none())
    }
}

/// A decision that follows another one in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Later {
    /// Number of steps after which it holds.
    pub after: usize,
    /// Effect on the cell, in a few words.
    pub effect: String,
    /// The reason for the decision.
    pub because: Reason,
}

/// The reason for a decision about a cell, or about a node of a graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// `to_float` in code.
    ToFloat(DType),
    /// A rule with the exact path of the cell, or else the first rule that matches it.
    Rule(Arc<RuleRef>),
    /// The region of the cell at this path, which contains this one.
    Inside(Arc<str>),
    /// An entry of a list for the kind of the cell.
    Listed(Entry),
    /// The default of the level.
    Level(Level),
    /// A comparison of times: the policy prefers speed, and this choice is faster.
    Cost(Cost),
    /// A list of a graph rewrite. An op on the allow or deny list is decided by it; one on the infer or clear list was
    /// not made low by a neighbour.
    OnList(GraphList),
    /// A list of a graph rewrite, and the neighbour that the node follows: it runs low.
    Follows {
        /// The list of the op: infer or clear.
        list: GraphList,
        /// Name of the neighbour.
        node: Arc<str>,
    },
    /// The position of a node between two nodes on the allow list.
    Between {
        /// Name of the node upstream.
        above: Arc<str>,
        /// Name of the node downstream.
        below: Arc<str>,
    },
    /// A node that stays f32, which this one follows.
    AfterDenied(Arc<str>),
    /// The readers of a cast, by name.
    ReadBy(Vec<Arc<str>>),
    /// A reason that is rare in graphs, in words.
    Words(Cow<'static, str>),
}

/// A rule, given as a reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RuleRef {
    /// The selection of cells, as written: `path encoder.*.norm`.
    pub select: String,
    /// The precision that it sets.
    pub run: RunAs,
    /// Number of steps after which it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<usize>,
    /// The author's reason.
    pub because: Option<String>,
    /// The place where it was written.
    pub origin: Origin,
}

impl RuleRef {
    /// Returns whether the tensors that it names are stored low.
    pub fn stores_low(&self) -> bool {
        self.run == RunAs::Low
    }
}

/// A rule, with the part of it that decides for a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ByRule<T> {
    /// The value that decides.
    pub says: T,
    /// The selection of cells, as written.
    pub select: String,
    /// The author's reason.
    pub because: Option<String>,
    /// The place where it was written.
    pub origin: Origin,
}

/// The operands of a cell's products, as a rule has them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Quantization {
    /// The operands.
    pub operands: Operands,
    /// The reason for which they are not quantized: `n 10 is below min_n 16`, or `n 10 is not a multiple of 32`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
}

impl Quantization {
    /// Returns the operands of a rule for a cell whose products have these sizes, n and k. Blocks that do not divide them leave
    /// a cell with one product out; those of others are checked by the first call.
    ///
    /// # Errors
    /// [`ErrorKind::Policy`](crate::ErrorKind::Policy) when the rule has a least size, and none is known.
    pub(super) fn of(
        rule: &Rule,
        path: &str,
        sizes: Option<[usize; 2]>,
        has_one_product: bool,
    ) -> Result<Option<ByRule<Self>>> {
        let Some(operands) = rule.operands else { return Ok(None) };
        let least = [("n", "min_n", rule.min_n), ("k", "min_k", rule.min_k)];
        let left_out = match sizes {
            Some(sizes) => least.into_iter().zip(sizes).find(|((.., least), size)| size < least),
            None if rule.min_n.max(rule.min_k) == 0 => None,
            None => {
                let words = format!(
                    "the rule for {} has a least size, and the sizes of {} are not known; leave `min_k` and `min_n` out",
                    rule.select,
                    named(path)
                );
                return Err(rule.origin.error(Error::policy(words)));
            }
        };
        let left_out = left_out.map(|((name, key, least), size)| format!("{name} {size} is below {key} {least}"));
        let misfit = || {
            let (sizes, recipe) = (sizes.filter(|_| has_one_product)?, operands.recipe()?);
            let each = [0, 1].map(|i| (["n", "k"][i], sizes[i], recipe.multiples()[i]));
            let (name, size, multiple) = each.into_iter().find(|(_, size, multiple)| size % multiple != 0)?;
            Some(format!("{name} {size} is not a multiple of {multiple}"))
        };
        let left_out = left_out.or_else(misfit);
        Ok(Some(ByRule::of(rule, Quantization { operands, left_out })))
    }
}

impl<T> ByRule<T> {
    /// Returns what a rule says.
    pub(super) fn of(rule: &Rule, says: T) -> Self {
        ByRule { says, select: rule.select.to_string(), because: rule.because.clone(), origin: rule.origin.clone() }
    }
}

impl RuleRef {
    /// Returns the rule as a reason; `None` for a rule that does not set the precision.
    pub(super) fn of(rule: &Rule) -> Option<Self> {
        let (select, because, origin) = (rule.select.to_string(), rule.because.clone(), rule.origin.clone());
        Some(RuleRef { select, run: rule.run?, until: rule.until, because, origin })
    }

    /// Returns the rule as a reason for a node of a graph, which has an op in place of a kind; `None` for a rule that does not
    /// set the precision.
    pub fn of_node(rule: &Rule) -> Option<Self> {
        Some(RuleRef { select: rule.select.of_nodes(), ..RuleRef::of(rule)? })
    }
}
