//! Gradients of every op: a table with a row for each op that has a kernel, compared with central differences in f64,
//! in f32 with f64, and in 16 bit with f32; and refusals of the checks.

mod contract;
mod conv;
mod corners;
mod elementwise;
mod functions;
mod index;
mod inputs;
mod large;
mod loss;
mod norm;
mod pairwise;
mod products;
mod recurrent;
mod reduce;
mod reference;
mod row;
mod sampling;
mod second;
mod shape;
mod vectors;

use std::collections::{BTreeMap, BTreeSet};

use precast::Op;

fn all_rows() -> Vec<row::Row> {
    let families = [
        conv::rows(),
        elementwise::rows(),
        index::rows(),
        loss::rows(),
        norm::rows(),
        pairwise::rows(),
        products::rows(),
        recurrent::rows(),
        reduce::rows(),
        sampling::rows(),
        shape::rows(),
        vectors::rows(),
    ];
    families.into_iter().flatten().collect()
}

/// The table is complete: an op with a kernel has a row, and every row is for such an op.
#[test]
fn every_op_with_a_kernel_has_a_row() {
    let rows: BTreeSet<Op> = all_rows().iter().map(|row| row.op).collect();
    let kernels: BTreeSet<Op> = Op::ALL.iter().copied().filter(|op| op.has_kernel()).collect();
    let missing: Vec<&Op> = kernels.difference(&rows).collect();
    assert!(missing.is_empty(), "no row checks the gradients of {missing:?}");
    assert_eq!(rows, kernels, "no row is of an op without a kernel");
}

#[test]
fn the_inputs_of_every_op_vary() {
    let mut by_op: BTreeMap<Op, Vec<&row::Row>> = BTreeMap::new();
    let rows = all_rows();
    rows.iter().for_each(|row| by_op.entry(row.op).or_default().push(row));
    let lacking: Vec<String> = by_op.values().filter_map(|rows| row::lacks(rows)).collect();
    assert!(lacking.is_empty(), "{}", lacking.join("\n"));
}
