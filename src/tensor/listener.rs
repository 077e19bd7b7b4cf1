//! Listeners: they hear of what a thread runs, may read the tensors, and change nothing.

use std::{cell::RefCell, rc::Rc};

use super::{Tensor, context, with_recording};
use crate::{DType, Op, catalogue::Attributes, precision::Frame, tensor::recording::Again};

/// Hears of op calls, casts, cell calls and gradients of a thread, and may read the tensors; see [`listen`].
///
/// A method that is not written ignores its event. Ops that a listener runs are heard by nobody, are not on the tape, and run in
/// no region. Tensors are off the tape, so that keeping one keeps nothing else.
///
/// ```
/// use precast::{observe::{Listener, OpCall, listen}, prelude::*};
///
/// /// Names of the ops that gave f16.
/// #[derive(Default)]
/// struct Lowered(Vec<&'static str>);
///
/// impl Listener for Lowered {
///     fn op(&mut self, call: &OpCall<'_>) {
///         if call.output.dtype() == DType::F16 {
///             self.0.push(call.op.name());
///         }
///     }
/// }
///
/// let mut net = Child::new(Dense::new(2, 2, &mut Rng::seed(1)));
/// auto_mixed_precision(&mut net, Level::O3, DType::F16)?;
/// let (y, lowered) = listen(Lowered::default(), || net.call(&Tensor::ones(&[1, 2], DType::F32)));
/// assert_eq!((y?.dtype(), lowered.0), (DType::F16, vec!["Linear"]));
/// # Ok::<(), precast::Error>(())
/// ```
pub trait Listener {
    /// Hears of an op call whose kernel has run. In a backward pass these are the ops of which gradients are made.
    fn op(&mut self, call: &OpCall<'_>) {
        let _ = call;
    }

    /// Hears of a cast to another dtype.
    fn cast(&mut self, cast: &CastCall<'_>) {
        let _ = cast;
    }

    /// Hears that a cell is entered.
    fn enter(&mut self, cell: &CellEntry) {
        let _ = cell;
    }

    /// Hears that a cell is left: each [`enter`](Listener::enter) has one.
    fn leave(&mut self, cell: &CellCall<'_>) {
        let _ = cell;
    }

    /// Hears of the gradients of one op's inputs, in a backward pass.
    fn gradient(&mut self, call: &GradientCall<'_>) {
        let _ = call;
    }
}

/// An op call that a [`Listener`] hears of.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct OpCall<'a> {
    /// The op.
    pub op: Op,
    /// Its attributes: the arguments besides tensors.
    pub attributes: &'a Attributes,
    /// The inputs as the kernel read them, after casts.
    pub inputs: &'a [Tensor],
    /// The result, before it is cast back.
    pub output: &'a Tensor,
    /// Further results, such as indices or statistics.
    pub more: &'a [Tensor],
    /// Identity of the innermost cell slot; see [`Child::path_of`](crate::Child::path_of).
    pub slot: Option<usize>,
    /// Whether it ran in a backward pass.
    pub backward: bool,
    /// Whether a region that code entered decided on its precision, and not the slot of a cell.
    pub in_code: bool,
    /// The inputs as they were handed in.
    pub(crate) given: &'a [&'a Tensor],
    /// Of a custom op, which only code can run.
    pub(crate) again: Option<&'a Again>,
}

/// A cast that a [`Listener`] hears of.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CastCall<'a> {
    /// The role of the tensor that is cast.
    pub of: CastRole,
    /// The tensor before.
    pub input: &'a Tensor,
    /// The tensor after.
    pub output: &'a Tensor,
    /// Whether numbers were computed: not for a low copy of a parameter that was there, and not yet for a widening, whose
    /// numbers are computed when somebody first reads them.
    pub computed: bool,
    /// Identity of the innermost cell slot.
    pub slot: Option<usize>,
    /// Whether it was done in a backward pass.
    pub backward: bool,
}

/// The role of a tensor that is cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CastRole {
    /// A parameter, or a tensor that requires a gradient. The number distinguishes one from another.
    Leaf(u64),
    /// An input of a cell, at its border.
    IntoCell,
    /// An output of a cell, at its border.
    OutOfCell,
    /// An input of this op.
    IntoOp(Op),
    /// A gradient on its way back through a cast.
    Gradient,
    /// Anything else, such as a cast in code.
    Other,
}

