//! Activations kept for the backward pass in 8 bits: the word `kept` of a rule.

use std::{fmt, str::FromStr};

use precast_base::{Error, Result, names::by_name};
use precast_lowbit::Format;
use serde::{Deserialize, Serialize};

/// The form in which a cell keeps its activations for the backward pass. Results are those of the cell without it; gradients
/// are those of the numbers as kept.
///
/// ```
/// use precast_policy::policy::{Format, Kept};
/// let kept: Kept = "int8-rows".parse()?;
/// assert_eq!((kept, kept.format()), (Kept::Int8Rows, Some(Format::Int8)));
/// let error = "int8".parse::<Kept>().unwrap_err().to_string();
/// assert!(error.contains("did you mean `int8-rows`?"), "{error}");
/// # Ok::<(), precast_policy::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Kept {
    /// As they were computed: an exception to another rule.
    None,
    /// Integers of 8 bits, with a scale for each row.
    Int8Rows,
    /// FP8 with 3 bits of mantissa, with a scale for each row.
    E4m3Rows,
    /// FP8 with 2 bits of mantissa, with a scale for each row.
    E5m2Rows,
}

impl Kept {
    /// All forms.
    pub const ALL: [Kept; 4] = [Kept::None, Kept::Int8Rows, Kept::E4m3Rows, Kept::E5m2Rows];

    /// Returns the format of the numbers; `None` for those that stay as they were computed.
    pub fn format(self) -> Option<Format> {
        match self {
            Kept::None => None,
            Kept::Int8Rows => Some(Format::Int8),
            Kept::E4m3Rows => Some(Format::E4M3),
            Kept::E5m2Rows => Some(Format::E5M2),
        }
    }

    /// Returns the name in policies: `int8-rows`.
    pub const fn name(self) -> &'static str {
        match self {
            Kept::None => "none",
            Kept::Int8Rows => "int8-rows",
            Kept::E4m3Rows => "e4m3-rows",
            Kept::E5m2Rows => "e5m2-rows",
        }
    }
}

impl FromStr for Kept {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        by_name(text, Kept::ALL, |kept| kept.name(), "unknown form of `kept`").map_err(Error::policy)
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
