//! What a plan puts into the slot of a cell.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    DType,
    plan::Region,
    precision::{Frame, OpRules},
};

/// Casts what goes into a cell and what comes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cast {
    /// The dtype of the region inside: inputs are cast to it, and so are the inputs of every op.
    pub inward: DType,
    /// The dtype in which outputs leave: that of the surrounding region.
    pub outward: DType,
}

impl fmt::Display for Cast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "runs {}, returns {}", self.inward, self.outward)
    }
}

/// What a plan puts into a slot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Adapter {
    /// The cell is one region of a fixed dtype.
    Cast(Cast),
    /// The cell runs under op lists; nothing is cast at its border.
    Ops(Arc<OpRules>),
    /// The cell is one region of a dtype in which some ops run otherwise, as their lists say: level O2 with ops on its
    /// black list.
    CastOps(Cast, Arc<OpRules>),
}

impl Adapter {
    /// The frame in which the cell runs.
    pub fn frame(&self) -> Frame {
        match self {
            Adapter::Cast(cast) => Frame::Fixed(cast.inward),
            Adapter::Ops(rules) | Adapter::CastOps(_, rules) => Frame::Lists(rules.clone()),
        }
    }

    /// What is cast at its border, if anything.
    pub fn cast(&self) -> Option<Cast> {
        match self {
            Adapter::Cast(cast) | Adapter::CastOps(cast, _) => Some(*cast),
            Adapter::Ops(_) => None,
        }
    }

    /// The rules by which ops go in it, if they do.
    pub fn rules(&self) -> Option<&Arc<OpRules>> {
        match self {
            Adapter::Ops(rules) | Adapter::CastOps(_, rules) => Some(rules),
            Adapter::Cast(_) => None,
        }
    }

    /// The region that it makes.
    pub fn region(&self) -> Region {
        match self {
            Adapter::Cast(cast) => Region::Fixed(cast.inward),
            Adapter::Ops(rules) => Region::Lists(rules.low),
            Adapter::CastOps(cast, _) => Region::Except(cast.inward),
        }
    }
}

/// All that a plan decides for a slot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Planned {
    /// The adapter.
    pub adapter: Option<Adapter>,
    /// Whether the activations of the cell are recomputed.
    pub recompute: bool,
    /// Whether gradients of weights are computed in f32 from here on inwards, where that changes; see
    /// [`Run::LowForward`](crate::policy::Run::LowForward).
    pub wide_weight_grads: Option<bool>,
}