/// A cell that is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CellEntry {
    /// Identity of its slot; see [`Child::path_of`](crate::Child::path_of).
    pub slot: usize,
    /// The name of its type.
    pub kind: &'static str,
}

/// A cell that has run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CellCall<'a> {
    /// Identity of its slot; see [`Child::path_of`](crate::Child::path_of).
    pub slot: usize,
    /// The name of its type.
    pub kind: &'static str,
    /// Whether it has parameters, or cells inside it have.
    pub has_params: bool,
    /// The tensors that went in, before its adapter cast them.
    pub inputs: &'a [Tensor],
    /// The tensors that came out, before its adapter casts them; `None` after an error.
    pub outputs: Option<&'a [Tensor]>,
}

/// Gradients that one op's backward pass has computed.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct GradientCall<'a> {
    /// The op; `None` for a recomputed cell.
    pub op: Option<Op>,
    /// Identity of the innermost cell slot of the forward pass.
    pub slot: Option<usize>,
    /// The gradient of the op's output.
    pub grad: &'a Tensor,
    /// The gradients of its inputs, where one is wanted.
    pub gradients: &'a [Option<Tensor>],
}

/// Runs `f` while `listener` hears of what this thread runs, and returns both.
///
/// Listeners nest: each hears of everything, the outermost first.
pub fn listen<L: Listener + 'static, R>(listener: L, f: impl FnOnce() -> R) -> (R, L) {
    let public = Rc::new(Public(RefCell::new(listener)));
    let result = heard_by(public.clone(), f);
    let Ok(Public(listener)) = Rc::try_unwrap(public).map_err(|_| ()) else { unreachable!("its guard is gone") };
    (result, listener.into_inner())
}

/// Runs `f` while a listener of this library hears.
pub(crate) fn heard_by<R>(listener: Rc<dyn Hears>, f: impl FnOnce() -> R) -> R {
    let _scope = context::listen(listener);
    f()
}

/// A [`Listener`] of this library, which hears of more and sees tensors as they are, on the tape.
pub(crate) trait Hears {
    fn op(&self, _call: &OpCall<'_>) {}
    fn cast(&self, _cast: &CastCall<'_>) {}
    /// Hears that the numbers of a widening are computed, of which it has heard as a cast.
    fn widen(&self, _from: &Tensor, _to: DType) {}
    fn enter(&self, _cell: &CellEntry) {}
    fn leave(&self, _cell: &CellCall<'_>) {}
    fn gradient(&self, _call: &GradientCall<'_>) {}
}

/// A user's listener.
struct Public<L>(RefCell<L>);

impl<L: Listener> Public<L> {
    /// Lets it hear, in no region and off the tape.
    fn tell(&self, f: impl FnOnce(&mut L)) {
        let _off = context::enter(Frame::Off);
        with_recording(false, || f(&mut self.0.borrow_mut()));
    }
}

/// Copies that hold nothing on the tape. Reading one computes no widening that an op would have computed.
fn apart(tensors: &[Tensor]) -> Vec<Tensor> {
    tensors.iter().map(Tensor::to_keep).collect()
}

impl<L: Listener> Hears for Public<L> {
    fn op(&self, call: &OpCall<'_>) {
        let (inputs, output, more) = (apart(call.inputs), call.output.to_keep(), apart(call.more));
        self.tell(|listener| listener.op(&OpCall { inputs: &inputs, output: &output, more: &more, ..*call }));
    }

    fn cast(&self, cast: &CastCall<'_>) {
        let (input, output) = (cast.input.to_keep(), cast.output.to_keep());
        self.tell(|listener| listener.cast(&CastCall { input: &input, output: &output, ..*cast }));
    }

    fn enter(&self, cell: &CellEntry) {
        self.tell(|listener| listener.enter(cell));
    }

    fn leave(&self, cell: &CellCall<'_>) {
        let (inputs, outputs) = (apart(cell.inputs), cell.outputs.map(apart));
        self.tell(|listener| listener.leave(&CellCall { inputs: &inputs, outputs: outputs.as_deref(), ..*cell }));
    }

    fn gradient(&self, call: &GradientCall<'_>) {
        let gradients: Vec<Option<Tensor>> = call.gradients.iter().map(|x| x.as_ref().map(Tensor::to_keep)).collect();
        let grad = call.grad.to_keep();
        self.tell(|listener| listener.gradient(&GradientCall { grad: &grad, gradients: &gradients, ..*call }));
    }
}
