//! Which op ran in which cell: an observed run whose slots are named by their paths.

use std::fmt;

use serde::Serialize;

use super::{AsCell, Child};
use crate::{
    DType, Op,
    observe::{self, Sizes},
    printable::printable,
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

/// The first op in which a number appeared that is not finite.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NonFinite {
    /// Path of the innermost cell in which it ran; empty for the root, and for an op outside of every cell.
    pub cell: String,
    /// The op.
    pub op: Op,
    /// Whether it happened in the backward pass.
    pub backward: bool,
    /// Whether a number that went into the op was already not finite: it came from outside, as data or as a parameter.
    pub came_in: bool,
}

impl fmt::Display for NonFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pass = if self.backward { "backward" } else { "forward" };
        let met = if self.came_in { "which was given it" } else { "from finite numbers" };
        match self.cell.as_str() {
            "" => write!(f, "{} in the network itself, {pass} pass, {met}", self.op),
            cell => write!(f, "{} in cell `{}`, {pass} pass, {met}", self.op, printable(cell)),
        }
    }
}

impl<C: ?Sized + AsCell> Child<C> {
    /// Runs `f`, which calls this network, and tells beside its result in which op the first number appeared that is not
    /// finite, in the forward or in the backward pass. Every number that an op reads or makes is looked at, so this is for
    /// finding out why a step was skipped, not for every step.
    ///
    /// ```
    /// use precast::{prelude::*, sequential};
    /// let rng = &mut Rng::seed(1);
    /// let mut net = Child::new(sequential![Dense::new(4, 4, rng), Tanh, Dense::new(4, 1, rng)]);
    /// auto_mixed_precision(&mut net, Level::O2, DType::F16)?;
    /// let mut optimizer = Sgd::new(net.params(), 0.1);
    /// let mut scale = LossScale::fixed(1e9)?;
    /// let (outcome, found) = net.find_non_finite(|net| {
    ///     let loss = net.call(&Tensor::ones(&[2, 4], DType::F32))?.mean_all()?;
    ///     scale.step(&mut optimizer, &loss)
    /// });
    /// assert_ne!(outcome?, Outcome::Stepped);
    /// let found = found.expect("1e9 is no f16");
    /// assert!(found.backward && !found.came_in, "{found}");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn find_non_finite<R>(&self, f: impl FnOnce(&Self) -> R) -> (R, Option<NonFinite>) {
        let (result, found) = observe::seek(|| f(self));
        let named = found.map(|found| NonFinite {
            cell: found.slot.and_then(|slot| self.path_of(slot)).unwrap_or_default(),
            op: found.op,
            backward: found.backward,
            came_in: found.came_in,
        });
        (result, named)
    }

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
