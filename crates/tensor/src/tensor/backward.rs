//! Backward pass: gradients of a scalar with respect to every leaf it depends on.

mod moments;

use std::{
    collections::{BTreeMap, HashMap, HashSet, btree_map::Entry},
    sync::{Arc, PoisonError},
};

use half::f16;

pub use moments::Moment;
use moments::{Counted, Hook};

use super::{
    Grads, Place, Tensor, context, fitting,
    listener::{Accumulation, GradientCall, OnDemand},
    tape::{Backward, LeafId, Node},
    with_recording,
};
use crate::{
    DType, Op,
    error::{Error, Result},
    precision::Frame,
};

impl Tensor {
    /// Computes the gradients of this scalar with respect to every parameter and every tensor that
    /// [requires](Tensor::requires_grad) one.
    ///
    /// Gradients of activations have the dtype of their forward pass. A parameter's gradient has the parameter's dtype,
    /// which is f32 unless the parameter is stored low. Regions do not affect the backward pass, which runs in the
    /// dtypes of the forward pass.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when this is not a floating scalar,
    /// [`ErrorKind::Gradient`](crate::ErrorKind::Gradient) when it depends on no parameter and on no tensor that
    /// requires a gradient.
    pub fn backward(&self) -> Result<Grads> {
        self.clone().into_grads()
    }

    /// Computes gradients as [`backward`](Tensor::backward) does, consuming the tensor. Unless the tape is shared, each
    /// activation is freed as soon as the gradients that read it are computed, and its memory is reused for the
    /// gradients.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::{DType, Param, Tensor};
    /// # let weight = Param::new(Tensor::ones(&[2], DType::F32));
    /// let loss = weight.tensor().square()?.sum_all()?;
    /// let grads = loss.into_grads()?;
    /// assert_eq!(grads.get(&weight).unwrap().to_f64(), [2.0, 2.0]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`backward`](Tensor::backward).
    pub fn into_grads(self) -> Result<Grads> {
        self.walk(Parameters::Stay, None)
    }

    /// Computes gradients as [`into_grads`](Tensor::into_grads) does, before an update of the parameters. Frees their
    /// low copies too.
    pub(crate) fn into_grads_before_update(self) -> Result<Grads> {
        self.walk(Parameters::Change, None)
    }

    fn walk(self, parameters: Parameters, hook: Option<Hook<'_>>) -> Result<Grads> {
        let seed = self.seed()?;
        let start = self.place().clone();
        drop(self);
        walk_from(start, seed, parameters, None, hook)
    }

    /// Returns the gradient of this scalar with respect to itself.
    fn seed(&self) -> Result<Tensor> {
        self.check_scalar("backward starts from a floating scalar; this")?;
        if !self.is_tracked() {
            return Err(Error::gradient(
                "backward starts from a tensor that depends on no parameter: was it computed under `no_grad`, from \
                 `detach`ed tensors or from the `value` of a parameter, or are all parameters of the network frozen?",
            ));
        }
        Ok(Tensor::full(self.shape(), 1.0, self.dtype()))
    }

    /// Computes the gradients of this scalar, or of `sum(self * seed)`, with respect to the results of these [nodes](Tensor::node) of
    /// the tape, which listeners receive. It computes no others, neither those of parameters nor those below the nodes.
    ///
    /// # Errors
    /// Those of [`backward`](Tensor::backward) without a seed.
    pub fn backward_to(&self, nodes: &HashSet<u64>, seed: Option<&Tensor>) -> Result<()> {
        let seed = seed.map_or_else(|| self.seed(), |seed| Ok(seed.detach()))?;
        let on_the_way = on_the_way(self.place(), nodes);
        walk_from(self.place().clone(), seed, Parameters::Stay, Some(&on_the_way), None).map(drop)
    }

    /// Computes the vector-Jacobian product: gradients of `sum(self * seed)`. `seed` has this tensor's shape and dtype.
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
        walk_from(self.place().clone(), seed.detach(), Parameters::Stay, None, None)
    }

    /// Checks that this is a floating scalar, as a loss is. `what` begins the message, before "is".
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) unless it is one.
    pub fn check_scalar(&self, what: &str) -> Result<()> {
        if self.len() == 1 && self.dtype().is_float() {
            return Ok(());
        }
        let (dtype, shape) = (self.dtype(), self.shape());
        Err(Error::shape(format!("{what} is {dtype} {shape:?} (take the mean or the sum first)")))
    }

    /// Returns the bytes that the tape keeps for the backward pass of this tensor. Each saved activation counts once;
    /// parameters and their low copies do not count.
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
                *counted = kept.bytes.max(*counted);
            }
            pending.extend(node.inputs.iter().cloned());
        }
        activations.values().sum()
    }
}

