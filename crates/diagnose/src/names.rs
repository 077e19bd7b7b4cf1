//! Paths of the cells and the parameters in which edges are.

use std::collections::HashMap;

use precast::{
    Child, LeafId,
    cell::{AsCell, Part},
    observe::{Edge, Subject},
};

use super::recorder::Raw;

/// Paths by the identity of slots and parameters.
#[derive(Debug, Default)]
pub(crate) struct Names {
    slots: HashMap<usize, String>,
    /// Path of the cell that holds each parameter, and of the parameter.
    params: HashMap<LeafId, (String, String)>,
}

impl Names {
    pub fn read<C: ?Sized + AsCell>(net: &Child<C>) -> Self {
        let Names { mut slots, mut params } = Names::default();
        net.walk(&mut |entry| {
            slots.insert(entry.slot.id, entry.path.to_string());
            entry.slot.cell.visit(&mut |name, node| {
                if let Part::Param(param) = node {
                    params
                        .entry(param.id())
                        .or_insert_with(|| (entry.path.to_string(), precast_base::path::join(entry.path, name)));
                }
            });
        });
        Names { slots, params }
    }

    /// Returns the path of the cell of an edge, and that of its parameter.
    pub fn of(&self, slot: Option<usize>, leaf: Option<LeafId>) -> (String, Option<String>) {
        let owner = leaf.and_then(|leaf| self.params.get(&leaf));
        let inside = slot.and_then(|slot| self.slots.get(&slot).cloned());
        match (owner, inside) {
            (Some((_, param)), Some(cell)) => (cell, Some(param.clone())),
            (Some((cell, param)), None) => (cell.clone(), Some(param.clone())),
            (None, cell) => (cell.unwrap_or_default(), None),
        }
    }

    /// Returns whether the cells of all edges are known.
    pub(super) fn know(&self, edges: &[Raw]) -> bool {
        let known = |raw: &Raw| {
            let owned = raw.leaf.is_some_and(|leaf| self.params.contains_key(&leaf));
            owned || raw.slot.is_none_or(|slot| self.slots.contains_key(&slot))
        };
        edges.iter().all(known)
    }

    /// Names edges.
    pub(super) fn edges(&self, edges: Vec<Raw>) -> Vec<Edge> {
        let mut calls = HashMap::new();
        let edge = |raw: Raw| {
            let Raw { phase, slot, leaf, op, subject, dtype, numbers, error, from, good_inputs } = raw;
            let (cell, param) = self.of(slot, leaf);
            let subject = param.map_or(subject, Subject::Param);
            let key = (phase, cell.clone(), op, subject.clone());
            let call = calls.entry(key).or_insert(0);
            *call += 1;
            Edge { phase, cell, op, subject, call: *call - 1, dtype, numbers, error, from, good_inputs }
        };
        edges.into_iter().map(edge).collect()
    }
}
