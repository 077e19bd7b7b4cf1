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

/// Returns the warning of parameters of these shapes; `None` if there are none.
pub(super) fn warning(shapes: &[Vec<usize>]) -> Option<String> {
    let first = shapes.first()?;
    let met = match shapes.len() {
        1 => format!("a parameter of shape {first:?} has a gradient and is in no optimizer: it was made"),
        n => format!("{n} parameters, one of shape {first:?}, have gradients and are in no optimizer: they were made"),
    };
    Some(format!(
        "{met}, or unfrozen, after the optimizer. Put adapters in and unfreeze cells first, then make the optimizer; or freeze \
         what is not trained"
    ))
}

#[cfg(test)]
mod tests {
    use super::warning;

    #[test]
    fn the_warning_is_in_the_singular_or_the_plural() {
        assert_eq!(warning(&[]), None);
        let (one, two) = (warning(&[vec![8]]).unwrap(), warning(&[vec![8], vec![2, 8]]).unwrap());
        assert!(
            one.starts_with("a parameter of shape [8] has a gradient and is in no optimizer: it was made, or unfrozen"),
            "{one}"
        );
        assert!(
            two.starts_with(
                "2 parameters, one of shape [8], have gradients and are in no optimizer: they were made, or"
            ),
            "{two}"
        );
    }
}
