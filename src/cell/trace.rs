//! Tracing: an observed run that assigns each op to a cell by its path.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use precast_policy::host::{CalledCell, RanOp, ReadParam, Recorded};

use super::{AsCell, Child, HOLD_IT, Part};
use crate::{DType, Op, observe::Sizes};

/// One op call of a traced run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TracedOp {
    /// Path of the innermost cell in which it ran; empty for the root, and for an op outside every cell.
    pub path: String,
    /// The op.
    pub op: Op,
    /// Dtypes of the inputs as passed to the kernel.
    pub inputs: Vec<DType>,
    /// Dtype of the kernel's result, before it is cast back.
    pub output: DType,
    /// `true` when it ran in a backward pass.
    pub backward: bool,
    /// `true` when the cell determined its precision: it ran neither outside every cell nor in a region entered by
    /// code.
    pub by_cell: bool,
    /// Shapes of inputs and result, and memory kept on the tape.
    pub sizes: Sizes,
}

/// One call of a cell in a traced run, with the numbers of input and output elements that a cast would affect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CellCall {
    /// `None` for a cell that the walk over the network does not reach.
    pub path: Option<String>,
    pub kind: &'static str,
    /// `true` when it, or a cell inside it, has parameters.
    pub has_params: bool,
    pub inputs: usize,
    pub outputs: usize,
    /// Shapes of all outputs.
    pub shapes: Vec<Vec<usize>>,
}

/// A forward pass that reads a parameter of the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParamRead {
    /// Path of the cell whose code read it; `None` outside every cell of the network.
    pub by: Option<String>,
    /// The cells that own it, by path, each with its name there. A tied parameter has several, which all its reads share.
    pub owners: Arc<Vec<(String, String)>>,
}

/// Every op call of a run, in order.
///
/// [`Plan::check`](crate::Plan::check) checks that the network ran as planned, and [`Plan::ops`](crate::Plan::ops)
/// lists what each op did, with the reason:
///
/// ```
/// use precast::{prelude::*, sequential};
/// let rng = &mut Rng::seed(1);
/// let mut net = Child::new(sequential![Dense::new(4, 4, rng), Tanh, Dense::new(4, 1, rng)]);
/// let plan = Policy::new("O2", DType::Bf16)?.plan(&net)?;
/// let run = |net: &Child<_>| net.trace(|net| net.call(&Tensor::ones(&[2, 4], DType::F32))).1;
///
/// let error = plan.check(&run(&net)).unwrap_err(); // it was not applied
/// assert!(error.to_string().starts_with("Linear of `0` (Dense) ran in f32; the plan says bf16"), "{error}");
/// plan.apply(&mut net)?;
/// plan.check(&run(&net))?;
///
/// let plan = Policy::new("auto", DType::Bf16)?.apply(&mut net)?.plan;
/// let ops = plan.ops(&run(&net))?;
/// assert_eq!(ops.rows[0].output, DType::Bf16);
/// assert!(ops.rows[0].because.to_string().starts_with("low list of ops, precast-1"));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// The calls.
    pub ops: Vec<TracedOp>,
    pub(crate) cells: Vec<CellCall>,
    /// Reads of parameters, each listed once.
    pub(crate) reads: Vec<ParamRead>,
}

impl Recorded for Trace {
    fn ran_ops(&self) -> impl Iterator<Item = RanOp<'_>> {
        self.ops.iter().map(|ran| {
            let TracedOp { path, op, inputs, output, backward, by_cell, sizes: _ } = ran;
            RanOp { path, op: *op, inputs, output: *output, backward: *backward, by_cell: *by_cell }
        })
    }

    fn called_cells(&self) -> impl Iterator<Item = CalledCell<'_>> {
        self.cells.iter().map(|call| CalledCell {
            path: call.path.as_deref(),
            kind: call.kind,
            has_params: call.has_params,
        })
    }

    fn read_params(&self) -> impl Iterator<Item = ReadParam<'_>> {
        self.reads.iter().map(|read| ReadParam { by: read.by.as_deref(), owners: &read.owners })
    }

    fn show_it(&self) -> &'static str {
        HOLD_IT
    }
}

impl Trace {
    /// Returns the number of casts performed.
    pub fn casts(&self) -> usize {
        self.ops.iter().filter(|op| op.op == Op::Cast).count()
    }
}

impl<C: ?Sized + AsCell> Child<C> {
    /// Runs `f`, which calls this network, and returns along with its result every op that ran and its cell.
    pub fn trace<R>(&self, f: impl FnOnce(&Self) -> R) -> (R, Trace) {
        let (result, seen) = precast_tensor::observe::watch_all(|| f(self));
        let (mut paths, mut owners) = (HashMap::new(), HashMap::<crate::LeafId, Vec<(String, String)>>::new());
        self.walk(&mut |entry| {
            paths.insert(entry.slot.id, entry.path.to_string());
            entry.slot.cell.visit(&mut |name, node| {
                if let Part::Param(param) = node {
                    owners.entry(param.id()).or_default().push((entry.path.to_string(), name.to_string()));
                }
            });
        });
        let path = |slot: usize| paths.get(&slot).cloned();
        // Storage kept by two ops is counted once, for the first.
        let mut kept = HashSet::new();
        let ops = seen.events.into_iter().map(|mut e| {
            e.sizes.kept.retain(|of| kept.insert(of.address));
            let cell = e.slot.and_then(path);
            TracedOp {
                by_cell: cell.is_some() && !e.in_code,
                path: cell.unwrap_or_default(),
                op: e.op,
                inputs: e.inputs,
                output: e.output,
                backward: e.backward,
                sizes: e.sizes,
            }
        });
        let cells = seen.cell_calls.into_iter().map(|call| {
            let precast_tensor::observe::CellSizes { slot, kind, has_params, inputs, outputs, shapes } = call;
            CellCall { path: path(slot), kind, has_params, inputs, outputs, shapes }
        });
        let owners: HashMap<_, _> = owners.into_iter().map(|(leaf, all)| (leaf, Arc::new(all))).collect();
        let mut met = HashSet::new();
        let reads = seen.reads.into_iter().filter_map(|read| {
            let by = read.slot.and_then(path);
            let owners = owners.get(&read.leaf)?.clone();
            met.insert((by.clone(), read.leaf)).then_some(ParamRead { by, owners })
        });
        (result, Trace { ops: ops.collect(), cells: cells.collect(), reads: reads.collect() })
    }
}
