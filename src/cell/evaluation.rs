//! Detection of cells that run in evaluation mode although their results are used for training.
//!
//! Networks start in evaluation mode. Forgetting `set_train(true)` silently disables dropout and freezes running
//! statistics. So a cell that behaves differently in training notes that it ran in evaluation, the outermost call puts
//! the note on the tape, and an optimizer that then updates nearby parameters warns about it.

use std::{
    collections::{HashMap, HashSet},
    iter::successors,
    sync::Arc,
};

use precast_tensor::{
    LeafId, context, is_recording, pass,
    pass::{Evaluated, Pass},
};

use super::{Part, Slot, join};
use crate::Param;

/// Notes that the running cell is in evaluation mode and would behave differently in training.
///
/// A cell with [`on_train`](crate::cell::Forward::on_train) calls this in its `forward`. An optimizer then warns, once,
/// when it updates parameters from the result: see [`Sgd::in_evaluation`](crate::Sgd::in_evaluation).
pub fn ran_in_evaluation() {
    if let Some(slot) = context::slot().filter(|_| is_recording()) {
        pass::note_slot(slot);
    }
}

impl Slot<'_> {
    /// Returns the notes of the outermost call of this slot.
    pub(super) fn noted(&self) -> Option<Arc<Pass>> {
        let evaluated =
            |slots: HashSet<usize>| if slots.is_empty() { Evaluated::default() } else { self.evaluated(&slots) };
        pass::noted(evaluated, |param| self.path_of_param(param))
    }

    /// Returns the path of a parameter or buffer of this network.
    pub(crate) fn path_of_param(&self, param: &Param) -> String {
        let named = self.named_params().into_iter().find(|(_, other)| other.is_same(param));
        named.map_or_else(|| "a parameter that the network does not show".into(), |(path, _)| path)
    }

    fn evaluated(&self, slots: &HashSet<usize>) -> Evaluated {
        let (mut cells, mut params) = (Vec::new(), Vec::new());
        self.walk(&mut |entry| {
            if slots.contains(&entry.slot.id) {
                cells.push(entry.path.to_string());
            }
            entry.slot.cell.visit(&mut |name, node| {
                if let Part::Param(param) = node
                    && param.is_trained()
                {
                    params.push((join(entry.path, name), param.id()));
                }
            });
        });
        // A cell is near the parameters in the smallest part of the tree around it that has any.
        let with_params: HashSet<&str> = params.iter().flat_map(|(path, _)| around(path)).collect();
        let mut first: HashMap<&str, usize> = HashMap::new();
        for (place, path) in cells.iter().enumerate() {
            let part = around(path).find(|part| with_params.contains(part)).unwrap_or_default();
            first.entry(part).or_insert(place);
        }
        let mut near: HashMap<LeafId, usize> = HashMap::new();
        for (path, id) in &params {
            if let Some(&place) = around(path).filter_map(|part| first.get(part)).min() {
                near.entry(*id).and_modify(|known| *known = place.min(*known)).or_insert(place);
            }
        }
        let alone = first.get("").copied().filter(|_| params.is_empty());
        drop((with_params, first));
        Evaluated { cells, near, alone }
    }
}

/// Returns the parts of the tree around a cell or a parameter, from the smallest on, as their paths.
fn around(path: &str) -> impl Iterator<Item = &str> {
    fn larger(part: &str) -> Option<&str> {
        (!part.is_empty()).then(|| part.rsplit_once('.').map_or("", |(around, _)| around))
    }
    successors(larger(path), |part| larger(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;

    #[test]
    fn a_parameter_has_the_first_cell_near_it() {
        let rng = &mut Rng::seed(1);
        let block = |rng: &mut Rng| Child::of(sequential![Dense::new(1, 1, rng), BatchNorm1d::new(1), Identity]);
        // The identity of the last block is alone in it, so the part around both is the whole.
        let last = Child::of(sequential![Identity, Identity]);
        let net = Child::of(sequential![block(rng), Dense::new(1, 1, rng), block(rng), last]);
        let (mut slots, wanted) = (HashSet::new(), ["0.1", "2.1", "2.2", "3.1"]);
        net.walk(&mut |entry| {
            if wanted.contains(&entry.path) {
                let _ = slots.insert(entry.slot.id);
            }
        });
        let found = net.slot().evaluated(&slots);
        assert_eq!((&found.cells, found.alone), (&wanted.iter().map(ToString::to_string).collect(), None));
        let beside = |path: &str| {
            let params = net.named_params();
            let ids = params.iter().filter(|(name, _)| name.starts_with(path)).map(|(_, param)| param.id());
            found.beside(ids).map(String::from)
        };
        let near = ["0.0", "0.1", "1", "2.0", "2.1", ""].map(beside);
        assert_eq!(
            near.each_ref().map(Option::as_deref),
            [Some("0.1"), Some("0.1"), Some("3.1"), Some("2.1"), Some("2.1"), Some("0.1")]
        );

        net.freeze("**").unwrap();
        let frozen = net.slot().evaluated(&slots);
        let of_another = Param::new(Tensor::scalar(1.0, DType::F32));
        assert_eq!((frozen.alone, frozen.near.len()), (Some(0), 0));
        assert_eq!(frozen.beside([of_another.id()].into_iter()), Some("0.1"));
        assert_eq!(found.beside([of_another.id()].into_iter()), None);
        let mut both = found.clone();
        both.add(&frozen);
        assert_eq!((both.alone, both.cells.len()), (Some(4), 8));
        assert_eq!(both.beside([of_another.id()].into_iter()), Some("0.1"));
    }

    /// As many entries as parameters, however many cells ran in evaluation.
    #[test]
    fn notes_grow_with_the_network() {
        for blocks in [10, 100] {
            let cells = (0..blocks).map(|_| Child::of(BatchNorm1d::new(1)));
            let net = Child::new(cells.collect::<Sequential>());
            let mut slots = HashSet::new();
            net.walk(&mut |entry| _ = slots.insert(entry.slot.id));
            let found = net.slot().evaluated(&slots);
            assert_eq!((found.cells.len(), found.near.len()), (blocks + 1, 2 * blocks));
        }
    }
}
