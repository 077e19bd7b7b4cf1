//! The precision inside a cell.

use std::fmt;

use precast_base::DType;
use serde::{Deserialize, Serialize};

/// The precision inside a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Region {
    /// No casts: ops take their inputs as they come.
    AsIs,
    /// Each op is treated by the op lists of the level, with this low dtype; nothing is cast at the border.
    Lists(DType),
    /// Every op runs in this dtype, to which inputs and outputs of the cell are cast.
    Fixed(DType),
    /// As [`Fixed`](Region::Fixed), except for ops on the level's full list, which run in f32 and return this dtype.
    Except(DType),
}

impl Region {
    /// Returns the single dtype of inputs and outputs of everything called in the region, if there is one.
    pub fn dtype(self) -> Option<DType> {
        match self {
            Region::Fixed(dtype) | Region::Except(dtype) => Some(dtype),
            Region::AsIs | Region::Lists(_) => None,
        }
    }

    /// Returns whether any op may run low in the region.
    pub fn lowers(self) -> bool {
        match self {
            Region::AsIs => false,
            Region::Lists(_) => true,
            Region::Fixed(dtype) | Region::Except(dtype) => dtype.is_low(),
        }
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Region::AsIs => f.pad("as is"),
            Region::Lists(dtype) => f.pad(&format!("op lists {dtype}")),
            Region::Fixed(dtype) => f.pad(dtype.name()),
            Region::Except(dtype) => f.pad(&format!("{dtype}, full ops f32")),
        }
    }
}
