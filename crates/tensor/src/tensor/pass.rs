//! Notes of a forward pass for the step it becomes part of: the values it stored, and the cells that ran in evaluation.
//!
//! The outermost call of a network [opens](open) a pass. A value stored meanwhile, such as the running statistics of a
//! batch norm, takes effect at once. The tape holds the pass, the backward pass moves it to the gradients, and the code
//! that takes the step [settles](Pass::settle) it or [reverts](Pass::take_back) it. A pass without a backward pass is
//! settled when its tape is dropped.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use super::{LeafId, Param, Place, Tensor, context, next_id};
use crate::{
    error::{Error, Result},
    logging::warn,
};

/// Notes of the current pass.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Identity of its changes; 0 before the first.
    id: u64,
    slots: HashSet<usize>,
    /// Parameters and buffers that changed, in order, each once.
    changed: Vec<Param>,
    is_changed: HashSet<LeafId>,
    /// First parameter or buffer that refused a non-finite number.
    refused: Option<Param>,
}

/// Cells that behave differently in training but ran in evaluation while a tape was recorded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evaluated {
    /// Path of each cell.
    pub cells: Vec<String>,
    /// For each trained parameter near some of them, the place of the first of these.
    pub near: HashMap<LeafId, usize>,
    /// Place of the first cell whose network has no trained parameter: it is near all that are updated.
    pub alone: Option<usize>,
}

impl Evaluated {
    /// Returns the first cell that shares its network with one of these parameters.
    pub fn beside(&self, params: impl Iterator<Item = LeafId>) -> Option<&str> {
        let near = params.filter_map(|param| self.near.get(&param).copied());
        near.chain(self.alone).min().map(|place| self.cells[place].as_str())
    }

    /// Adds the cells of a later pass.
    pub fn add(&mut self, later: &Evaluated) {
        let before = self.cells.len();
        self.cells.extend_from_slice(&later.cells);
        later.near.iter().for_each(|(param, place)| _ = self.near.entry(*param).or_insert(before + place));
        self.alone = self.alone.or(later.alone.map(|place| before + place));
    }
}

/// A completed forward pass.
#[derive(Debug)]
pub struct Pass {
    id: u64,
    /// Cells that ran in evaluation mode.
    pub evaluated: Evaluated,
    changed: Vec<Param>,
    /// Path of the first parameter or buffer that refused a non-finite number.
    refused: Option<String>,
    fate: AtomicU8,
}

/// Fate of a pass whose step may still come.
const OPEN: u8 = 0;
/// As [`OPEN`], with a gradient known to be non-finite.
const DOUBTED: u8 = 1;
/// Fate of a pass whose values were kept or reverted.
const SETTLED: u8 = 2;

impl Pass {
    /// Creates a pass, of another rank, that refused to store a number, and whose values are reverted.
    pub fn refusing(path: String) -> Arc<Self> {
        let (evaluated, changed, fate) = (Evaluated::default(), Vec::new(), AtomicU8::new(SETTLED));
        Arc::new(Pass { id: 0, evaluated, changed, refused: Some(path), fate })
    }

