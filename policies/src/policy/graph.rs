//! What a policy of level graph decides by: four lists of ops, and how much they say.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{
    DType,
    error::{Error, Result, by_name},
    precision::Treatment,
};

/// A list of a graph rewrite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GraphList {
    /// These run low: products.
    Allow,
    /// These run low after or between ops that do.
    Infer,
    /// These stay f32, and so does what follows them, up to the next op on the allow list.
    Deny,
    /// These follow their neighbours: rounding spoils nothing in them.
    Clear,
}

impl GraphList {
    /// All four.
    pub const ALL: [GraphList; 4] = [GraphList::Allow, GraphList::Infer, GraphList::Deny, GraphList::Clear];

    /// `allow`, `infer`, `deny` or `clear`.
    pub const fn name(self) -> &'static str {
        match self {
            GraphList::Allow => "allow",
            GraphList::Infer => "infer",
            GraphList::Deny => "deny",
            GraphList::Clear => "clear",
        }
    }

    /// What its entries say in the lists of level graph.
    pub const fn treatment(self) -> Treatment {
        match self {
            GraphList::Allow => Treatment::Low,
            GraphList::Infer => Treatment::Infer,
            GraphList::Deny => Treatment::Full,
            GraphList::Clear => Treatment::Clear,
        }
    }

    /// The list of which entries say that; `None` for what only regions do.
    pub fn of(treatment: Treatment) -> Option<GraphList> {
        GraphList::ALL.into_iter().find(|list| list.treatment() == treatment)
    }
}

impl fmt::Display for GraphList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How much the lists say. All but the usual have the names of TensorFlow's `TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_LEVEL`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum GraphLevel {
    /// As they are.
    #[default]
    Usual,
    /// Only the allow list counts. This is about f16: with bf16 the lists stay as they are.
    TensorCoresOnly,
    /// Every op that can run low does, in f16. Unsafe: results may be far off.
    #[serde(rename = "unsafe_force_all")]
    ForceAll,
    /// The infer list is denied, too.
    TreatInferAsDeny,
}

impl GraphLevel {
    /// All of them.
    pub const ALL: [GraphLevel; 4] =
        [GraphLevel::Usual, GraphLevel::TensorCoresOnly, GraphLevel::ForceAll, GraphLevel::TreatInferAsDeny];

    /// Name, as in files: `tensor_cores_only`.
    pub fn name(self) -> &'static str {
        match self {
            GraphLevel::Usual => "usual",
            GraphLevel::TensorCoresOnly => "tensor_cores_only",
            GraphLevel::ForceAll => "unsafe_force_all",
            GraphLevel::TreatInferAsDeny => "treat_infer_as_deny",
        }
    }

    /// # Errors
    /// [`ErrorKind::Level`](crate::ErrorKind::Level) for [`ForceAll`](GraphLevel::ForceAll) with bf16, as in TensorFlow.
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
