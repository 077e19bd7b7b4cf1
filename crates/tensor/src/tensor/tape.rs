//! The tape: the records of op calls needed to send gradients back through them.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};

use super::{Array, LowCopies, Tensor, Value, context, pass::Pass};
use crate::{DType, Op, catalogue::Attributes, error::Result};

/// Runs `f` without recording a tape, so that evaluation uses no memory for gradients.
#[doc(alias = "inference_mode")]
pub fn no_grad<R>(f: impl FnOnce() -> R) -> R {
    context::with_recording(false, f)
}

/// Runs `f` with a tape, also within [`no_grad`].
pub fn enable_grad<R>(f: impl FnOnce() -> R) -> R {
    context::with_recording(true, f)
}

/// Returns a number that this process has not used for an identity.
pub fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Identity of a leaf of the tape: a parameter, or a tensor that requires a gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeafId(pub(crate) u64);

impl LeafId {
    pub(crate) fn fresh() -> Self {
        LeafId(next_id())
    }
}

/// Place of a tensor on the tape.
#[derive(Clone)]
#[allow(missing_debug_implementations, reason = "it refers to a whole tape")]
pub enum Place {
    /// A constant, off the tape.
    None,
    /// A leaf.
    Leaf(LeafId),
    /// A node.
    Node(Arc<Node>),
}

impl Place {
    /// Returns the leaf, if it is one.
    pub fn leaf(&self) -> Option<LeafId> {
        match self {
            Place::Leaf(id) => Some(*id),
            _ => None,
        }
    }
}

/// Arguments of the backward pass of an op.
#[derive(Debug)]
#[non_exhaustive]
pub struct Backward<'a> {
    /// Gradient of the output, with the output's dtype and shape.
    pub grad: &'a Tensor,
    /// Tensors saved by the forward pass.
    pub saved: &'a [Tensor],
    /// `true` for each input that needs a gradient.
    pub needs: &'a [bool],
    /// `true` when nothing else reads the gradient of the first input than a cast, to the dtype that the input was cast from.
    pub(crate) narrows: bool,
}

impl Backward<'_> {
    /// Returns a saved tensor for one use: elements that the tape left out are restored where it is read, and dropped with
    /// it, so that they take no memory beside the next gradient.
    pub(crate) fn restored(&self, i: usize) -> Tensor {
        self.saved[i].to_keep()
    }
}

