//! Systems: whose names of ops and of kinds of cells lists are written in.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{Op, further};
use crate::error::{Error, Result, by_name};

/// A system whose names of ops lists are written in.
///
/// Of the first four the catalogue has every op that one of their lists names, so that another name is taken for a slip. The
/// others are [open](System::is_open): precast knows some of their names, and takes any other with the prefix of the system
/// (`onnx::Scan`, `burn::float_cumsum`) for a [foreign](Op::Foreign) op, which lists can treat and nothing here can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub enum System {
    /// MindSpore's primitives: `Conv2D`.
    #[serde(rename = "mindspore")]
    MindSpore,
    /// Paddle's ops under the names its lists use: `elementwise_add`.
    #[serde(rename = "paddle")]
    Paddle,
    /// torch's `aten` ops: `conv2d`, also written `aten::conv2d` or with an overload, `conv2d.padding`.
    #[serde(rename = "torch")]
    Torch,
    /// TensorFlow's graph ops: `Conv2D`.
    #[serde(rename = "tensorflow")]
    TensorFlow,
    /// ONNX's operators: `Conv`. Open.
    #[serde(rename = "onnx")]
    Onnx,
    /// burn's modules: `Linear`; of its ops none is known. Open.
    #[serde(rename = "burn")]
    Burn,
}

impl System {
    const EACH: [System; 6] =
        [System::MindSpore, System::Paddle, System::Torch, System::TensorFlow, System::Onnx, System::Burn];

    /// All systems, those first that are not open.
    pub const ALL: &[System] = &System::EACH;

    /// The name as in files: `torch`.
    pub fn name(self) -> &'static str {
        match self {
            System::MindSpore => "mindspore",
            System::Paddle => "paddle",
            System::Torch => "torch",
            System::TensorFlow => "tensorflow",
            System::Onnx => "onnx",
            System::Burn => "burn",
        }
    }

    /// Whether any name with its prefix is taken for one of its ops or kinds. Of a system that is not open, only names in the
    /// catalogue are.
    pub fn is_open(self) -> bool {
        matches!(self, System::Onnx | System::Burn)
    }

    /// The systems of which the catalogue has all names.
    pub(super) fn listed() -> impl Iterator<Item = System> {
        System::EACH.into_iter().filter(|system| !system.is_open())
    }

    /// The system that a name is said to be of, and the rest of it: `paddle:mul`, `aten::mul`, `torch.mul`.
    pub(super) fn of_prefix(name: &str) -> Result<Option<(System, &str)>> {
        let alias = |prefix: &str| match prefix {
            "aten" => Some(System::Torch),
            "tf" => Some(System::TensorFlow),
            prefix => System::EACH.into_iter().find(|system| system.name() == prefix),
        };
        if let Some((prefix, rest)) = name.split_once(':') {
            let system = alias(prefix).map_or_else(|| prefix.parse(), Ok)?;
            return Ok(Some((system, rest.trim_start_matches(':'))));
        }
        // Of a dot in a name only a system's own is a prefix: `conv2d.padding` has an overload.
        Ok(name.split_once('.').and_then(|(prefix, rest)| Some((alias(prefix)?, rest))))
    }

    /// A name of this system without what may stand around it.
    fn bare(self, name: &str) -> &str {
        if self != System::Torch {
            return name;
        }
        let name = name.strip_prefix("aten::").unwrap_or(name);
        name.split_once('.').map_or(name, |(name, _overload)| name)
    }

    /// The ops of the catalogue that it calls so.
    pub(super) fn ops(self, name: &str) -> Vec<Op> {
        let name = self.bare(name);
        Op::ALL.iter().copied().filter(|op| op.names(self).any(|known| known == name)).collect()
    }

    /// Its names for an op, beside those in the columns of the table.
    pub(super) fn further_names(self, op: Op) -> &'static [&'static str] {
        match self {
            System::Onnx => further::names(further::ONNX, op),
            _ => &[],
        }
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for System {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        by_name(text, System::EACH, System::name, "no system is called").map_err(Error::list)
    }
}
