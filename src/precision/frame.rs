//! Frames: one region of precision.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{DType, Op};

/// The precision of a region of running code. The innermost frame wins.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Frame {
    /// Every op casts its castable inputs to this dtype (the region of a wrapped cell or of `to_float`).
    Fixed(DType),
    /// Each op is treated by its entry in a list.
    Lists(Arc<OpRules>),
    /// Nothing is cast.
    Off,
}

/// What a list says of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Treatment {
    /// Inputs are cast to the low dtype.
    Low,
    /// Inputs are cast to f32.
    Full,
    /// Inputs are cast to the widest dtype among them.
    Widest,
}

/// The op lists of one region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpRules {
    /// The dtype that [`Treatment::Low`] means.
    pub low: DType,
    /// Whether the results of lowered ops return to f32, as at level O1.
    pub back: bool,
    /// The listed ops; every other op takes its inputs as they come.
    pub ops: BTreeMap<Op, Treatment>,
}
