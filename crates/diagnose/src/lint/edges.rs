//! The results of the pass under the policy, each with its numbers in f32.

use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
    mem,
};

use precast::{
    Child, DType, LeafId, Op, Tensor,
    catalogue::Attributes,
    cell::AsCell,
    observe::{Accumulation, CastCall, CellCall, CellEntry, EdgeOp, GradientCall, Observer, OpCall, Phase, Subject},
    precision,
};

use super::{finding::Place, format::amax, reference::Reference};
use crate::{beside::Beside, measure::values, names::Names};

/// One result of the pass.
pub(super) struct Edge {
    pub phase: Phase,
    pub op: EdgeOp,
    pub subject: Subject,
    /// Path of the cell; empty outside every cell.
    pub cell: String,
    /// `true` when it is written outside every cell.
    pub outside: bool,
    /// Dtype under the policy.
    pub dtype: DType,
    /// Its numbers in f32.
    pub exact: Tensor,
    /// Inputs of a forward op, in f32.
    pub operands: Vec<Tensor>,
    /// Edges that are read, one for each operand or term; `None` for data, parameters and constants.
    pub sources: Vec<Option<usize>>,
    /// Identities of the operands without an edge.
    unwritten: Vec<Option<usize>>,
    pub attributes: Attributes,
    slot: Option<usize>,
    leaf: Option<LeafId>,
}

impl Edge {
    /// Returns the op, in the forward pass.
    pub fn forward_op(&self) -> Option<Op> {
        match (self.phase, self.op) {
            (Phase::Forward, EdgeOp::Op(op)) => Some(op),
            _ => None,
        }
    }

    /// Returns the place for a finding.
    pub fn place(&self) -> Place {
        let Edge { phase, cell, op, subject, exact, .. } = self;
        Place { phase: *phase, cell: cell.clone(), op: *op, subject: subject.clone(), amax: amax(&values(exact)) }
    }
}

/// All results of the pass, in the order in which they are written.
pub(super) struct Edges {
    pub list: Vec<Edge>,
    /// Edges that read each edge.
    pub readers: Vec<Vec<usize>>,
    /// Identities of the inputs of the outermost cells.
    given: HashSet<usize>,
    /// Slots with an adapter that are entered inside a region of code.
    pub wrapped: Vec<usize>,
}

impl Edges {
    /// Returns the edges from which an edge is computed, without repetition.
    pub fn sources(&self, at: usize) -> impl Iterator<Item = usize> + '_ {
        self.list[at].sources.iter().flatten().copied()
    }

    /// Returns the edge of an operand, past casts of it.
    pub fn origin(&self, at: usize, operand: usize) -> Option<usize> {
        let mut at = (*self.list[at].sources.get(operand)?)?;
        while self.list[at].forward_op() == Some(Op::Cast)
            && let Some(from) = self.list[at].sources[0]
        {
            at = from;
        }
        Some(at)
    }

    /// Returns an operand that is a single number of the code.
    pub fn constant(&self, at: usize, operand: usize) -> Option<f64> {
        let edge = &self.list[at];
        let x = edge.operands.get(operand).filter(|x| x.len() == 1)?;
        self.is_constant(at, operand).then(|| values(x)[0])
    }

    /// Returns whether an edge reads an input of the network.
    pub fn is_given(&self, edge: &Edge) -> bool {
        edge.unwritten.first().copied().flatten().is_some_and(|input| self.given.contains(&input))
    }

    /// Returns whether an operand is an input of the network.
    pub fn is_given_operand(&self, at: usize, operand: usize) -> bool {
        self.list[at].unwritten.get(operand).copied().flatten().is_some_and(|input| self.given.contains(&input))
    }

    /// Returns whether an operand is a tensor of the code: no result, no parameter and no input of the network.
    pub fn is_constant(&self, at: usize, operand: usize) -> bool {
        let edge = &self.list[at];
        match edge.sources.get(operand) {
            Some(&Some(from)) => {
                let source = &self.list[from];
                source.forward_op() == Some(Op::Cast)
                    && source.leaf.is_none()
                    && matches!(source.subject, Subject::InputOf(_) | Subject::Other)
                    && self.is_constant(from, 0)
            }
            Some(None) => edge.leaf.is_none() && edge.unwritten[operand].is_some_and(|x| !self.given.contains(&x)),
            None => false,
        }
    }
}

