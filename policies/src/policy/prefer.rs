//! Preference of a policy for cells where 16 bit saves memory but no time.

use std::{fmt, str::FromStr};

use precast_base::{Error, Result, names::by_name};
use serde::{Deserialize, Serialize};

/// Criterion for the cells that a level would lower.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Prefer {
    /// Lower the cell: half the bytes, regardless of time.
    #[default]
    Memory,
    /// Lower the cell unless f32 takes less time. Times are predicted, so the plan needs a traced call and the speeds
    /// of a machine: [`Policy::plan_for`](crate::Policy::plan_for).
    Speed,
}

impl Prefer {
    /// Both preferences.
    pub const ALL: [Prefer; 2] = [Prefer::Memory, Prefer::Speed];

    /// Returns the name used in files.
    pub fn name(self) -> &'static str {
        match self {
            Prefer::Memory => "memory",
            Prefer::Speed => "speed",
        }
    }

    pub(crate) fn is_memory(&self) -> bool {
        *self == Prefer::Memory
    }
}

impl fmt::Display for Prefer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Prefer {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        by_name(text, Prefer::ALL, Prefer::name, "unknown preference").map_err(Error::policy)
    }
}