/// Computes the gradients of several tensors at once, each with its seed: those of
/// `sum(a * seed_a) + sum(b * seed_b) + ...`. For a backward pass nested in another, which has already left every
/// region. Gradients that arrive at a leaf among `nodes` are summed in their own dtype, as at the node it replaces.
pub fn backward_of(outputs: &[(Tensor, Tensor)], nodes: &HashSet<LeafId>) -> Result<Grads> {
    let starts = outputs.iter().map(|(output, seed)| (output.place().clone(), seed.detach()));
    walk_back(starts, nodes, Parameters::Stay, None, None)
}

/// Walks back from one place, outside every region and off the tape.
fn walk_from(
    start: Place,
    seed: Tensor,
    parameters: Parameters,
    on_the_way: Option<&HashSet<u64>>,
    hook: Option<Hook<'_>>,
) -> Result<Grads> {
    let counted = hook.map(|hook| Counted::new(hook, &start));
    let _off = context::enter(Frame::Off);
    let _phase = context::enter_backward();
    with_recording(false, || walk_back([(start, seed)], &HashSet::new(), parameters, on_the_way, counted))
}

/// Returns the nodes from which some of `nodes` are reached, and these themselves.
fn on_the_way(start: &Place, nodes: &HashSet<u64>) -> HashSet<u64> {
    let mut all: BTreeMap<u64, Arc<Node>> = BTreeMap::new();
    let mut pending = vec![start.clone()];
    while let Some(place) = pending.pop() {
        let Place::Node(node) = place else { continue };
        if let Entry::Vacant(new) = all.entry(node.id) {
            pending.extend(node.inputs.iter().cloned());
            let _ = new.insert(node);
        }
    }
    let mut found = HashSet::new();
    // Inputs are older than outputs.
    for (id, node) in &all {
        let leads = |place: &Place| matches!(place, Place::Node(node) if found.contains(&node.id));
        if nodes.contains(id) || node.inputs.iter().any(leads) {
            let _ = found.insert(*id);
        }
    }
    found
}

/// Fate of parameters after a backward pass.
#[derive(Clone, Copy, PartialEq)]
enum Parameters {
    /// Another forward pass may read their low copies.
    Stay,
    /// An update follows, after which their low copies are useless.
    Change,
}

