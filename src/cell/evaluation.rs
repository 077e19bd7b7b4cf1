//! Cells that run in evaluation although their results may be trained by.
//!
//! A network begins in evaluation. Who forgets `set_train(true)` would train without dropout, and with running statistics that
//! never move, in silence. So a cell that behaves otherwise in training notes that it ran in evaluation; the outermost call puts
//! the note on the tape; and an optimizer that then updates parameters beside that cell tells it.

use std::{cell::RefCell, sync::Arc};

use super::{AsCell, Child, Node, join};
use crate::{
    precision,
    tensor::{Evaluated, LeafId, is_recording},
};

thread_local! {
    /// The slots of such cells within the outermost call.
    static SLOTS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Notes that the cell that is being run is in evaluation, and would do something else in training. A cell with
/// [`on_train`](crate::cell::Forward::on_train) calls it in its `forward`. An optimizer then warns, once, when it updates parameters by
/// what was computed: see [`Sgd::in_evaluation`](crate::Sgd::in_evaluation).
pub fn ran_in_evaluation() {
    let Some(slot) = precision::slot().filter(|_| is_recording()) else { return };
    SLOTS.with_borrow_mut(|slots| {
        if !slots.contains(&slot) {
            slots.push(slot);
        }
    });
}

/// Begins an outermost call.
pub(super) fn forget() {
    SLOTS.with_borrow_mut(Vec::clear);
}

impl<C: ?Sized + AsCell> Child<C> {
    /// What was noted since [`forget`], within the outermost call of this slot.
    pub(super) fn evaluated(&self) -> Option<Arc<Evaluated>> {
        let slots = SLOTS.take();
        if slots.is_empty() {
            return None;
        }
        let (mut paths, mut params) = (Vec::new(), Vec::new());
        self.walk(&mut |entry| {
            if slots.contains(&entry.slot.id) {
                paths.push(entry.path.to_string());
            }
            entry.slot.cell.visit(&mut |name, node| {
                if let Node::Param(param) = node
                    && param.is_trained()
                {
                    params.push((join(entry.path, name), param.id()));
                }
            });
        });
        let cells = paths.into_iter().map(|path| {
            let beside = beside(&path, &params);
            (path, beside)
        });
        Some(Arc::new(Evaluated { cells: cells.collect() }))
    }
}

/// The parameters in the nearest part of the tree around a cell that has any.
fn beside(path: &str, params: &[(String, LeafId)]) -> Vec<LeafId> {
    let mut part = path;
    loop {
        part = part.rsplit_once('.').map_or("", |(around, _)| around);
        let within = |name: &str| part.is_empty() || name.strip_prefix(part).is_some_and(|rest| rest.starts_with('.'));
        let found: Vec<LeafId> = params.iter().filter(|(name, _)| within(name)).map(|(_, id)| *id).collect();
        if part.is_empty() || !found.is_empty() {
            return found;
        }
    }
}
