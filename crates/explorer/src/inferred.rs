//! Facts about cells that were inferred from tensors.

use std::fmt;

use precast::{
    Plan,
    storage::stored::{StoredModel, UNKNOWN},
};
use precast_base::path::shown;
use serde::Serialize;

/// Facts about inferred cells. It prints as a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Inferred {
    /// The number of tensors from which they were inferred.
    pub tensors: usize,
    /// Paths of the cells that could not be inferred.
    pub unknown: Vec<String>,
}

/// The maximum number of paths named in the line.
const NAMED: usize = 4;

impl Inferred {
    /// Returns the facts about the cells of a plan for stored weights.
    pub fn of(model: &StoredModel, plan: &Plan) -> Self {
        let unknown = plan.decisions.iter().filter(|of| of.kind == UNKNOWN).map(|of| of.path.clone()).collect();
        Inferred { tensors: model.tensors().count(), unknown }
    }
}

impl fmt::Display for Inferred {
    /// Writes the source of the inference and the cells that could not be inferred.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inferred { tensors, unknown } = self;
        write!(f, "inferred from the names and shapes of {tensors} tensors")?;
        if unknown.is_empty() {
            return Ok(());
        }
        let some: Vec<_> = unknown.iter().take(NAMED).map(|path| shown(path)).collect();
        let more = if unknown.len() > NAMED { ", .." } else { "" };
        write!(f, "; {} {UNKNOWN}: {}{more}", unknown.len(), some.join(", "))
    }
}
