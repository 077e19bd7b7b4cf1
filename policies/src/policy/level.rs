//! Optimisation levels.

use std::{fmt, str::FromStr};

use precast_base::{Error, Result, names::did_you_mean};
use serde::{Deserialize, Serialize};

/// Optimisation level: the part of a network that is lowered.
///
/// Regions of code have no level: their ops follow the lists of a pack. If a pack has several, `Autocast::op_level` of
/// precast selects one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Level {
    /// Nothing is lowered.
    O0,
    /// Cells on the low list run low and return f32. Ops on the low list that other cells call directly are cast to
    /// the low dtype and back.
    O1,
    /// The whole network is one low region. Cells and ops on the full list are f32 islands in it. The root returns
    /// f32.
    O2,
    /// The whole network is one low region. The root returns f32.
    O3,
    /// No cell is wrapped: every op follows the op lists of the pack. In most packs, unlisted ops take their inputs as
    /// they are. The output may be low.
    #[serde(rename = "auto")]
    Auto,
}

impl Level {
    /// All levels, in order.
    pub const ALL: [Level; 5] = [Level::O0, Level::O1, Level::O2, Level::O3, Level::Auto];

    /// Returns the name used in files.
    pub fn name(self) -> &'static str {
        match self {
            Level::O0 => "O0",
            Level::O1 => "O1",
            Level::O2 => "O2",
            Level::O3 => "O3",
            Level::Auto => "auto",
        }
    }

    /// Returns a one-line description.
    pub fn meaning(self) -> &'static str {
        match self {
            Level::O0 => "nothing is lowered",
            Level::O1 => "cells and ops on the low list run low and return f32",
            Level::O2 => "all runs low but the full list; the network returns f32",
            Level::O3 => "all runs low; the network returns f32",
            Level::Auto => "each op runs by its list: low, f32, or as its widest input",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Level {
    type Err = Error;

    /// Parses an exact name: `O2`, but neither `o2` nor `2`.
    fn from_str(text: &str) -> Result<Self> {
        if text == "graph" {
            let words = "`graph` is not a level; a policy for graphs has the key `graph` in place of `level`, as in `graph: {}`";
            return Err(Error::level(words));
        }
        Level::ALL.into_iter().find(|level| level.name() == text).ok_or_else(|| {
            // A zero in place of the letter, or the number alone.
            let meant = match text.as_bytes() {
                [b'0', digit] | [digit] => format!("O{}", char::from(*digit)),
                _ => text.to_string(),
            };
            let names = Level::ALL.map(Level::name);
            let near = did_you_mean(&meant, names);
            Error::level(format!("unknown level `{text}`{near}; allowed: {}", names.join(", ")))
        })
    }
}

impl TryFrom<&str> for Level {
    type Error = Error;
    fn try_from(text: &str) -> Result<Self> {
        text.parse()
    }
}
