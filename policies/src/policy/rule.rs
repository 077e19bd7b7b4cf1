//! Rules: which cells, and how they shall run.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{Origin, Pattern};
use crate::{
    DType,
    error::{Error, Result, did_you_mean, did_you_mean_or_some},
    printable::printable,
};

/// One rule of a policy.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a rule does nothing until a policy has it"]
pub struct Rule {
    /// Which cells.
    pub select: Select,
    /// How they run, and all inside them for which nothing else is said. `None` leaves that to other rules and to the lists.
    pub run: Option<Run>,
    /// Whether their activations are recomputed in the backward pass. `None` leaves that to other
    /// rules; without one they are kept. Unlike `run`, it is for these cells alone, as all inside them is recomputed with them.
    pub checkpoint: Option<bool>,
    /// The writer's reason, shown beside the decision.
    pub because: Option<String>,
    /// How many cells it must match; without it, at least one.
    pub expect: Option<usize>,
    /// Where it was written.
    pub origin: Origin,
}

impl Rule {
    /// A rule for the cells whose path matches a pattern.
    ///
    /// # Errors
    /// [`ErrorKind::Policy`](crate::ErrorKind::Policy) when the pattern is malformed.
    pub fn path(pattern: &str, run: Run) -> Result<Self> {
        Ok(Rule::new(Select::Path(pattern.parse()?), Some(run)))
    }

    /// A rule by which the activations of the cells whose path matches a pattern are
    /// recomputed. It says nothing of their precision.
    ///
    /// # Errors
    /// [`ErrorKind::Policy`](crate::ErrorKind::Policy) when the pattern is malformed.
    pub fn recompute(pattern: &str) -> Result<Self> {
        Ok(Rule::new(Select::Path(pattern.parse()?), None).checkpoint(true))
    }

    /// A rule for the cells of a kind.
    pub fn kind(kind: impl Into<String>, run: Run) -> Self {
        Rule::new(Select::Kind(kind.into()), Some(run))
    }

    /// Says whether its path matches the name of a tensor of a stored model, and it says how that is stored.
    pub(crate) fn names_tensor(&self, name: &str) -> bool {
        matches!(&self.select, Select::Path(pattern) if pattern.matches(name))
            && self.run.is_some_and(Run::is_of_tensors)
    }

    fn new(select: Select, run: Option<Run>) -> Self {
        Rule { select, run, checkpoint: None, because: None, expect: None, origin: Origin::Code }
    }

    /// Says whether the activations of the cells are recomputed.
    pub fn checkpoint(mut self, recompute: bool) -> Self {
        self.checkpoint = Some(recompute);
        self
    }

    /// Adds the reason.
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.because = Some(reason.into());
        self
    }

    /// Adds the number of cells it must match.
    pub fn expect(mut self, cells: usize) -> Self {
        self.expect = Some(cells);
        self
    }
}

/// Which cells a rule is for.
#[derive(Clone, Debug, PartialEq)]
pub enum Select {
    /// Those whose path matches.
    Path(Pattern),
    /// Those of this kind, exactly.
    Kind(String),
}

impl Select {
    /// Whether it selects a cell.
    pub fn matches(&self, path: &str, kind: &str) -> bool {
        match self {
            Select::Path(pattern) => pattern.matches(path),
            Select::Kind(wanted) => wanted == kind,
        }
    }

    /// `(did you mean ...?)` for the nearest of these paths or kinds, or some of them, to one that selects nothing.
    #[doc(hidden)]
    pub fn nearest<'a>(
        &self,
        paths: impl IntoIterator<Item = &'a str>,
        kinds: impl IntoIterator<Item = &'a str>,
    ) -> String {
        match self {
            Select::Path(pattern) => did_you_mean_or_some(&pattern.to_string(), paths),
            Select::Kind(kind) => did_you_mean_or_some(kind, kinds),
        }
    }

    /// Whether it is a path without wildcards.
    pub fn is_exact_path(&self) -> bool {
        matches!(self, Select::Path(pattern) if pattern.is_exact())
    }
}

impl fmt::Display for Select {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Select::Path(pattern) => write!(f, "path {}", printable(&pattern.to_string())),
            Select::Kind(kind) => write!(f, "kind {}", printable(kind)),
        }
    }
}

/// How the cells of a rule run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Run {
    /// In f32.
    #[serde(rename = "float32")]
    Full,
    /// In f32, and the outputs stay f32 where those of [`Full`](Run::Full) would be cast to what surrounds the cell: the last
    /// layer of a network whose numbers need more digits than 16 bits have.
    #[serde(rename = "float32-out")]
    FullOut,
    /// In the policy's low dtype.
    #[serde(rename = "low")]
    Low,
    /// As what surrounds them, whatever the lists say.
    #[serde(rename = "inherit")]
    Inherit,
    /// In the policy's low dtype, but for the gradients of weights and biases of dense layers and convolutions: these are
    /// computed in f32, from activations as they were before they were rounded, where those come in f32. In files
    /// `{ forward: low, weight_grad: float32 }`.
    #[serde(rename = "low, weight_grad float32")]
    LowForward,
}

impl Run {
    /// Says whether it decides how a tensor is stored.
    fn is_of_tensors(self) -> bool {
        matches!(self, Run::Full | Run::Low)
    }

    const NAMES: [(&'static str, Run); 4] =
        [("float32", Run::Full), ("float32-out", Run::FullOut), ("low", Run::Low), ("inherit", Run::Inherit)];
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Run::NAMES.into_iter().find(|(_, run)| run == self) {
            Some((name, _)) => f.pad(name),
            None => f.pad("low, weight_grad float32"),
        }
    }
}

impl FromStr for Run {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let names = Run::NAMES.map(|(name, _)| name);
        Run::NAMES.into_iter().find(|(name, _)| *name == text).map(|(_, run)| run).ok_or_else(|| {
            // The nearest name to `float16` would be `float32`.
            let near = match text.parse::<DType>() {
                Ok(dtype) if dtype.is_low() => " (did you mean `low`, the policy's own dtype?)".to_string(),
                _ => did_you_mean(text, names),
            };
            Error::policy(format!("unknown `run: {text}`{near}; allowed: {}", names.join(", ")))
        })
    }
}