/// Listener that follows the pass under the policy.
pub(super) struct Follower(RefCell<State>);

struct State {
    reference: Reference,
    list: Vec<Edge>,
    /// Edge that wrote each value.
    wrote: Beside<usize>,
    /// Each value in f32.
    twins: Beside<Tensor>,
    /// Ops of the reference by the number of their node on the tape.
    nodes: HashMap<u64, usize>,
    depth: usize,
    given: HashSet<usize>,
    wrapped: Vec<usize>,
}

impl Follower {
    pub fn new(reference: Reference) -> Self {
        Follower(RefCell::new(State {
            reference,
            list: Vec::new(),
            wrote: Beside::default(),
            twins: Beside::default(),
            nodes: HashMap::new(),
            depth: 0,
            given: HashSet::new(),
            wrapped: Vec::new(),
        }))
    }

    /// Returns the edges, under the names of this network.
    pub fn finish<C: ?Sized + AsCell>(&self, net: &Child<C>) -> Edges {
        let names = Names::read(net);
        let mut state = self.0.borrow_mut();
        let (mut list, given) = (mem::take(&mut state.list), mem::take(&mut state.given));
        let mut readers = vec![Vec::new(); list.len()];
        for (at, edge) in list.iter_mut().enumerate() {
            let (cell, param) = names.of(edge.slot, edge.leaf);
            (edge.cell, edge.outside) = (cell, edge.slot.is_none());
            if let Some(param) = param {
                edge.subject = Subject::Param(param);
            }
            edge.sources.iter().flatten().for_each(|&from: &usize| readers[from].push(at));
        }
        Edges { list, readers, given, wrapped: mem::take(&mut state.wrapped) }
    }
}

impl State {
    /// Returns a value in f32.
    fn twin(&self, x: &Tensor) -> Tensor {
        self.twins.get(x).cloned().unwrap_or_else(|| x.to_keep())
    }

    /// Adds an edge that writes `output` from `inputs`.
    fn write(&mut self, edge: Edge, inputs: &[&Tensor], output: &Tensor) {
        let sources: Vec<Option<usize>> = inputs.iter().map(|x| self.wrote.get(x).copied()).collect();
        let unwritten = inputs.iter().zip(&sources).map(|(x, from)| from.is_none().then(|| x.identity())).collect();
        self.wrote.insert(output, self.list.len());
        self.twins.insert(output, edge.exact.clone());
        inputs.iter().for_each(|x| self.wrote.hold(x));
        self.list.push(Edge { sources, unwritten, ..edge });
    }

    /// Lets `output` count as the same value as `input`.
    fn alias(&mut self, input: &Tensor, output: &Tensor) {
        let twin = self.twin(input);
        self.twins.insert(output, twin);
        if let Some(&from) = self.wrote.get(input) {
            self.wrote.insert(output, from);
        }
    }
}

fn edge(phase: Phase, op: EdgeOp, subject: Subject, dtype: DType, exact: Tensor) -> Edge {
    Edge {
        phase,
        op,
        subject,
        cell: String::new(),
        outside: false,
        dtype,
        exact,
        operands: Vec::new(),
        sources: Vec::new(),
        unwritten: Vec::new(),
        attributes: Attributes::default(),
        slot: None,
        leaf: None,
    }
}

