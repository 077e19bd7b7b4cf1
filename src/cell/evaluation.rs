//! Detection of cells that run in evaluation mode although their results are used for training.
//!
//! Networks start in evaluation mode. Forgetting `set_train(true)` silently disables dropout and freezes running
//! statistics. So a cell that behaves differently in training notes that it ran in evaluation, the outermost call puts
//! the note on the tape, and an optimizer that then updates nearby parameters warns about it.

use std::sync::Arc;

use super::{AsCell, Child, Part, join};
use crate::{
    Param,
    tensor::context,
    tensor::{
        LeafId, is_recording,
        pass::{self, Evaluated, Pass},
    },
};

/// Notes that the running cell is in evaluation mode and would behave differently in training.
///
/// A cell with [`on_train`](crate::cell::Forward::on_train) calls this in its `forward`. An optimizer then warns, once,
/// when it updates parameters from the result: see [`Sgd::in_evaluation`](crate::Sgd::in_evaluation).
pub fn ran_in_evaluation() {
    if let Some(slot) = context::slot().filter(|_| is_recording()) {
        pass::note_slot(slot);
    }
}

impl<C: ?Sized + AsCell> Child<C> {
    /// Returns the notes of the outermost call of this slot.
    pub(super) fn noted(&self) -> Option<Arc<Pass>> {
        let evaluated =
            |slots: Vec<usize>| if slots.is_empty() { Evaluated::default() } else { self.evaluated(&slots) };
        pass::noted(evaluated, |param| self.path_of_param(param))
    }

    /// Returns the path of a parameter or buffer of this network.
    pub(crate) fn path_of_param(&self, param: &Param) -> String {
        let named = self.named_params().into_iter().find(|(_, other)| other.is_same(param));
        named.map_or_else(|| "a parameter that the network does not show".into(), |(path, _)| path)
    }

    fn evaluated(&self, slots: &[usize]) -> Evaluated {
        let (mut paths, mut params) = (Vec::new(), Vec::new());
        self.walk(&mut |entry| {
            if slots.contains(&entry.slot.id) {
                paths.push(entry.path.to_string());
            }
            entry.slot.cell.visit(&mut |name, node| {
                if let Part::Param(param) = node
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
        Evaluated { cells: cells.collect() }
    }
}

/// Returns the parameters in the smallest enclosing part of the tree that has any.
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