    /// Returns the path of the first parameter or buffer that refused a non-finite number and kept its value.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Marks the step as not taken, unless it is settled later: a gradient is not finite.
    pub fn doubt(&self) {
        let _ = self.fate.compare_exchange(OPEN, DOUBTED, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Keeps the stored values: the step was taken.
    pub fn settle(&self) {
        if self.fate.swap(SETTLED, Ordering::AcqRel) != SETTLED {
            self.changed.iter().for_each(|param| param.settle(self.id));
        }
    }

    /// Reverts the stored values, and nothing else: the step was not taken.
    pub fn take_back(&self) {
        if self.fate.swap(SETTLED, Ordering::AcqRel) != SETTLED {
            self.changed.iter().rev().for_each(|param| param.take_back(self.id));
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        match *self.fate.get_mut() {
            OPEN => {
                if let Some(path) = &self.refused {
                    tracing::warn!(target: "precast", path, "a stored number would not be finite");
                    warn(&refused(path));
                }
                self.settle();
            }
            DOUBTED => self.take_back(),
            _ => {}
        }
    }
}

/// Returns the error text for a refused non-finite number.
pub fn refused(path: &str) -> String {
    format!("`{path}` would not be finite: the forward pass computed a number for it that is not; it keeps its value")
}

/// A running pass. Its stored values are reverted unless it [ends](Open::end).
#[derive(Debug)]
pub struct Open {
    outer: Option<Notes>,
}

/// Opens a pass on this thread.
pub fn open() -> Open {
    Open { outer: context::replace_notes(Some(Notes::default())) }
}

/// Returns the open pass so far. `evaluated` looks up slots, and `path` the path of a parameter.
pub fn noted(
    evaluated: impl FnOnce(HashSet<usize>) -> Evaluated,
    path: impl FnOnce(&Param) -> String,
) -> Option<Arc<Pass>> {
    let Notes { id, slots, changed, refused, .. } = context::with_notes(std::mem::take)?;
    let evaluated = evaluated(slots);
    if evaluated.cells.is_empty() && changed.is_empty() && refused.is_none() {
        return None;
    }
    let refused = refused.as_ref().map(path);
    Some(Arc::new(Pass { id, evaluated, changed, refused, fate: AtomicU8::new(OPEN) }))
}

impl Open {
    /// Ends a pass. Stored values that were not [noted](noted) are kept, since no step can follow, or reverted after an
    /// error.
    ///
    /// # Errors
    /// That of `result`; [`ErrorKind::Value`](crate::ErrorKind::Value) for a refused non-finite number if no step can
    /// report it.
    pub fn end<R>(self, result: Result<R>, path: impl FnOnce(&Param) -> String) -> Result<R> {
        let Some(pass) = noted(|_| Evaluated::default(), path) else { return result };
        match (&result, &pass.refused) {
            (Ok(_), None) => pass.settle(),
            (Ok(_), Some(path)) => {
                pass.take_back();
                return Err(Error::value(refused(path)));
            }
            (Err(_), _) => pass.take_back(),
        }
        result
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let left = context::replace_notes(self.outer.take());
        if let Some(Notes { id, changed, .. }) = left {
            changed.iter().rev().for_each(|param| param.take_back(id));
        }
    }
}

/// Records a slot whose cell ran in evaluation.
pub fn note_slot(slot: usize) {
    context::with_notes(|notes| notes.slots.insert(slot));
}

/// Records that a parameter or buffer changes, and returns the number of the pass; `None` outside a pass.
pub(super) fn note_change(param: &Param) -> Option<u64> {
    context::with_notes(|notes| {
        if notes.id == 0 {
            notes.id = next_id();
        }
        if notes.is_changed.insert(param.id()) {
            notes.changed.push(param.clone());
        }
        notes.id
    })
}

/// Records that a parameter or buffer refused a non-finite number; returns `false` outside a pass.
pub(super) fn note_refused(param: &Param) -> bool {
    context::with_notes(|notes| _ = notes.refused.get_or_insert_with(|| param.clone())).is_some()
}

/// Hands passes to the tape that leads to this output.
pub fn note_passes(output: &Tensor, passes: &[Arc<Pass>]) {
    if passes.is_empty() {
        return;
    }
    for output in [Some(output), output.source()].into_iter().flatten() {
        if let Place::Node(node) = output.place() {
            // An output passed through from another network already has the pass of that network.
            let _ = node.passes.set(passes.to_vec());
        }
    }
}

/// Returns the passes held by the tape that leads to a tensor.
pub fn passes(of: &Tensor) -> Vec<Arc<Pass>> {
    let (mut found, mut seen, mut places) = (Vec::new(), HashSet::new(), vec![of.place()]);
    while let Some(place) = places.pop() {
        if let Place::Node(node) = place
            && seen.insert(node.id)
        {
            node.passes.get().into_iter().flatten().for_each(|pass| add(&mut found, pass));
            places.extend(&node.inputs);
        }
    }
    found
}

/// Adds a pass unless it is already present.
pub(super) fn add(passes: &mut Vec<Arc<Pass>>, pass: &Arc<Pass>) {
    if !passes.iter().any(|other| Arc::ptr_eq(other, pass)) {
        passes.push(pass.clone());
    }
}
