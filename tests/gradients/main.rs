//! Gradients of every op: a table with a row for each op that has a kernel, against central differences in f64, and in 16 bit
//! against f32; and what checking gradients refuses.

mod contract;
mod conv;
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
mod shape;
mod vectors;

use std::collections::BTreeSet;

use precast::Op;

/// The table is whole: an op with a kernel has a row, and no row is of another op.
#[test]
fn every_op_with_a_kernel_has_a_row() {
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
    let rows: BTreeSet<Op> = families.into_iter().flatten().map(|row| row.op).collect();
    let kernels: BTreeSet<Op> = Op::ALL.iter().copied().filter(|op| op.has_kernel()).collect();
    let missing: Vec<&Op> = kernels.difference(&rows).collect();
    assert!(missing.is_empty(), "no row checks the gradients of {missing:?}");
    assert_eq!(rows, kernels, "no row is of an op without a kernel");
}
