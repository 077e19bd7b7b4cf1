//! The tape: what must be remembered of an op call to send gradients back through it.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};

use super::{Array, LowCopies, Tensor, context, pass::Pass};
use crate::{DType, Op, catalogue::Attributes, error::Result};

/// Runs `f` without recording a tape: evaluation costs no memory for gradients.
pub fn no_grad<R>(f: impl FnOnce() -> R) -> R {
    context::with_recording(false, f)
}

pub(crate) fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Names a leaf of the tape: a parameter, or a tensor for which `requires_grad` was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LeafId(pub u64);

impl LeafId {
    pub fn fresh() -> Self {
        LeafId(next_id())
    }
}

/// Where a tensor stands on the tape.
#[derive(Clone)]
pub(crate) enum Place {
    /// Not at all: a constant.
    None,
    Leaf(LeafId),
    Node(Arc<Node>),
}

impl Place {
    /// The leaf, if it is one.
    pub fn leaf(&self) -> Option<LeafId> {
        match self {
            Place::Leaf(id) => Some(*id),
            _ => None,
        }
    }
}

/// What the backward pass of an op is given.
#[derive(Debug)]
#[non_exhaustive]
pub struct Backward<'a> {
    /// Gradient of the output, with the output's dtype and shape.
    pub grad: &'a Tensor,
    /// What the forward pass saved.
    pub saved: &'a [Tensor],
    /// Which inputs want a gradient.
    pub needs: &'a [bool],
}

/// Computes the gradients of the inputs, each with its input's dtype and shape, or `None` where none is wanted.
/// It runs outside every region and off the tape.
pub(crate) type BackwardFn = Box<dyn Fn(&Backward<'_>) -> Result<Vec<Option<Tensor>>> + Send + Sync>;

/// An op, or its gradients, written with other ops. Its inputs are those of the op.
#[derive(Clone)]
pub(crate) enum Written {
    /// The op itself.
    Op(Arc<WrittenOp>),
    /// The gradients of its inputs, given the gradient of its output and which inputs want one.
    Gradients(Arc<WrittenGradients>),
    /// Not at all; why.
    Not(&'static str),
}

/// See [`Written::Op`].
pub(crate) type WrittenOp = dyn Fn(&[Tensor]) -> Result<Tensor> + Send + Sync;

/// See [`Written::Gradients`].
pub(crate) type WrittenGradients = dyn Fn(&[Tensor], &Tensor, &[bool]) -> Result<Vec<Option<Tensor>>> + Send + Sync;

/// What a kernel hands to `dispatch`: the value, what the backward pass reads, and the backward pass.
pub(crate) struct Forward {
    pub value: Array,
    pub saved: Vec<Tensor>,
    pub backward: Option<BackwardFn>,
    /// Further results, which have no gradient.
    pub more: Vec<Tensor>,
    /// Where the op knows it: the same with other ops, for second derivatives.
    pub written: Option<Written>,
}

impl Forward {
    /// A result without gradient: comparisons, indices.
    pub fn constant(value: Array) -> Self {
        Forward { value, saved: Vec::new(), backward: None, more: Vec::new(), written: None }
    }

    /// A differentiable result. `saved` is what `backward` will read; keep as little as possible in as few bytes as possible.
    pub fn new(
        value: Array,
        saved: Vec<Tensor>,
        backward: impl Fn(&Backward<'_>) -> Result<Vec<Option<Tensor>>> + Send + Sync + 'static,
    ) -> Self {
        Forward { value, saved, backward: Some(Box::new(backward)), more: Vec::new(), written: None }
    }

    /// Adds further results, such as indices.
    pub fn with_more(mut self, more: Vec<Tensor>) -> Self {
        self.more = more;
        self
    }

    /// Says how the op, or its gradients, are written with other ops.
    pub fn written(mut self, written: Written) -> Self {
        self.written = Some(written);
        self
    }
}

/// One recorded op call.
pub(crate) struct Node {
    pub id: u64,
    /// `None` for what stands for several ops.
    pub op: Option<Op>,
    /// The innermost slot that was run.
    pub slot: Option<usize>,
    /// Whether it stands for ops of which some are in f16.
    pub has_f16: bool,
    pub inputs: Vec<Place>,
    pub saved: Vec<Tensor>,
    pub backward: BackwardFn,
    /// The call, where second derivatives are wanted.
    pub call: Option<Call>,
    /// Of the output of a network: the forward pass that made it, where that has something to say.
    pub passes: OnceLock<Vec<Arc<Pass>>>,
    /// Of the cast of a parameter: its low copies.
    pub low_copies: Option<Arc<LowCopies>>,
}

/// An op call as it is kept for second derivatives: its gradient can be written with ops.
pub(crate) struct Call {
    pub inputs: Vec<Tensor>,
    pub what: Arc<What>,
}

/// What is called.
pub(crate) enum What {
    Op {
        op: Op,
        attributes: Attributes,
        written: Option<Written>,
    },
    /// The gradient of a call with respect to one of its inputs. Its own inputs are the gradient of the call's
    /// output, then the inputs of the call.
    Gradient {
        of: Arc<What>,
        input: usize,
    },
}

impl Drop for Node {
    /// Unlinks long chains one by one: the default would recurse once for each op of the chain.
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

/// The place of a tensor that nobody else holds.
fn take_place(tensor: Tensor) -> Option<Place> {
    Arc::into_inner(tensor.0).map(|inner| inner.place)
}

/// Puts a result on the tape when one of its inputs is on it and recording is on.
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
            // What is saved is read as a value; holding its place would keep the whole tape alive.
            saved: saved.iter().map(Tensor::to_keep).collect(),
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
    Tensor::placed(value, place)
}

/// Puts on the tape what several ops, some of them in f16 or none, made of tensors at these places. `saved` is what
/// `backward` holds, to be counted as kept.
pub(crate) fn record_segment(inputs: Vec<Place>, saved: &[Tensor], has_f16: bool, backward: BackwardFn) -> Place {
    let saved = saved.iter().map(Tensor::to_keep).collect();
    let (id, op, slot, call, passes) = (next_id(), None, context::slot(), None, OnceLock::new());
    let low_copies = None;
    Place::Node(Arc::new(Node { id, op, slot, has_f16, inputs, saved, backward, call, passes, low_copies }))
}

/// The place of `x.cast(to)`: its gradient is cast back.
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
