//! Faults of a step: the first edge that went wrong.

use std::fmt;

use precast::observe::{Edge, FaultKind, Origin};

/// The first edge that went wrong.
#[derive(Clone, Copy, Debug)]
pub struct Fault<'a> {
    /// Kind of the fault.
    pub kind: FaultKind,
    /// The edge.
    pub edge: &'a Edge,
    /// Position of the edge in its record.
    pub at: usize,
}

impl Fault<'_> {
    /// Returns the fault without the record of its step.
    pub fn origin(&self) -> Origin {
        Origin { kind: self.kind, edge: Edge { from: Vec::new(), ..self.edge.clone() } }
    }
}

impl fmt::Display for Fault<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.origin().fmt(f)
    }
}
