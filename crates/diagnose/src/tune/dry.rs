//! Dry lowering: a pass in f32 that also computes, for each cell alone, its results in the precision of a plan.

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use precast::{
    Child, DType, Op, Tensor,
    catalogue::Family,
    cell::AsCell,
    error::Result,
    no_grad,
    observe::{CellCall, CellEntry, Observer, OpCall, observed_by},
    policy::Operands,
    precision,
    precision::{Frame, resolve},
};

use crate::beside::Beside;

/// The rounding that a plan does in a cell, excluding the cells inside it.
#[derive(Clone, Debug)]
pub(crate) struct Lowering {
    /// The rounding of ops or results.
    pub rounding: Rounding,
    /// The quantization of the operands of products.
    pub operands: Option<Operands>,
}

impl Lowering {
    /// Returns whether nothing is rounded.
    pub fn is_none(&self) -> bool {
        matches!(self.rounding, Rounding::None) && self.operands.is_none()
    }
}

/// The rounding of the ops of a cell, or of its results.
#[derive(Clone, Debug)]
pub(crate) enum Rounding {
    /// Nothing is rounded.
    None,
    /// Ops run in this frame.
    Ops(Frame),
    /// Ops run in f32, and results are rounded to this dtype where they leave the cell.
    Border(DType),
}

/// Facts about one cell, gathered in the pass.
#[derive(Clone, Debug, Default)]
pub(crate) struct DryCell {
    /// `true` when the plan rounds a result of one of its ops.
    pub rounds: bool,
    /// The first of its ops that is not finite in the precision of the plan although it is in f32.
    pub overflows: Option<Op>,
}

/// A result of a cell that other cells read, or that the network returns.
pub(crate) struct DryResult {
    /// Index of the cell.
    pub cell: usize,
    /// Number of the op's node on the tape, if it is there.
    pub node: Option<u64>,
    /// The result in f32.
    pub exact: Tensor,
    /// The result of the same cell in the precision of the plan, on the same inputs.
    pub lowered: Tensor,
    /// Other cells that read it.
    pub readers: Vec<usize>,
}

/// A pass in f32.
pub(crate) struct DryRun {
    /// The output of the network.
    pub output: Tensor,
    /// Facts about each cell, in the order of a walk.
    pub cells: Vec<DryCell>,
    /// The results of cells, in the order in which they were computed.
    pub results: Vec<DryResult>,
}

/// Runs `f`, which calls the network in f32, and computes each cell's results in the precision of a plan as well.
pub(crate) fn dry_run<C: ?Sized + AsCell>(
    net: &Child<C>,
    lowerings: &[Lowering],
    f: impl FnOnce() -> Result<Tensor>,
) -> Result<DryRun> {
    let mut slots = HashMap::new();
    net.walk(&mut |entry| _ = slots.insert(entry.slot.id, slots.len()));
    let state = State { cells: vec![DryCell::default(); lowerings.len()], ..State::default() };
    let listener = Rc::new(Dry { slots, lowerings: lowerings.to_vec(), state: RefCell::new(state) });
    let output = observed_by(listener.clone(), f)?;
    let mut state = listener.state.borrow_mut();
    state.leave(&output);
    let State { cells, values, .. } = std::mem::take(&mut *state);
    let results = values.into_iter().filter(|value| value.leaves).map(|value| value.result(lowerings)).collect();
    Ok(DryRun { output, cells, results })
}

struct Dry {
    /// The index of each cell by its slot.
    slots: HashMap<usize, usize>,
    lowerings: Vec<Lowering>,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    cells: Vec<DryCell>,
    values: Vec<Value>,
    /// The last value of each tensor.
    by_tensor: Beside<usize>,
    /// The cell calls that are running, by number.
    calls: Vec<u64>,
    last_call: u64,
}

/// A result of an op of a cell.
struct Value {
    cell: usize,
    call: u64,
    exact: Tensor,
    lowered: Tensor,
    /// `true` when it leaves the cell.
    leaves: bool,
    /// Other cells that read it.
    readers: Vec<usize>,
}

