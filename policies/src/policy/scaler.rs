//! Response to f16 training without a loss scale.

use std::{fmt, str::FromStr};

use precast_base::{DType, Error, Result, names::by_name};
use serde::{Deserialize, Serialize};

use super::LossScaleSpec;

/// Response to gradients of an unscaled loss that pass through f16 ops, where small ones underflow to 0, and reach an
/// optimizer. bf16 has the range of f32 and needs no loss scale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Scaler {
    /// Warn once, naming the cell.
    #[default]
    Advised,
    /// Return an error and update nothing.
    Required,
}

impl Scaler {
    /// Both responses.
    pub const ALL: [Scaler; 2] = [Scaler::Advised, Scaler::Required];

    /// Returns the name used in files.
    pub fn name(self) -> &'static str {
        match self {
            Scaler::Advised => "advised",
            Scaler::Required => "required",
        }
    }

    /// Checks that a loss scale is given where one is required.
    pub(super) fn check(self, scale: &LossScaleSpec, dtype: DType) -> Result<()> {
        if self == Scaler::Required && *scale == LossScaleSpec::None && dtype == DType::F16 {
            let words = "`scaler: required` in float16, and the loss scale is of kind none; allowed: fixed, dynamic";
            return Err(Error::policy(words));
        }
        Ok(())
    }

    pub(crate) fn is_advised(&self) -> bool {
        *self == Scaler::Advised
    }
}

impl fmt::Display for Scaler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Scaler {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        by_name(text, Scaler::ALL, Scaler::name, "unknown word for `scaler`").map_err(Error::policy)
    }
}
