//! Counters of the cells of a network, such as the calls of dropout.

use std::collections::BTreeMap;

use crate::{Child, cell::AsCell, error::Result};

/// Returns the counters of each cell, by path.
pub(super) fn counters<C: ?Sized + AsCell>(net: &Child<C>) -> BTreeMap<String, Vec<u64>> {
    let mut all = BTreeMap::new();
    net.walk(&mut |entry| {
        let counters = entry.slot.cell.counters();
        if !counters.is_empty() {
            all.insert(entry.path.to_string(), counters);
        }
    });
    all
}

/// Sets the counters of cells, by path.
pub(super) fn set_counters<C: ?Sized + AsCell>(
    net: &mut Child<C>,
    counters: &BTreeMap<String, Vec<u64>>,
) -> Result<()> {
    let mut result = Ok(());
    net.walk_mut(&mut |path, slot| {
        if let (Ok(()), Some(counters)) = (&result, counters.get(path)) {
            result = slot.cell.set_counters(counters).map_err(|e| e.context(format_args!("the cell `{path}`")));
        }
    });
    result
}