impl Value {
    fn result(self, lowerings: &[Lowering]) -> DryResult {
        let lowered = match &lowerings[self.cell].rounding {
            Rounding::Border(dtype) if self.lowered.dtype().is_castable() => self.lowered.cast(*dtype),
            _ => self.lowered,
        };
        DryResult { cell: self.cell, node: self.exact.node(), exact: self.exact, lowered, readers: self.readers }
    }
}

impl State {
    /// Notes that a tensor leaves the cell in which it was computed.
    fn leave(&mut self, x: &Tensor) {
        if let Some(&at) = self.by_tensor.at(x.identity()) {
            self.values[at].leaves = true;
        }
    }

    /// Returns an input of an op of a cell: as computed by the same call of the cell in low precision, or else in f32.
    fn read(&mut self, x: &Tensor, cell: Option<usize>, call: u64) -> Tensor {
        match self.by_tensor.at(x.identity()).map(|&at| &mut self.values[at]) {
            Some(value) if value.call == call => value.lowered.clone(),
            Some(value) => {
                value.leaves = true;
                value.readers.extend(cell.filter(|cell| !value.readers.contains(cell)));
                given(x)
            }
            None => given(x),
        }
    }
}

/// Returns an input in f32. A parameter keeps its low copies, which the lowered network reads as well; a widening is not
/// computed in place of an op.
fn given(x: &Tensor) -> Tensor {
    if x.source().is_some() { x.to_keep() } else { x.clone() }
}

impl Observer for Dry {
    fn enter(&self, _: &CellEntry) {
        let mut state = self.state.borrow_mut();
        state.last_call += 1;
        let call = state.last_call;
        state.calls.push(call);
    }

    fn leave(&self, _: &CellCall<'_>) {
        self.state.borrow_mut().calls.pop();
    }

    fn op(&self, call: &OpCall<'_>) {
        if call.backward {
            return;
        }
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let cell = call.slot.and_then(|slot| self.slots.get(&slot)).copied();
        let number = state.calls.last().copied().unwrap_or(0);
        let inputs: Vec<Tensor> = call.inputs.iter().map(|x| state.read(x, cell, number)).collect();
        let (Some(cell), true) = (cell, call.output.dtype().is_float()) else { return };
        let lowering = &self.lowerings[cell];
        if lowering.is_none() {
            return;
        }
        let rounding = &lowering.rounding;
        let operands =
            lowering.operands.filter(|_| call.op.has_weight() || call.op.family() == Some(Family::Recurrent));
        let frame = match rounding {
            Rounding::Ops(frame) if !call.in_code => frame.clone(),
            _ => Frame::Off,
        };
        let dtypes: Vec<DType> = inputs.iter().map(Tensor::dtype).collect();
        let low = |dtype: &Option<DType>| dtype.is_some_and(DType::is_low);
        let casts = resolve(Some(&frame), call.op, &dtypes);
        let found = &mut state.cells[cell];
        let rounds = casts.is_ok_and(|casts| casts.inputs.iter().any(low));
        found.rounds |= rounds || operands.is_some() || matches!(rounding, Rounding::Border(_));
        let is_exact = |(input, given): (&Tensor, &Tensor)| input.identity() == given.identity();
        let repeatable = call.repeatable();
        let lowered =
            if !rounds && operands.is_none() && !repeatable.is_code() && inputs.iter().zip(call.inputs).all(is_exact) {
                // It would give the same numbers.
                call.output.detach()
            } else {
                let again = no_grad(|| {
                    let _region = precision::enter(frame);
                    let _operands = operands.map(|operands| precision::quantize_operands(operands, ""));
                    let inputs: Vec<&Tensor> = inputs.iter().collect();
                    repeatable.run(&inputs)
                });
                // An op that cannot be repeated counts as exact.
                let Ok(mut outputs) = again else { return };
                outputs.swap_remove(0)
            };
        if found.overflows.is_none() && !lowered.has_only_finite() && call.output.has_only_finite() {
            found.overflows = Some(call.op);
        }
        state.by_tensor.insert(call.output, state.values.len());
        state.values.push(Value {
            cell,
            call: number,
            exact: call.output.clone(),
            lowered,
            leaves: false,
            readers: Vec::new(),
        });
    }
}
