//! The tensors at the border of each cell in a forward pass, and their gradients.

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use crate::{
    Tensor,
    error::Result,
    observe::{CellCall, GradientCall, Hears, heard_by},
    tensor::Place,
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

impl Hears for Borders {
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
    let result = heard_by(listener.clone(), f)?;
    let calls = listener.0.take();
    Ok((result, calls))
}

/// The gradients of the results of nodes of the tape.
#[derive(Default)]
struct Gradients(RefCell<HashMap<u64, Tensor>>);

impl Hears for Gradients {
    fn gradient(&self, call: &GradientCall<'_>) {
        self.0.borrow_mut().insert(call.node, call.grad.to_keep());
    }
}

/// Runs a backward pass from a loss, and returns the gradients by node.
pub(super) fn gradients(loss: &Tensor) -> Result<HashMap<u64, Tensor>> {
    let listener = Rc::new(Gradients::default());
    heard_by(listener.clone(), || loss.backward().map(drop))?;
    Ok(listener.0.take())
}

/// Returns the gradients of the outputs of a call, if they are known.
pub(super) fn of_outputs(border: &Border, gradients: &HashMap<u64, Tensor>) -> Vec<f64> {
    let known = |output: &Tensor| match output.place() {
        Place::Node(node) => gradients.get(&node.id).map(Tensor::to_f64),
        _ => None,
    };
    border.outputs.iter().filter_map(known).flatten().collect()
}

/// Returns the numbers of the floating tensors among these.
pub(super) fn numbers(tensors: &[Tensor]) -> Vec<f64> {
    tensors.iter().filter(|x| x.dtype().is_float()).flat_map(Tensor::to_f64).collect()
}
