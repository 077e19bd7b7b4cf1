//! Counters of the cells of a network, such as the calls of dropout, and the state of quantized operands.

use std::collections::BTreeMap;

use crate::{
    Child,
    cell::{AsCell, named},
    error::Result,
};

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

/// Returns the state of the quantized operands of each cell that has any, by path.
pub(super) fn operands<C: ?Sized + AsCell>(net: &Child<C>) -> BTreeMap<String, Vec<u64>> {
    let mut all = BTreeMap::new();
    net.walk(&mut |entry| {
        if let Some(state) = entry.slot.quantizer().map(|of| of.state()).filter(|state| !state.is_empty()) {
            all.insert(entry.path.to_string(), state);
        }
    });
    all
}

/// Sets the state of quantized operands, by path. Cells that are not named are as before their first call.
pub(super) fn set_operands<C: ?Sized + AsCell>(net: &Child<C>, states: &BTreeMap<String, Vec<u64>>) -> Result<()> {
    let mut result = Ok(());
    net.walk(&mut |entry| {
        if let (Ok(()), Some(of)) = (&result, entry.slot.quantizer()) {
            let state = states.get(entry.path).map_or(&[][..], Vec::as_slice);
            result = of.set_state(state).map_err(|e| e.context(format_args!("the cell {}", named(entry.path))));
        }
    });
    result
}