impl Observer for Follower {
    fn op(&self, call: &OpCall<'_>) {
        if call.backward {
            return;
        }
        let mut state = self.0.borrow_mut();
        let state = &mut *state;
        let ran = state.reference.next(call.op, call.slot, call.output.shape());
        // Without a counterpart, nothing can be said of the results.
        let Some(at) = ran else { return };
        if let Some(node) = call.output.node() {
            state.nodes.insert(node, at);
        }
        let outputs: Vec<Tensor> = state.reference.ops[at].outputs.clone();
        let operands = state.reference.ops[at].inputs.clone();
        for (output, twin) in call.more.iter().zip(&outputs[1..]) {
            state.twins.insert(output, twin.clone());
        }
        let new = edge(Phase::Forward, EdgeOp::Op(call.op), Subject::Output, call.output.dtype(), outputs[0].clone());
        let new = Edge { slot: call.slot, operands, attributes: call.attributes.clone(), ..new };
        let inputs: Vec<&Tensor> = call.inputs.iter().collect();
        state.write(new, &inputs, call.output);
    }

    fn cast(&self, cast: &CastCall<'_>) {
        let mut state = self.0.borrow_mut();
        let state = &mut *state;
        let known = !cast.backward && state.wrote.at(cast.output.identity()).is_some();
        if known || !cast.output.dtype().is_float() {
            return;
        }
        if !cast.output.dtype().is_low() {
            return state.alias(cast.input, cast.output);
        }
        let (leaf, subject) = (cast.of.leaf(), Subject::of_cast(cast.of));
        // A cast inside the gradient of an op has no counterpart.
        let inside = cast.backward && state.twins.get(cast.input).is_none();
        if inside {
            return;
        }
        let phase = if cast.backward { Phase::Backward } else { Phase::Forward };
        let twin = state.twin(cast.input);
        let new = edge(phase, EdgeOp::Op(Op::Cast), subject, cast.output.dtype(), twin.clone());
        state.write(Edge { slot: cast.slot, leaf, operands: vec![twin], ..new }, &[cast.input], cast.output);
    }

    fn enter(&self, cell: &CellEntry) {
        let mut state = self.0.borrow_mut();
        state.depth += 1;
        if precision::region().is_some_and(|region| region.enabled) {
            state.wrapped.push(cell.slot);
        }
    }

    fn leave(&self, cell: &CellCall<'_>) {
        let mut state = self.0.borrow_mut();
        state.depth -= 1;
        if state.depth == 0 {
            let identities: Vec<usize> = cell.inputs.iter().map(Tensor::identity).collect();
            state.given.extend(identities);
            cell.inputs.iter().for_each(|x| state.wrote.hold(x));
        }
    }

    fn gradient(&self, call: &GradientCall<'_>) {
        let Some(op) = call.op.filter(|op| *op != Op::Cast) else { return };
        let mut state = self.0.borrow_mut();
        let state = &mut *state;
        let Some(&at) = state.nodes.get(&call.node) else { return };
        for (input, gradient) in call.gradients.iter().enumerate() {
            let exact = state.reference.ops[at].gradients.get(input).and_then(Option::clone);
            let (Some(gradient), Some(exact)) = (gradient, exact) else { continue };
            let new = edge(Phase::Backward, EdgeOp::Op(op), Subject::Gradient(input), gradient.dtype(), exact);
            state.write(Edge { slot: call.slot, ..new }, &[call.grad], gradient);
        }
    }

    fn accumulate(&self, sum: &Accumulation<'_>) {
        let mut state = self.0.borrow_mut();
        let mut exact = vec![0.0; sum.sum.len()];
        for term in sum.terms {
            let Some(twin) = state.twins.get(term) else { return };
            exact.iter_mut().zip(values(twin)).for_each(|(sum, x)| *sum += x);
        }
        let Ok(exact) = Tensor::from_f64(&exact, sum.sum.shape(), DType::F64) else { return };
        let new = edge(Phase::Backward, EdgeOp::Accumulate, Subject::Other, sum.sum.dtype(), exact);
        state.write(Edge { slot: sum.slot, leaf: sum.leaf, ..new }, sum.terms, sum.sum);
    }
}
