//! The pass in f32: the tensors of every op, forward and backward.

use std::{cell::RefCell, collections::HashMap};

use precast::{
    Op, Tensor,
    observe::{GradientCall, Observer, OpCall},
};

/// One op of the pass.
pub(super) struct Ran {
    pub op: Op,
    pub slot: Option<usize>,
    pub inputs: Vec<Tensor>,
    pub outputs: Vec<Tensor>,
    /// Gradients of its inputs.
    pub gradients: Vec<Option<Tensor>>,
}

/// The pass in f32.
#[derive(Default)]
pub(super) struct Reference {
    pub ops: Vec<Ran>,
    /// Ops by the number of their node on the tape.
    nodes: HashMap<u64, usize>,
    /// Number of ops that the other pass has repeated.
    matched: usize,
}

/// Ops that are skipped to find the next one of the other pass.
const AHEAD: usize = 16;

impl Reference {
    /// Returns the op of this pass that the next one of the other pass repeats. A network that branches on a dtype may
    /// run a few others in between.
    pub fn next(&mut self, op: Op, slot: Option<usize>, shape: &[usize]) -> Option<usize> {
        let fits = |ran: &Ran| ran.op == op && ran.slot == slot && ran.outputs[0].shape() == shape;
        let ahead = self.ops[self.matched..].iter().take(AHEAD).position(fits)?;
        self.matched += ahead + 1;
        Some(self.matched - 1)
    }
}

/// Listener that records the pass.
#[derive(Default)]
pub(super) struct Recorder(RefCell<Reference>);

impl Recorder {
    pub fn take(&self) -> Reference {
        self.0.take()
    }
}

impl Observer for Recorder {
    fn op(&self, call: &OpCall<'_>) {
        if call.backward {
            return;
        }
        let mut reference = self.0.borrow_mut();
        let at = reference.ops.len();
        let keep = |x: &Tensor| x.to_keep();
        let outputs = std::iter::once(call.output).chain(call.more).map(keep).collect();
        let inputs = call.inputs.iter().map(keep).collect();
        reference.ops.push(Ran { op: call.op, slot: call.slot, inputs, outputs, gradients: Vec::new() });
        if let Some(node) = call.output.node() {
            reference.nodes.insert(node, at);
        }
    }

    fn gradient(&self, call: &GradientCall<'_>) {
        let mut reference = self.0.borrow_mut();
        if let Some(&at) = reference.nodes.get(&call.node) {
            reference.ops[at].gradients = call.gradients.iter().map(|x| x.as_ref().map(Tensor::to_keep)).collect();
        }
    }
}