/// Function that computes the gradients of the inputs, each with its input's dtype and shape, or `None` where none is
/// needed. It runs outside every region and off the tape.
pub(crate) type BackwardFn = Box<dyn Fn(&Backward<'_>) -> Result<Vec<Option<Tensor>>> + Send + Sync>;

/// An op, or its gradients, composed of other ops. Takes the inputs of the op.
#[derive(Clone)]
pub(crate) enum Written {
    /// The op itself.
    Op(Arc<WrittenOp>),
    /// The gradients of its inputs, given the gradient of its output and the inputs that need one.
    Gradients(Arc<WrittenGradients>),
    /// Not composable, with the reason.
    Not(&'static str),
}

/// See [`Written::Op`].
pub(crate) type WrittenOp = dyn Fn(&[Tensor]) -> Result<Tensor> + Send + Sync;

/// See [`Written::Gradients`].
pub(crate) type WrittenGradients = dyn Fn(&[Tensor], &Tensor, &[bool]) -> Result<Vec<Option<Tensor>>> + Send + Sync;

/// Result of a kernel for `dispatch`: the value, the tensors that the backward pass reads, and the backward pass.
pub(crate) struct Forward {
    pub value: Value,
    pub saved: Vec<Tensor>,
    pub backward: Option<BackwardFn>,
    /// Further results, without gradients.
    pub more: Vec<Tensor>,
    /// The same composed of other ops, for second derivatives, if the op has it.
    pub written: Option<Written>,
}

impl Forward {
    /// Creates a result without gradient: comparisons, indices.
    pub fn constant(value: Array) -> Self {
        Forward { value: value.into(), saved: Vec::new(), backward: None, more: Vec::new(), written: None }
    }

    /// Creates a differentiable result. `saved` is read by `backward`; keep as little as possible in as few bytes as
    /// possible.
    pub fn new(
        value: impl Into<Value>,
        saved: Vec<Tensor>,
        backward: impl Fn(&Backward<'_>) -> Result<Vec<Option<Tensor>>> + Send + Sync + 'static,
    ) -> Self {
        Forward { value: value.into(), saved, backward: Some(Box::new(backward)), more: Vec::new(), written: None }
    }

    /// Adds further results, such as indices.
    pub fn with_more(mut self, more: Vec<Tensor>) -> Self {
        self.more = more;
        self
    }

    /// Sets how the op, or its gradients, are composed of other ops.
    pub fn written(mut self, written: Written) -> Self {
        self.written = Some(written);
        self
    }
}

/// A recorded op call.
#[allow(missing_debug_implementations, reason = "it refers to a whole tape")]
pub struct Node {
    pub id: u64,
    /// `None` for a node that covers several ops.
    pub op: Option<Op>,
    /// Innermost slot in which it ran.
    pub slot: Option<usize>,
    /// `true` when it covers several ops, some of them in f16.
    pub has_f16: bool,
    pub inputs: Vec<Place>,
    pub saved: Vec<Tensor>,
    pub backward: BackwardFn,
    /// The call, if second derivatives are wanted.
    pub(crate) call: Option<Call>,
    /// Forward pass that computed the output of a network, if it recorded anything.
    pub passes: OnceLock<Vec<Arc<Pass>>>,
    /// Low copies, for the cast of a parameter.
    pub low_copies: Option<Arc<LowCopies>>,
}

/// Op call kept for second derivatives, whose gradient can be composed of ops.
pub(crate) struct Call {
    pub inputs: Vec<Tensor>,
    pub what: Arc<What>,
}

/// Subject of a call.
pub(crate) enum What {
    Op {
        op: Op,
        attributes: Attributes,
        written: Option<Written>,
    },
    /// The gradient of a call with respect to one of its inputs. Its own inputs are the gradient of the call's output,
    /// followed by the inputs of the call.
    Gradient {
        of: Arc<What>,
        input: usize,
    },
}

impl Drop for Node {
    /// Unlinks long chains one by one: the default would recurse once per op of the chain.
    fn drop(&mut self) {
        let mut pending: Vec<Place> = std::mem::take(&mut self.inputs);
        for tensor in self.saved.drain(..) {
            pending.extend(take_place(tensor));
        }
        while let Some(place) = pending.pop() {
            if let Place::Node(node) = place
                && let Some(mut node) = Arc::into_inner(node)
            {
                pending.append(&mut node.inputs);
                for tensor in node.saved.drain(..) {
                    pending.extend(take_place(tensor));
                }
            }
        }
    }
}

/// Returns the place of an unshared tensor.
fn take_place(tensor: Tensor) -> Option<Place> {
    Arc::into_inner(tensor.0).map(|inner| inner.place)
}

/// Records a result on the tape when one of its inputs is on it and recording is on.
pub(crate) fn record(op: Op, inputs: &[Tensor], forward: Forward, attributes: &dyn Fn() -> Attributes) -> Tensor {
    let Forward { value, saved, backward, written, more: _ } = forward;
    let tracked = context::is_recording() && inputs.iter().any(Tensor::is_tracked);
    let place = match backward {
        Some(backward) if tracked => Place::Node(Arc::new(Node {
            id: next_id(),
            op: Some(op),
            slot: context::slot(),
            has_f16: false,
            inputs: inputs.iter().map(|x| x.place().clone()).collect(),
            // Saved tensors are read as values; keeping their places would keep the whole tape alive.
            saved: saved.iter().map(|x| x.to_record(op, inputs, &value)).collect(),
            backward,
            call: context::keeps_calls().then(|| Call {
                inputs: inputs.iter().map(Tensor::to_keep).collect(),
                what: Arc::new(What::Op { op, attributes: attributes(), written }),
            }),
            passes: OnceLock::new(),
            low_copies: None,
        })),
        _ => Place::None,
    };
    Tensor::new(value, place, None)
}

/// Records the result of several ops, some of them possibly in f16, computed from tensors at these places. `saved` is
/// held by `backward` and counted as kept.
pub fn record_segment(inputs: Vec<Place>, saved: &[Tensor], has_f16: bool, backward: BackwardFn) -> Place {
    let saved = saved.iter().map(Tensor::to_keep).collect();
    let (id, op, slot, call, passes) = (next_id(), None, context::slot(), None, OnceLock::new());
    let low_copies = None;
    Place::Node(Arc::new(Node { id, op, slot, has_f16, inputs, saved, backward, call, passes, low_copies }))
}

/// Returns the place of `x.cast(to)`: its gradient is cast back.
pub(super) fn record_cast(x: &Tensor, to: DType) -> Place {
    let from = x.dtype();
    if !(context::is_recording() && x.is_tracked() && from.is_float() && to.is_float()) {
        return Place::None;
    }
    Place::Node(Arc::new(Node {
        id: next_id(),
        op: Some(Op::Cast),
        slot: context::slot(),
        has_f16: false,
        inputs: vec![x.place().clone()],
        saved: Vec::new(),
        backward: Box::new(move |b| Ok(vec![Some(b.grad.cast(from))])),
        call: context::keeps_calls().then(|| {
            let mut attributes = Attributes::default();
            attributes.set("dtype", &to);
            let what = What::Op { op: Op::Cast, attributes, written: None };
            Call { inputs: vec![x.to_keep()], what: Arc::new(what) }
        }),
        passes: OnceLock::new(),
        low_copies: x.0.casts.clone(),
    }))
}
