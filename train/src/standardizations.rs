//! The encoding and the standardization of a run's examples.

use precast::error::Result;
use serde::{Deserialize, Serialize};

use super::data::{Dataset, Encoding, Inputs, Standardization};

/// Encoding and standardization of a run's examples: the contents of `standardization.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Standardizations {
    /// Encoding of inputs that are a table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<Encoding>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<Standardization>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<Standardization>,
}

impl Standardizations {
    /// Encodes the inputs of examples, if they are a table.
    pub fn encoded(&self, data: Dataset) -> Result<Dataset> {
        match (&self.encoding, data.form()) {
            (Some(by), Inputs::Table(_)) => data.encoded(by),
            _ => Ok(data),
        }
    }

    /// Encodes and standardizes the inputs of examples, and reshapes them for a model.
    pub fn inputs_of(&self, data: Dataset, model_takes: Option<&[usize]>) -> Result<Dataset> {
        let data = self.encoded(data)?;
        let data = match &self.inputs {
            Some(by) => data.standardized(by)?,
            None => data.in_f32(),
        };
        match model_takes {
            Some(shape) => data.fitted(shape),
            None => Ok(data),
        }
    }
}
