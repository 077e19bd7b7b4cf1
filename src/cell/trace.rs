//! Which op ran in which cell: an observed run whose slots are named by their paths.

use super::{AsCell, Child};
use crate::{
    DType, Op,
    observe::{self, Sizes},
};

/// One op call of a traced run.
#[derive(Clone, Debug, PartialEq)]
pub struct TracedOp {
    /// Path of the innermost cell it ran in; the root's path is empty, and so is that of an op outside every cell.
    pub path: String,
    /// The op.
    pub op: Op,
    /// Dtypes of the inputs as the kernel saw them.
    pub inputs: Vec<DType>,
    /// Dtype of the kernel's result, before it is cast back.
    pub output: DType,
    /// Whether it ran in a backward pass.
    pub backward: bool,
    /// Shapes of inputs and result, and what the tape keeps.
    pub sizes: Sizes,
}

/// One call of a cell in a traced run: how many elements that a cast would touch went in and came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CellCall {
    pub path: String,
    pub kind: String,
    pub inputs: usize,
    pub outputs: usize,
}

/// Every op call of a run, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// The calls.
    pub ops: Vec<TracedOp>,
    pub(crate) cells: Vec<CellCall>,
}

impl Trace {
    /// How many casts were really done.
    pub fn casts(&self) -> usize {
        self.ops.iter().filter(|op| op.op == Op::Cast).count()
    }
}

impl<C: ?Sized + AsCell> Child<C> {
    /// Runs `f`, which calls this network, and tells beside its result every op that ran and in which cell.
    pub fn trace<R>(&self, f: impl FnOnce(&Self) -> R) -> (R, Trace) {
        let (result, events, cell_calls) = observe::watch_cells(|| f(self));
        let mut paths = std::collections::HashMap::new();
        self.walk(&mut |entry| {
            paths.insert(entry.slot.id, (entry.path.to_string(), entry.slot.cell.kind().to_string()));
        });
        let cell = |slot: usize| paths.get(&slot).cloned().unwrap_or_default();
        let name = |slot: Option<usize>| slot.map(|id| cell(id).0).unwrap_or_default();
        // Storage that two ops keep is counted once, for the first.
        let mut kept = std::collections::HashSet::new();
        let ops = events
            .into_iter()
            .map(|mut e| {
                e.sizes.kept.retain(|of| kept.insert(of.address));
                e
            })
            .map(|e| TracedOp {
                path: name(e.slot),
                op: e.op,
                inputs: e.inputs,
                output: e.output,
                backward: e.backward,
                sizes: e.sizes,
            })
            .collect();
        let cells = cell_calls
            .into_iter()
            .map(|c| {
                let (path, kind) = cell(c.slot);
                CellCall { path, kind, inputs: c.inputs, outputs: c.outputs }
            })
            .collect();
        (result, Trace { ops, cells })
    }
}