/// Walks the tape backward. Ids grow with creation and inputs are older than outputs, so the highest pending id is
/// always ready. An unshared node is freed, with its saved tensors, once its gradients are computed. If there are nodes
/// `on_the_way`, gradients arrive only there.
fn walk_back(
    starts: impl IntoIterator<Item = (Place, Tensor)>,
    nodes: &HashSet<LeafId>,
    parameters: Parameters,
    on_the_way: Option<&HashSet<u64>>,
    mut counted: Option<Counted<'_>>,
) -> Result<Grads> {
    let is_wanted = |place: &Place| match (place, on_the_way) {
        (Place::None, _) => false,
        (Place::Leaf(_), on_the_way) => on_the_way.is_none(),
        (Place::Node(node), on_the_way) => on_the_way.is_none_or(|nodes| nodes.contains(&node.id)),
    };
    let mut grads = Grads::default();
    let mut pending: BTreeMap<u64, (Arc<Node>, Tensor)> = BTreeMap::new();
    let mut widened = Widened { nodes, dtypes: BTreeMap::new() };
    for (start, seed) in starts {
        arrive(&start, seed, &mut pending, &mut grads, &mut widened);
    }
    while let Some((_, (node, grad))) = pending.pop_last() {
        let low = grad.dtype() == DType::F16 || node.has_f16;
        let needs: Vec<bool> = node.inputs.iter().map(is_wanted).collect();
        // A widening that is read here is dropped with this copy rather than kept by the tape.
        let saved: Vec<Tensor> = node.saved.iter().map(Tensor::to_keep).collect();
        let narrows = !context::is_heard() && node.inputs.first().is_some_and(is_cast_read_once);
        let context = Backward { grad: &grad, saved: &saved, needs: &needs, narrows };
        let back = if needs.contains(&true) || on_the_way.is_none() {
            // Only listeners ask for the slot.
            let _node = context::is_heard().then(|| context::enter_node(node.slot));
            fitting(|| (node.backward)(&context)).map_err(|e| e.in_backward(node.op.map(Op::name)))?
        } else {
            vec![None; needs.len()]
        };
        debug_assert_eq!(back.len(), node.inputs.len(), "{:?} returns a gradient for each input", node.op);
        if let Some(passes) = node.passes.get() {
            grads.came_from(passes);
        }
        context::tell(|listener| {
            let has_finite_slopes = || {
                let least = match grad.dtype() {
                    DType::F16 => f16::MIN_POSITIVE.to_f64(),
                    _ => f64::from(f32::MIN_POSITIVE),
                };
                let least = Tensor::scalar(least, grad.dtype());
                let small = grad.sign().and_then(|sign| sign.mul(&least));
                let back = small.and_then(|grad| (node.backward)(&Backward { grad: &grad, ..context }));
                back.is_ok_and(|back| back.iter().flatten().all(Tensor::has_only_finite))
            };
            let has_finite_slopes = OnDemand(&has_finite_slopes);
            let (op, slot, node) = (node.op, node.slot, node.id);
            listener.gradient(&GradientCall { op, slot, grad: &grad, gradients: &back, node, has_finite_slopes });
        });
        for ((place, grad), need) in node.inputs.iter().zip(back).zip(needs) {
            if let Some(grad) = grad.filter(|_| need) {
                if let Place::Leaf(id) = place
                    && (low || grad.dtype() == DType::F16)
                {
                    grads.came_through_f16(*id);
                }
                arrive(place, grad, &mut pending, &mut grads, &mut widened);
            }
        }
        if let Some(copies) = &node.low_copies
            && parameters == Parameters::Change
            && Arc::strong_count(&node) == 1
        {
            copies.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
        if let Some(counted) = &mut counted {
            let inputs: Vec<LeafId> = node.inputs.iter().filter_map(Place::leaf).collect();
            // The hook may change parameters, in place if the tape no longer holds their values.
            drop((node, saved, grad));
            counted.after(&inputs, &mut grads, &mut widened)?;
        }
    }
    if let Some(mut counted) = counted {
        counted.end(&mut grads, &mut widened)?;
    }
    while let Some((&id, _)) = widened.dtypes.first_key_value() {
        widened.round(id, &mut grads);
    }
    Ok(grads)
}

/// Returns whether a place is the result of a cast that only one node reads, and whose gradient has not arrived.
fn is_cast_read_once(place: &Place) -> bool {
    matches!(place, Place::Node(node) if node.op == Some(Op::Cast) && Arc::strong_count(node) == 1)
}

/// Low leaves whose gradients are summed in f32.
struct Widened<'a> {
    /// Leaves that replace nodes, which are excluded.
    nodes: &'a HashSet<LeafId>,
    /// Dtype to which each sum is rounded.
    dtypes: BTreeMap<LeafId, DType>,
}

impl Widened<'_> {
    /// Rounds the sum of a leaf whose last part has arrived, if it is low.
    fn round(&mut self, id: LeafId, grads: &mut Grads) {
        let Some(dtype) = self.dtypes.remove(&id) else { return };
        let wide = grads.lying(id).expect("it was widened").clone();
        let sum = Tensor::from_array(wide.array().cast(dtype));
        context::tell(|listener| {
            listener.accumulate(&Accumulation { slot: None, leaf: Some(id), terms: &[&wide], sum: &sum });
        });
        grads.put(id, sum);
    }
}

/// Adds a gradient to those that have arrived at a place. For a low leaf that is read in many places (tied weights, a
/// recurrent cell), the sum is kept in f32 and rounded once at the end.
fn arrive(
    place: &Place,
    grad: Tensor,
    pending: &mut BTreeMap<u64, (Arc<Node>, Tensor)>,
    grads: &mut Grads,
    widened: &mut Widened<'_>,
) {
    match place {
        Place::None => {}
        Place::Leaf(id) => {
            let sum = match grads.lying(*id) {
                Some(before) if grad.dtype().is_low() && !widened.nodes.contains(id) => {
                    widened.dtypes.insert(*id, grad.dtype());
                    let wide = |x: &Tensor| Tensor::from_array(x.array().cast(DType::F32));
                    accumulate(place, wide(before), wide(&grad))
                }
                Some(before) => accumulate(place, before.clone(), grad),
                None => grad,
            };
            grads.put(*id, sum);
            grads.arrived(*id);
        }
        Place::Node(node) => {
            let sum = match pending.remove(&node.id) {
                Some((_, before)) => accumulate(place, before, grad),
                None => grad,
            };
            pending.insert(node.id, (node.clone(), sum));
        }
    }
}

