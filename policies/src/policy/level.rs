//! The optimisation levels.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, did_you_mean};

/// How much of a network is lowered.
///
/// A region of code has no such level: there ops go by the lists of a pack. Which of a pack's lists, where it has several, is
/// said by precast's `Autocast::op_level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Level {
    /// Nothing changes.
    O0,
    /// Cells on the white list run low and return f32; ops on the white list that other cells call directly are cast low
    /// and back.
    O1,
    /// The whole network is one low region; cells and ops on the black list are f32 islands in it; the root returns f32.
    O2,
    /// The whole network is one low region; the root returns f32.
    O3,
    /// No cell is wrapped: every op runs by the pack's op lists, and in most packs an op on none takes its inputs as they come. The
    /// output may be low.
    #[serde(rename = "auto")]
    Auto,
    /// No cell is wrapped: the graph of a call is rewritten. Low spreads from the ops of the allow list to their neighbours.
    #[serde(rename = "graph")]
    Graph,
}

impl Level {
    /// All levels, in order.
    pub const ALL: [Level; 6] = [Level::O0, Level::O1, Level::O2, Level::O3, Level::Auto, Level::Graph];

    /// The levels of trees of cells, for which there are plans.
    pub const OF_CELLS: [Level; 5] = [Level::O0, Level::O1, Level::O2, Level::O3, Level::Auto];

    /// Name, as in files.
    pub fn name(self) -> &'static str {
        match self {
            Level::O0 => "O0",
            Level::O1 => "O1",
            Level::O2 => "O2",
            Level::O3 => "O3",
            Level::Auto => "auto",
            Level::Graph => "graph",
        }
    }

    /// What it means, in one line.
    pub fn meaning(self) -> &'static str {
        match self {
            Level::O0 => "nothing is lowered",
            Level::O1 => "cells and ops on the white list run low and return f32",
            Level::O2 => "all runs low but black-listed cells and ops; the network returns f32",
            Level::O3 => "all runs low; the network returns f32",
            Level::Auto => "each op runs by its list: low, f32, or as its widest input",
            Level::Graph => "a graph is rewritten: low spreads from products to neighbours",
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

    /// Exact: `O2`, not `o2` and not `2`.
    fn from_str(text: &str) -> Result<Self> {
        Level::ALL.into_iter().find(|level| level.name() == text).ok_or_else(|| {
            // A zero for the letter, or the number alone.
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
