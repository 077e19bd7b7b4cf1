//! stub
use serde::{Deserialize, Serialize};
use super::Dataset;
use crate::error::Result;
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
/// stub
pub struct Standardization { mean: Vec<f32> }
impl Standardization {
    /// stub
    pub fn of(_: &Dataset) -> Result<Self> { Ok(Standardization { mean: vec![] }) }
}
impl Dataset {
    /// stub
    pub fn standardized(self, _: &Standardization) -> Result<Self> { Ok(self) }
}