/// Returns the sum of two gradients of one place, in their dtype. Unless somebody listens, it takes the memory of one that
/// has no other reader.
fn accumulate(place: &Place, a: Tensor, b: Tensor) -> Tensor {
    debug_assert_eq!((a.shape(), a.dtype()), (b.shape(), b.dtype()));
    debug_assert_ne!(a.dtype(), DType::Bool);
    if !context::is_heard() {
        return Tensor::from_array(a.into_array().added(b.into_array()));
    }
    let sum = Tensor::from_array(a.array().add(b.array()));
    context::tell(|listener| {
        let (slot, leaf) = match place {
            Place::Node(node) => (node.slot, None),
            place => (None, place.leaf()),
        };
        listener.accumulate(&Accumulation { slot, leaf, terms: &[&a, &b], sum: &sum });
    });
    sum
}

#[cfg(test)]
mod tests {
    use std::{
        cell::RefCell,
        rc::Rc,
        sync::{Mutex, Weak},
    };

    use super::*;
    use crate::{
        Param,
        tensor::{
            listener::{Observer, observed_by},
            record_segment,
        },
    };

    /// An op whose backward pass checks whether the node after it still exists.
    #[test]
    fn a_loss_that_is_given_up_frees_its_tape_on_the_way() {
        for given_up in [true, false] {
            let x = Tensor::full(&[3], 2.0, DType::F32).requires_grad();
            let later: Arc<Mutex<Weak<Node>>> = Arc::default();
            let seen = Arc::new(Mutex::new(None));
            let (looked, noted) = (later.clone(), seen.clone());
            let place = record_segment(
                vec![x.place().clone()],
                &[],
                false,
                Box::new(move |back| {
                    *noted.lock().unwrap() = Some(looked.lock().unwrap().upgrade().is_some());
                    Ok(vec![Some(back.grad.clone())])
                }),
            );
            let y = x.with_place(place).exp().unwrap();
            let Place::Node(node) = y.place() else { panic!("it is on the tape") };
            *later.lock().unwrap() = Arc::downgrade(node);
            let loss = y.sum_all().unwrap();
            drop(y);
            let grads = if given_up { loss.into_grads() } else { loss.backward() }.unwrap();
            assert_eq!(*seen.lock().unwrap(), Some(!given_up));
            assert_eq!(grads.of(&x).unwrap().to_f64(), [f64::from(2f32.exp()); 3]);
        }
    }

    /// The gradients that a listener receives, by node, and the number of those computed for inputs.
    #[derive(Default)]
    struct Received(RefCell<(HashMap<u64, Vec<f64>>, usize)>);

    impl Observer for Received {
        fn gradient(&self, call: &GradientCall<'_>) {
            let (by_node, computed) = &mut *self.0.borrow_mut();
            let _ = by_node.insert(call.node, call.grad.to_f64());
            *computed += call.gradients.iter().flatten().count();
        }
    }

    #[test]
    fn a_walk_to_nodes_computes_their_gradients_and_no_others() {
        let weight = Param::new(Tensor::full(&[2], 3.0, DType::F32));
        let below = weight.tensor().square().unwrap();
        let goal = below.exp().unwrap();
        let beside = weight.tensor().sqrt().unwrap();
        let y = goal.mul(&weight.tensor()).unwrap().mul(&beside).unwrap();
        let Place::Node(node) = goal.place() else { panic!("it is on the tape") };
        for seed in [None, Some(Tensor::full(&[2], 2.0, DType::F32))] {
            let received = Rc::new(Received::default());
            let from = if seed.is_some() { y.clone() } else { y.sum_all().unwrap() };
            observed_by(received.clone(), || from.backward_to(&HashSet::from([node.id]), seed.as_ref())).unwrap();
            let (by_node, computed) = received.0.take();
            let factor = if seed.is_some() { 2.0 } else { 1.0 };
            assert_eq!(by_node[&node.id], [factor * f64::from(3.0 * 3f32.sqrt()); 2]);
            // One for each op between: two products, and the sum.
            assert_eq!((computed, by_node.len()), if seed.is_some() { (2, 3) } else { (3, 4) });
        }
        let off_the_tape = Tensor::ones(&[], DType::F32).backward_to(&HashSet::new(), None);
        assert_eq!(off_the_tape.unwrap_err().kind(), crate::ErrorKind::Gradient);
    }
}
