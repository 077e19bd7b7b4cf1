//! The tensors at the border of each cell in f32, and their distances from those of the lowered network.

use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
    rc::Rc,
};

use precast::{
    Tensor, WeakTensor,
    error::Result,
    observe::{CellCall, Distance, GradientCall, Observer, observed_by},
};

/// The calls of each cell slot, in order.
pub(super) type Calls = HashMap<usize, Vec<Border>>;

/// Inputs and outputs of one call of a cell, before its adapter casts them.
pub(super) struct Border {
    pub inputs: Vec<Tensor>,
    pub outputs: Vec<Tensor>,
}

#[derive(Default)]
struct Borders(RefCell<Calls>);

impl Observer for Borders {
    fn leave(&self, cell: &CellCall<'_>) {
        if let Some(outputs) = cell.outputs {
            let border = Border { inputs: cell.inputs.to_vec(), outputs: outputs.to_vec() };
            self.0.borrow_mut().entry(cell.slot).or_default().push(border);
        }
    }
}

/// Runs `f`, and returns along with its result the calls of cells.
pub(super) fn borders<R>(f: impl FnOnce() -> Result<R>) -> Result<(R, Calls)> {
    let listener = Rc::new(Borders::default());
    let result = observed_by(listener.clone(), f)?;
    let calls = listener.0.take();
    Ok((result, calls))
}

/// The gradients of the results of nodes of the tape.
pub(super) type Gradients = HashMap<u64, Tensor>;

struct Keep {
    nodes: HashSet<u64>,
    gradients: RefCell<Gradients>,
}

impl Observer for Keep {
    fn gradient(&self, call: &GradientCall<'_>) {
        if self.nodes.contains(&call.node) {
            self.gradients.borrow_mut().insert(call.node, call.grad.to_keep());
        }
    }
}

/// Runs a backward pass from a loss, and returns the gradients of the outputs of cells.
pub(super) fn gradients(loss: &Tensor, calls: &Calls) -> Result<Gradients> {
    let nodes: HashSet<u64> =
        calls.values().flatten().flat_map(|call| &call.outputs).filter_map(Tensor::node).collect();
    let listener = Rc::new(Keep { nodes, gradients: RefCell::default() });
    observed_by(listener.clone(), || loss.backward_to(&listener.nodes, None))?;
    Ok(listener.gradients.take())
}

/// Distances of a cell of the lowered network from the same cell in f32, over all its calls.
#[derive(Clone, Copy, Default)]
pub(super) struct CellErrors {
    pub incoming: Distance,
    pub outgoing: Distance,
    pub gradient: Distance,
}

/// The distances of each cell slot.
#[derive(Default)]
pub(super) struct Errors {
    by_slot: HashMap<usize, CellErrors>,
    /// Outputs of cells, by their node: the slot, and the node of the same output in f32.
    outputs: HashMap<u64, Vec<(usize, u64)>>,
    /// Number of calls of each slot.
    calls: HashMap<usize, usize>,
    /// Tensors that were compared. What one cell returns the next one reads.
    known: HashMap<(usize, usize), Distance>,
    held: Vec<WeakTensor>,
}

impl Errors {
    /// Returns the distances of a cell.
    pub fn of(&self, slot: usize) -> CellErrors {
        self.by_slot.get(&slot).copied().unwrap_or_default()
    }

    /// Returns the distance of the floating tensors among these.
    fn between(&mut self, found: &[Tensor], exact: &[Tensor]) -> Distance {
        let mut all = Distance::default();
        for (found, exact) in
            found.iter().zip(exact).filter(|(x, exact)| x.dtype().is_float() && exact.dtype().is_float())
        {
            // A widening has the numbers of its source.
            let found = found.source().unwrap_or(found);
            let pair = (found.identity(), exact.identity());
            all += *self.known.entry(pair).or_insert_with(|| {
                self.held.push(found.downgrade());
                Distance::between(found, exact)
            });
        }
        all
    }

    /// Runs a backward pass from a scaled loss of the lowered network, and compares the gradients of the outputs of
    /// cells.
    pub fn compare_gradients(&mut self, loss: &Tensor, scale: f64, exact: Gradients) -> Result<()> {
        let (outputs, by_slot) = (std::mem::take(&mut self.outputs), RefCell::default());
        let nodes = outputs.keys().copied().collect();
        let listener = Rc::new(Compare { outputs, exact, scale, by_slot });
        observed_by(listener.clone(), || loss.backward_to(&nodes, None))?;
        for (slot, distance) in listener.by_slot.take() {
            self.by_slot.entry(slot).or_default().gradient = distance;
        }
        Ok(())
    }
}

/// Compares the gradients of the outputs of cells of the lowered network.
struct Compare {
    outputs: HashMap<u64, Vec<(usize, u64)>>,
    exact: Gradients,
    scale: f64,
    by_slot: RefCell<HashMap<usize, Distance>>,
}

impl Observer for Compare {
    fn gradient(&self, call: &GradientCall<'_>) {
        for (slot, exact) in self.outputs.get(&call.node).into_iter().flatten() {
            if let Some(exact) = self.exact.get(exact) {
                let distance = Distance::between_scaled(call.grad, exact, self.scale);
                *self.by_slot.borrow_mut().entry(*slot).or_default() += distance;
            }
        }
    }
}

/// Runs `f`, which calls the lowered network, and compares its cells with those in f32.
pub(super) fn compared<R>(exact: &Rc<Calls>, f: impl FnOnce() -> Result<R>) -> Result<(R, Errors)> {
    let listener = Rc::new(Lowered { exact: exact.clone(), errors: RefCell::default() });
    let result = observed_by(listener.clone(), f)?;
    let errors = listener.errors.take();
    Ok((result, errors))
}

/// Compares the cells of the lowered network, as each is left.
struct Lowered {
    exact: Rc<Calls>,
    errors: RefCell<Errors>,
}

impl Observer for Lowered {
    fn leave(&self, cell: &CellCall<'_>) {
        let Some(outputs) = cell.outputs else { return };
        let errors = &mut *self.errors.borrow_mut();
        let call = errors.calls.entry(cell.slot).or_default();
        let Some(exact) = self.exact.get(&cell.slot).and_then(|calls| calls.get(*call)) else { return };
        *call += 1;
        let (incoming, outgoing) =
            (errors.between(cell.inputs, &exact.inputs), errors.between(outputs, &exact.outputs));
        let of_cell = errors.by_slot.entry(cell.slot).or_default();
        of_cell.incoming += incoming;
        of_cell.outgoing += outgoing;
        for (output, exact) in outputs.iter().zip(&exact.outputs) {
            if let Some((output, exact)) = output.node().zip(exact.node()) {
                errors.outputs.entry(output).or_default().push((cell.slot, exact));
            }
        }
    }
}
