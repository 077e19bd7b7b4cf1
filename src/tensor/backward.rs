//! The backward pass: gradients of a scalar with respect to every leaf it depends on.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{
    Place, Tensor,
    tape::{Backward, LeafId, Node, with_recording},
};
use crate::{
    DType,
    error::{Error, Result},
    precision::{self, Frame},
};

/// Gradients of one backward pass, by leaf.
#[derive(Default)]
pub struct Grads {
    by_leaf: HashMap<LeafId, Tensor>,
}

impl Grads {
    pub(crate) fn of_leaf(&self, id: LeafId) -> Option<&Tensor> {
        self.by_leaf.get(&id)
    }

    pub(crate) fn take_leaf(&mut self, id: LeafId) -> Option<Tensor> {
        self.by_leaf.remove(&id)
    }

    pub(crate) fn replace(&mut self, id: LeafId, grad: Tensor) {
        self.by_leaf.insert(id, grad);
    }

    /// The gradient with respect to a tensor made by [`Tensor::requires_grad`]; `None` when the loss does not depend on it.
    pub fn of(&self, leaf: &Tensor) -> Option<&Tensor> {
        match leaf.place() {
            Place::Leaf(id) => self.of_leaf(*id),
            _ => None,
        }
    }

    /// How many leaves got a gradient.
    pub fn len(&self) -> usize {
        self.by_leaf.len()
    }

    /// Whether no leaf got a gradient.
    pub fn is_empty(&self) -> bool {
        self.by_leaf.is_empty()
    }
}

impl std::fmt::Debug for Grads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Grads({} leaves)", self.len())
    }
}

impl Tensor {
    /// Gradients of this scalar with respect to every parameter and every tensor that [requires](Tensor::requires_grad) one.
    ///
    /// Activations' gradients have the dtype of their forward pass; a parameter's gradient has the parameter's dtype, f32 unless it is
    /// stored low.
    /// No region reaches the backward pass: it runs in the dtypes of the forward pass.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when this is not a floating scalar.
    pub fn backward(&self) -> Result<Grads> {
        if self.len() != 1 || !self.dtype().is_float() {
            return Err(Error::shape(format!(
                "backward starts from a floating scalar; this is {} {:?} (take the mean or the sum first)",
                self.dtype(),
                self.shape()
            )));
        }
        self.backward_from(&Tensor::full(self.shape(), 1.0, self.dtype()))
    }

    /// The vector-Jacobian product: gradients of `sum(self * seed)`. `seed` has this tensor's shape and dtype.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the seed has another shape or dtype,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for an integer or boolean tensor, which has no gradient.
    pub fn backward_from(&self, seed: &Tensor) -> Result<Grads> {
        if !self.dtype().is_float() {
            return Err(Error::dtype(format!(
                "backward starts from a floating tensor; this is {} {:?}",
                self.dtype(),
                self.shape()
            )));
        }
        if seed.shape() != self.shape() || seed.dtype() != self.dtype() {
            return Err(Error::shape(format!(
                "the seed of a backward pass is {} {:?}, the tensor {} {:?}",
                seed.dtype(),
                seed.shape(),
                self.dtype(),
                self.shape()
            )));
        }
        let _off = precision::enter(Frame::Off);
        let _phase = precision::enter_backward();
        with_recording(false, || walk_back(self.place(), seed.detach()))
    }

    /// Bytes that the tape keeps for the backward pass of this tensor: each saved activation once, parameters and their
    /// low copies not at all.
    pub fn tape_bytes(&self) -> usize {
        let mut seen_nodes = HashSet::new();
        let mut activations: HashMap<usize, usize> = HashMap::new();
        let mut pending = vec![self.place().clone()];
        while let Some(place) = pending.pop() {
            let Place::Node(node) = place else { continue };
            if !seen_nodes.insert(node.id) {
                continue;
            }
            let of_call = node.call.iter().flat_map(|call| &call.inputs);
            for kept in node.saved.iter().chain(of_call).filter_map(Tensor::activation) {
                let counted = activations.entry(kept.address).or_default();
                *counted = (kept.len * kept.dtype.bytes()).max(*counted);
            }
            pending.extend(node.inputs.iter().cloned());
        }
        activations.values().sum()
    }
}

/// Ids grow with creation and inputs are older than outputs, so the highest pending id is always ready.
fn walk_back(start: &Place, seed: Tensor) -> Result<Grads> {
    let mut grads = Grads::default();
    let mut pending: BTreeMap<u64, (std::sync::Arc<Node>, Tensor)> = BTreeMap::new();
    let mut widened = HashMap::new();
    arrive(start, seed, &mut pending, &mut grads, &mut widened)?;
    while let Some((_, (node, grad))) = pending.pop_last() {
        let needs: Vec<bool> = node.inputs.iter().map(|p| !matches!(p, Place::None)).collect();
        let context = Backward { grad: &grad, saved: &node.saved, needs: &needs };
        let back = (node.backward)(&context).map_err(|e| e.in_op(node.op.name()).context("backward"))?;
        debug_assert_eq!(back.len(), node.inputs.len(), "{} returns a gradient for each input", node.op);
        for (place, grad) in node.inputs.iter().zip(back) {
            if let Some(grad) = grad {
                arrive(place, grad, &mut pending, &mut grads, &mut widened)?;
            }
        }
    }
    for (id, dtype) in widened {
        let sum = grads.by_leaf[&id].array().cast(dtype);
        grads.by_leaf.insert(id, Tensor::from_array(sum));
    }
    Ok(grads)
}

/// Adds a gradient to what has arrived at a place. A low leaf that is read at many places (tied weights, a recurrent cell)
/// is summed in f32; its dtype is noted in `widened`, for one rounding at the end.
fn arrive(
    place: &Place,
    grad: Tensor,
    pending: &mut BTreeMap<u64, (std::sync::Arc<Node>, Tensor)>,
    grads: &mut Grads,
    widened: &mut HashMap<LeafId, DType>,
) -> Result<()> {
    match place {
        Place::None => {}
        Place::Leaf(id) => {
            let sum = match grads.by_leaf.get(id) {
                Some(before) if grad.dtype().is_low() => {
                    widened.insert(*id, grad.dtype());
                    let wide = |x: &Tensor| Tensor::from_array(x.array().cast(DType::F32));
                    accumulate(&wide(before), &wide(&grad))?
                }
                Some(before) => accumulate(before, &grad)?,
                None => grad,
            };
            grads.by_leaf.insert(*id, sum);
        }
        Place::Node(node) => {
            let sum = match pending.get(&node.id) {
                Some((_, before)) => accumulate(before, &grad)?,
                None => grad,
            };
            pending.insert(node.id, (node.clone(), sum));
        }
    }
    Ok(())
}

/// Sum of two gradients of one place, in their dtype.
fn accumulate(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    debug_assert_eq!((a.shape(), a.dtype()), (b.shape(), b.dtype()));
    debug_assert_ne!(a.dtype(), DType::Bool);
    Ok(Tensor::from_array(a.array().add(b.array())))
}
