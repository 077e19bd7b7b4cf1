//! Lists of a graph rewrite: four lists of ops, and the level that modifies them.

use std::{fmt, str::FromStr};

use precast_base::{DType, Error, Result, names::by_name};
use serde::{Deserialize, Serialize};

use crate::precision::Treatment;

/// List of a graph rewrite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GraphList {
    /// Ops that run low: products.
    Allow,
    /// Ops that run low after or between low ops.
    Infer,
    /// Ops that stay f32, along with the ops that follow them up to the next one on the allow list.
    Deny,
    /// Ops that follow their neighbours, since rounding does not harm their results.
    Clear,
}

impl GraphList {
    /// All four lists.
    pub const ALL: [GraphList; 4] = [GraphList::Allow, GraphList::Infer, GraphList::Deny, GraphList::Clear];

    /// Returns `allow`, `infer`, `deny` or `clear`.
    pub const fn name(self) -> &'static str {
        match self {
            GraphList::Allow => "allow",
            GraphList::Infer => "infer",
            GraphList::Deny => "deny",
            GraphList::Clear => "clear",
        }
    }

    /// Returns the treatment of its entries.
    pub const fn treatment(self) -> Treatment {
        match self {
            GraphList::Allow => Treatment::Low,
            GraphList::Infer => Treatment::Infer,
            GraphList::Deny => Treatment::Full,
            GraphList::Clear => Treatment::Clear,
        }
    }

    /// Returns the list whose entries have a treatment, or `None` for a treatment of regions only.
    pub fn of(treatment: Treatment) -> Option<GraphList> {
        GraphList::ALL.into_iter().find(|list| list.treatment() == treatment)
    }
}

impl fmt::Display for GraphList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Rewrite level that modifies the graph lists. All but `usual` have the names of TensorFlow's
/// `TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_LEVEL`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum GraphLevel {
    /// The lists unchanged.
    #[default]
    Usual,
    /// The allow list only. Affects f16: with bf16, the lists are unchanged.
    TensorCoresOnly,
    /// Every op capable of f16 runs in f16. Unsafe: results may be far off.
    #[serde(rename = "unsafe_force_all")]
    ForceAll,
    /// The infer list is treated as part of the deny list.
    TreatInferAsDeny,
}

impl GraphLevel {
    /// All rewrite levels.
    pub const ALL: [GraphLevel; 4] =
        [GraphLevel::Usual, GraphLevel::TensorCoresOnly, GraphLevel::ForceAll, GraphLevel::TreatInferAsDeny];

    /// Returns the name used in files, such as `tensor_cores_only`.
    pub fn name(self) -> &'static str {
        match self {
            GraphLevel::Usual => "usual",
            GraphLevel::TensorCoresOnly => "tensor_cores_only",
            GraphLevel::ForceAll => "unsafe_force_all",
            GraphLevel::TreatInferAsDeny => "treat_infer_as_deny",
        }
    }

    /// Checks that the rewrite level supports a low dtype.
    ///
    /// # Errors
    /// [`ErrorKind::Level`](crate::ErrorKind::Level) for [`ForceAll`](GraphLevel::ForceAll) with bf16, as in
    /// TensorFlow.
    pub(crate) fn check(self, low: DType) -> Result<()> {
        match (self, low) {
            (GraphLevel::ForceAll, DType::Bf16) => {
                Err(Error::level("only float16 can be forced on all ops, not bfloat16"))
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for GraphLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for GraphLevel {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        by_name(text, GraphLevel::ALL, GraphLevel::name, "unknown level of a graph").map_err(Error::level)
    }
}
