//! Systems whose names of ops and cell kinds are used in lists.

use std::{fmt, str::FromStr};

use precast_base::{Error, Result, names::by_name};
use serde::{Deserialize, Serialize};

use super::{Op, further};

/// System whose op names are used in lists.
///
/// The catalogue has every op named in a list of the first four systems, so any other name is treated as a typo. The
/// others are [open](System::is_open): precast knows some of their names, and treats any other name with the prefix of
/// the system (`onnx::Scan`, `burn::float_cumsum`) as a [foreign](Op::Foreign) op, which lists can name but precast
/// cannot run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub enum System {
    /// MindSpore's primitives, such as `Conv2D`.
    #[serde(rename = "mindspore")]
    MindSpore,
    /// Paddle's ops under the names used in its lists, such as `elementwise_add`.
    #[serde(rename = "paddle")]
    Paddle,
    /// torch's `aten` ops, such as `conv2d`, also written `aten::conv2d` or, with an overload, `conv2d.padding`.
    #[serde(rename = "torch")]
    Torch,
    /// TensorFlow's graph ops, such as `Conv2D`.
    #[serde(rename = "tensorflow")]
    TensorFlow,
    /// ONNX's operators, such as `Conv`. Open.
    #[serde(rename = "onnx")]
    Onnx,
    /// burn's modules, such as `BatchNorm`, and the ops of its graphs, such as `Matmul`. Open.
    #[serde(rename = "burn")]
    Burn,
}

impl System {
    const EACH: [System; 6] =
        [System::MindSpore, System::Paddle, System::Torch, System::TensorFlow, System::Onnx, System::Burn];

    /// All systems, starting with those that are not open.
    pub const ALL: &[System] = &System::EACH;

    /// Returns the name used in files, such as `torch`.
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

    /// Returns whether any name with the prefix of the system is accepted as one of its ops or kinds. A system that is
    /// not open accepts only names in the catalogue.
    pub fn is_open(self) -> bool {
        matches!(self, System::Onnx | System::Burn)
    }

    /// Returns the systems whose names are all in the catalogue.
    pub(super) fn listed() -> impl Iterator<Item = System> {
        System::EACH.into_iter().filter(|system| !system.is_open())
    }

    /// Splits a name with a prefix into its system and the rest: `paddle:mul`, `aten::mul`, `torch.mul`.
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
        // A dot ends a prefix only after the name of a system: `conv2d.padding` has an overload.
        Ok(name.split_once('.').and_then(|(prefix, rest)| Some((alias(prefix)?, rest))))
    }

    /// Strips the optional prefix and overload from a name of this system.
    fn bare(self, name: &str) -> &str {
        if self != System::Torch {
            return name;
        }
        let name = name.strip_prefix("aten::").unwrap_or(name);
        name.split_once('.').map_or(name, |(name, _overload)| name)
    }

    /// Returns the ops of the catalogue with a name in this system.
    pub(super) fn ops(self, name: &str) -> Vec<Op> {
        let name = self.bare(name);
        Op::ALL.iter().copied().filter(|op| op.names(self).any(|known| known == name)).collect()
    }

    /// Returns the names of an op in this system, in addition to those in the columns of the table.
    pub(super) fn further_names(self, op: Op) -> &'static [&'static str] {
        match self {
            System::Onnx => further::names(further::ONNX, op),
            System::Burn => further::names(further::BURN, op),
            _ => &[],
        }
    }

    /// Returns the names of ops of this system that precast knows and has no op for.
    pub(super) fn names_alone(self) -> &'static [&'static str] {
        if self == System::Onnx { further::ONNX_ALONE } else { &[] }
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
