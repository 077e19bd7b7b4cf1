//! Adapters: what a plan puts into the slot of a cell.

use std::{fmt, sync::Arc};

use precast_base::DType;
use serde::{Deserialize, Serialize};

use crate::{
    plan::region::Region,
    policy::{Kept, Operands},
    precision::{Frame, OpRules},
};

/// A cast of the inputs and outputs of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cast {
    /// Dtype of the region inside the cell, to which its inputs and the inputs of every op are cast.
    pub inward: DType,
    /// Dtype of the outputs: that of the surrounding region.
    pub outward: DType,
}

impl fmt::Display for Cast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "runs {}, returns {}", self.inward, self.outward)
    }
}

/// An adapter that a plan puts into a slot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Adapter {
    /// One region of a fixed dtype.
    Cast(Cast),
    /// Op lists inside the cell; nothing is cast at its border.
    Ops(Arc<OpRules>),
    /// One region of a fixed dtype, except for the ops that the lists treat otherwise: level O2 with ops on its full
    /// list.
    CastOps(Cast, Arc<OpRules>),
}

impl Adapter {
    /// Returns the frame in which the cell runs.
    pub fn frame(&self) -> Frame {
        match self {
            Adapter::Cast(cast) => Frame::Fixed(cast.inward),
            Adapter::Ops(rules) | Adapter::CastOps(_, rules) => Frame::Lists(rules.clone()),
        }
    }

    /// Returns the cast at the border of the cell, if any.
    pub fn cast(&self) -> Option<Cast> {
        match self {
            Adapter::Cast(cast) | Adapter::CastOps(cast, _) => Some(*cast),
            Adapter::Ops(_) => None,
        }
    }

    /// Returns the op lists inside the cell, if any.
    pub fn rules(&self) -> Option<&Arc<OpRules>> {
        match self {
            Adapter::Ops(rules) | Adapter::CastOps(_, rules) => Some(rules),
            Adapter::Cast(_) => None,
        }
    }

    /// Returns the region that the adapter creates.
    pub fn region(&self) -> Region {
        match self {
            Adapter::Cast(cast) => Region::Fixed(cast.inward),
            Adapter::Ops(rules) => Region::Lists(rules.low),
            Adapter::CastOps(cast, _) => Region::Except(cast.inward),
        }
    }
}

/// Everything that a plan decides for a slot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Planned {
    /// The adapter.
    pub adapter: Option<Adapter>,
    /// `true` when the activations of the cell are recomputed.
    pub recompute: bool,
    /// The form in which activations are kept, for the cell and all inside it; `None` where it does not change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Kept>,
    /// Switch of gradients of weights in f32, for the cell and all inside it; `None` where it does not change. See
    /// [`RunAs::LowForward`](crate::policy::RunAs::LowForward).
    pub wide_weight_grads: Option<bool>,
    /// The operands of the cell's own products; `None` where they are not quantized.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operands: Option<Operands>,
}
