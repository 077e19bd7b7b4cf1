//! Listeners, which observe the ops that a thread runs.
//!
//! [`listen`] runs your own [`Listener`]; [`watch`] and [`collect_op_stats`] are ready-made. Without a listener nothing
//! is recorded.

mod distance;
mod edge;
mod origin;
mod stats;

use std::{cell::RefCell, rc::Rc};

pub use distance::{Distance, add_projections};
pub use edge::{Edge, EdgeOp, Numbers, Phase, Subject};
pub use origin::{FaultKind, Origin};
pub use stats::{Calls, OpStats, collect_op_stats};

pub use crate::tensor::listener::{
    Accumulation, CastCall, CastRole, CellCall, CellEntry, Codes, Elsewhere, GradientCall, Listener, Observer, OpCall,
    ParamStep, listen, observed_by,
};
use crate::{
    DType, LeafId, Op, Tensor,
    tensor::{Activation, context},
};

/// One op call, or one cast that was performed.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Identity of the cell slot it ran in; see `Trace` for paths.
    pub slot: Option<usize>,
    /// The op.
    pub op: Op,
    /// Dtypes of the inputs as the kernel saw them, after casts.
    pub inputs: Vec<DType>,
    /// Dtype of the kernel's result, before it is cast back.
    pub output: DType,
    /// `true` when it ran in a backward pass.
    pub backward: bool,
    /// `true` when a region entered by code decided its precision, rather than the slot of a cell.
    pub in_code: bool,
    /// Shapes of the inputs and the result, and the activations kept by the tape.
    pub sizes: Sizes,
}

/// Sizes of one op call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Shapes of the inputs.
    pub inputs: Vec<Vec<usize>>,
    /// Shape of the result.
    pub output: Vec<usize>,
    /// `true` for each input that will receive a gradient.
    pub needs: Vec<bool>,
    /// Activations that the tape keeps for the backward pass, excluding parameters.
    pub kept: Vec<Activation>,
}

/// One call of a cell, with the number of castable elements in its inputs and outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellSizes {
    /// Identity of its slot.
    pub slot: usize,
    /// Name of its type.
    pub kind: &'static str,
    /// `true` when it has parameters, or cells inside it have.
    pub has_params: bool,
    /// Castable elements of its inputs.
    pub inputs: usize,
    /// Castable elements of its outputs.
    pub outputs: usize,
    /// Shapes of all outputs.
    pub shapes: Vec<Vec<usize>>,
}

/// A forward pass that reads this leaf, in the cell of this slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Identity of the slot; `None` outside every cell.
    pub slot: Option<usize>,
    /// The leaf.
    pub leaf: LeafId,
}

/// Record of a watch.
#[derive(Debug, Default)]
pub struct Seen {
    /// Events, in order.
    pub events: Vec<Event>,
    /// Cell calls, in the order in which they ended.
    pub cell_calls: Vec<CellSizes>,
    /// Leaves that were read.
    pub reads: Vec<Read>,
}

/// Runs `f` and returns its result along with every event of this thread in order. An outer watch sees them too.
pub fn watch<R>(f: impl FnOnce() -> R) -> (R, Vec<Event>) {
    let (result, seen) = watch_all(f);
    (result, seen.events)
}

/// Runs `f` as [`watch`] does, and also returns the calls of cells and the leaves they read.
pub fn watch_all<R>(f: impl FnOnce() -> R) -> (R, Seen) {
    let watch = Rc::new(Watch::default());
    let result = observed_by(watch.clone(), f);
    (result, watch.0.take())
}

#[derive(Default)]
struct Watch(RefCell<Seen>);

impl Watch {
    /// Records a cast that is performed.
    fn note_cast(&self, from: &Tensor, to: DType) {
        let (slot, backward, in_code) = (context::slot(), context::in_backward(), context::in_code());
        let shape = from.shape().to_vec();
        let needs = vec![from.is_tracked()];
        let sizes = Sizes { inputs: vec![shape.clone()], output: shape, needs, kept: Vec::new() };
        let (op, inputs, output) = (Op::Cast, vec![from.dtype()], to);
        self.0.borrow_mut().events.push(Event { slot, op, inputs, output, backward, in_code, sizes });
    }
}

impl Observer for Watch {
    fn op(&self, call: &OpCall<'_>) {
        let sizes = Sizes {
            inputs: call.inputs.iter().map(|x| x.shape().to_vec()).collect(),
            output: call.output.shape().to_vec(),
            needs: call.inputs.iter().map(Tensor::is_tracked).collect(),
            kept: call.output.kept(call.inputs),
        };
        let inputs = call.inputs.iter().map(Tensor::dtype).collect();
        let &OpCall { slot, op, backward, in_code, .. } = call;
        let mut seen = self.0.borrow_mut();
        seen.events.push(Event { slot, op, inputs, output: call.output.dtype(), backward, in_code, sizes });
        if !backward {
            let leaves = call.given.iter().filter_map(|x| x.place().leaf());
            seen.reads.extend(leaves.map(|leaf| Read { slot, leaf }));
        }
    }

    fn cast(&self, cast: &CastCall<'_>) {
        if cast.computed {
            self.note_cast(cast.input, cast.output.dtype());
        }
    }

    fn widen(&self, from: &Tensor, to: DType) {
        self.note_cast(from, to);
    }

    fn leave(&self, cell: &CellCall<'_>) {
        let Some(outputs) = cell.outputs else { return };
        let elements = |tensors: &[Tensor]| tensors.iter().filter(|x| x.dtype().is_castable()).map(Tensor::len).sum();
        let (&CellCall { slot, kind, .. }, has_params) = (cell, cell.has_params());
        let shapes = outputs.iter().map(|x| x.shape().to_vec()).collect();
        let (inputs, outputs) = (elements(cell.inputs), elements(outputs));
        self.0.borrow_mut().cell_calls.push(CellSizes { slot, kind, has_params, inputs, outputs, shapes });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_nest() {
        let x = Tensor::ones(&[1], DType::F32);
        let ((_, inner), outer) = watch(|| {
            x.relu().unwrap();
            watch(|| x.exp().unwrap())
        });
        assert_eq!(inner.iter().map(|e| e.op).collect::<Vec<_>>(), [Op::Exp]);
        assert_eq!(outer.iter().map(|e| e.op).collect::<Vec<_>>(), [Op::Relu, Op::Exp]);
    }
}
