//! Backward pass that stays on the tape.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use crate::{
    DType, Op, Tensor,
    error::{Error, Result},
    ops::gradient::{backward, has_second, linear},
    tensor::{Backward, Call, Node, Place, What, context, is_recording, next_id, with_recording},
};

/// Computes the gradients of `sum(y * seed)` with respect to the targets, on the tape if recording is on.
pub(super) fn walk(y: &Tensor, seed: &Tensor, targets: &[&Tensor]) -> Result<Vec<Option<Tensor>>> {
    let wanted: BTreeSet<u64> = targets.iter().filter_map(|x| id(x.place())).collect();
    let leading = leading(y.place(), &wanted);
    let mut arrived = Arrived::default();
    if id(y.place()).is_some_and(|id| leading.contains(&id)) {
        arrived.add(y.place(), seed.clone())?;
    }
    while let Some((node, grad)) = arrived.next(&wanted) {
        let needs: Vec<bool> =
            node.inputs.iter().map(|place| id(place).is_some_and(|id| leading.contains(&id))).collect();
        if !needs.contains(&true) {
            continue;
        }
        let back = back_through(&node, &grad, &needs).map_err(|e| e.in_backward(node.op.map(Op::name)))?;
        for ((place, grad), needed) in node.inputs.iter().zip(back).zip(needs) {
            if let (Some(grad), true) = (grad, needed) {
                arrived.add(place, grad)?;
            }
        }
    }
    Ok(targets.iter().map(|x| id(x.place()).and_then(|id| arrived.found(id, x.dtype()))).collect())
}

/// Computes the gradients of a node's inputs, each as its own node.
fn back_through(node: &Node, grad: &Tensor, needs: &[bool]) -> Result<Vec<Option<Tensor>>> {
    let recorded = is_recording();
    if recorded {
        match &node.call {
            Some(call) => has_second(&call.what)?,
            None if node.op.is_none() => {
                let words = "a recomputed cell has no second derivative; take `recompute` back for it";
                return Err(Error::unsupported(words));
            }
            None => {
                let words =
                    "its call was not kept; compute what is to be differentiated twice within `twice_differentiable`";
                return Err(Error::unsupported(words));
            }
        }
    }
    let value = grad.detach();
    let back = Backward { grad: &value, saved: &node.saved, needs, narrows: false };
    let values = {
        let _alone = context::enter_op();
        with_recording(false, || (node.backward)(&back))?
    };
    let call = node.call.as_ref().filter(|_| recorded);
    let placed = values.into_iter().enumerate().map(|(i, value)| match (value, call) {
        (Some(value), Some(call)) if needs[i] => Some(on_tape(&value, grad, node, call, i)),
        (value, _) => value,
    });
    Ok(placed.collect())
}

/// Returns the gradient of an input as a node of the tape.
fn on_tape(value: &Tensor, grad: &Tensor, node: &Node, call: &Call, input: usize) -> Tensor {
    let mut inputs = vec![grad.place().clone()];
    inputs.extend(node.inputs.iter().cloned());
    if let What::Op { op, .. } = &*call.what
        && let Some(factors) = linear::factors(*op, input)
    {
        for (i, place) in inputs[1..].iter_mut().enumerate() {
            if i == input || !factors.contains(&i) {
                *place = Place::None;
            }
        }
    }
    let values: Vec<Tensor> = [grad].into_iter().chain(&call.inputs).map(Tensor::to_keep).collect();
    let what = Arc::new(What::Gradient { of: call.what.clone(), input });
    let kept = context::keeps_calls().then(|| Call { inputs: values.clone(), what: what.clone() });
    value.with_place(Place::Node(Arc::new(Node {
        id: next_id(),
        op: node.op,
        slot: node.slot,
        has_f16: node.has_f16,
        inputs,
        saved: values,
        backward: Box::new(move |back| backward(&what, back)),
        call: kept,
        // A step that penalizes gradients is a step of the pass that they come from.
        passes: node.passes.clone(),
        low_copies: None,
    })))
}

/// Returns the identity of a place. Later places have greater ones.
fn id(place: &Place) -> Option<u64> {
    match place {
        Place::None => None,
        Place::Leaf(leaf) => Some(leaf.0),
        Place::Node(node) => Some(node.id),
    }
}

/// Returns the wanted places, and those on a path from the start to one of them.
fn leading(start: &Place, wanted: &BTreeSet<u64>) -> BTreeSet<u64> {
    let Some(&oldest) = wanted.first() else { return BTreeSet::new() };
    let mut met: BTreeMap<u64, &Node> = BTreeMap::new();
    let mut pending = vec![start];
    let mut leading = BTreeSet::new();
    while let Some(place) = pending.pop() {
        match place {
            Place::None => {}
            Place::Leaf(leaf) => {
                if wanted.contains(&leaf.0) {
                    leading.insert(leaf.0);
                }
            }
            // Inputs are older than the results computed from them.
            Place::Node(node) if node.id < oldest => {}
            Place::Node(node) => {
                if met.insert(node.id, node).is_none() {
                    pending.extend(&node.inputs);
                }
            }
        }
    }
    for (id, node) in met {
        let leads = |place: &Place| self::id(place).is_some_and(|id| leading.contains(&id));
        if wanted.contains(&id) || node.inputs.iter().any(leads) {
            leading.insert(id);
        }
    }
    leading
}

/// Gradients that have arrived at places.
#[derive(Default)]
struct Arrived {
    /// Nodes still to be visited.
    pending: BTreeMap<u64, (Arc<Node>, Tensor)>,
    found: HashMap<u64, Tensor>,
}

impl Arrived {
    /// Adds a gradient to those that have arrived at a place. Gradients of a low leaf are summed in f32, as in
    /// [`backward`](Tensor::backward).
    fn add(&mut self, place: &Place, grad: Tensor) -> Result<()> {
        match place {
            Place::None => {}
            Place::Leaf(leaf) => {
                let wide = |x: &Tensor| if x.dtype().is_low() { x.cast(DType::F32) } else { x.clone() };
                let sum = match self.found.get(&leaf.0) {
                    Some(before) => wide(before).add(&wide(&grad))?,
                    None => grad,
                };
                self.found.insert(leaf.0, sum);
            }
            Place::Node(node) => {
                let sum = match self.pending.get(&node.id) {
                    Some((_, before)) => before.add(&grad)?,
                    None => grad,
                };
                self.pending.insert(node.id, (node.clone(), sum));
            }
        }
        Ok(())
    }

    /// Returns the newest pending node with its gradient, which is complete.
    fn next(&mut self, wanted: &BTreeSet<u64>) -> Option<(Arc<Node>, Tensor)> {
        let (id, (node, grad)) = self.pending.pop_last()?;
        if wanted.contains(&id) {
            self.found.insert(id, grad.clone());
        }
        Some((node, grad))
    }

    /// Returns the gradient of a target, in its dtype.
    fn found(&self, id: u64, dtype: DType) -> Option<Tensor> {
        self.found.get(&id).map(|grad| grad.cast(dtype))
    }
}
