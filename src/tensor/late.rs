//! Parameters that came to be trained after an optimizer was made, and that no optimizer trains.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{LeafId, next_id};

/// Set once there is an optimizer; parameters made before are none of this.
static ANY_OPTIMIZER: AtomicBool = AtomicBool::new(false);

/// The parameters, each with the time at which it came to be trained and its shape.
static LATE: Mutex<BTreeMap<LeafId, (u64, Vec<usize>)>> = Mutex::new(BTreeMap::new());

fn late() -> MutexGuard<'static, BTreeMap<LeafId, (u64, Vec<usize>)>> {
    LATE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Notes a parameter that is trained from now on and is in no optimizer.
pub(super) fn note(id: LeafId, shape: &[usize]) {
    if ANY_OPTIMIZER.load(Ordering::Relaxed) {
        late().insert(id, (next_id(), shape.to_vec()));
    }
}

/// Forgets a parameter: it is gone, or an optimizer has it.
pub(super) fn forget(id: LeafId) {
    if ANY_OPTIMIZER.load(Ordering::Relaxed) {
        late().remove(&id);
    }
}

/// Notes that there is an optimizer.
pub(super) fn note_optimizer() {
    ANY_OPTIMIZER.store(true, Ordering::Relaxed);
}

/// Returns whether there are none.
pub(super) fn is_empty() -> bool {
    !ANY_OPTIMIZER.load(Ordering::Relaxed) || late().is_empty()
}

/// Returns the shapes of those among `leaves` that came to be trained after some time, each only once.
pub(super) fn take(leaves: impl Iterator<Item = LeafId>, after: u64) -> Vec<Vec<usize>> {
    let mut late = late();
    let mut found: Vec<LeafId> = leaves.filter(|id| late.get(id).is_some_and(|(since, _)| *since > after)).collect();
    found.sort_unstable();
    found.iter().filter_map(|id| late.remove(id)).map(|(_, shape)| shape).collect()
}
