//! Listeners, which observe what a thread runs. They may read tensors and change nothing.

use std::{cell::RefCell, fmt, rc::Rc, sync::Arc};

use super::{LeafId, Param, Tensor, context, with_recording};
use crate::{
    DType, Op,
    catalogue::Attributes,
    precision::Frame,
    tensor::recording::{Again, Repeatable},
};

/// Observer of the op calls, casts, cell calls and gradients of a thread. It may read the tensors; see [`listen`].
///
/// The default methods ignore their events. Ops that a listener runs are hidden from all listeners, off the tape and
/// outside every region. Its tensors are off the tape, so keeping one keeps nothing else alive.
///
/// ```
/// # use precast_tensor as precast;
/// use precast::{DType, Tensor, observe::{Listener, OpCall, listen}};
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
/// let x = Tensor::ones(&[1, 2], DType::F16);
/// let (y, lowered) = listen(Lowered::default(), || x.relu()?.cast(DType::F32).relu());
/// y?;
/// assert_eq!(lowered.0, ["Relu"]);
/// # Ok::<(), precast::Error>(())
/// ```
pub trait Listener {
    /// Called after the kernel of an op has run. In a backward pass, these are the ops that compute gradients.
    fn op(&mut self, call: &OpCall<'_>) {
        let _ = call;
    }

    /// Called for a cast to another dtype.
    fn cast(&mut self, cast: &CastCall<'_>) {
        let _ = cast;
    }

    /// Called when a cell is entered.
    fn enter(&mut self, cell: &CellEntry) {
        let _ = cell;
    }

    /// Called when a cell is left, once for each [`enter`](Listener::enter).
    fn leave(&mut self, cell: &CellCall<'_>) {
        let _ = cell;
    }

    /// Called with the gradients of one op's inputs, in a backward pass.
    fn gradient(&mut self, call: &GradientCall<'_>) {
        let _ = call;
    }

    /// Called when gradients of one place are added, or their sum is rounded, in a backward pass.
    fn accumulate(&mut self, sum: &Accumulation<'_>) {
        let _ = sum;
    }

    /// Called when the gradient of a parameter is divided by the loss scale.
    fn unscale(&mut self, step: &ParamStep<'_>) {
        let _ = step;
    }

    /// Called after an optimizer has updated a parameter.
    fn update(&mut self, step: &ParamStep<'_>) {
        let _ = step;
    }
}

/// An op call, as passed to a [`Listener`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct OpCall<'a> {
    /// The op.
    pub op: Op,
    /// Attributes: the arguments other than tensors.
    pub attributes: &'a Attributes,
    /// Inputs as read by the kernel, after casts.
    pub inputs: &'a [Tensor],
    /// Result before it is cast back.
    pub output: &'a Tensor,
    /// Further results, such as indices or statistics.
    pub more: &'a [Tensor],
    /// Identity of the innermost cell slot, in a backward pass that of the forward op; see
    /// `Child::path_of`.
    pub slot: Option<usize>,
    /// `true` when it ran in a backward pass.
    pub backward: bool,
    /// `true` when a region entered by code decided its precision, rather than the slot of a cell.
    pub in_code: bool,
    /// Inputs before casts.
    pub given: &'a [&'a Tensor],
    /// Closure that repeats a custom op, which only code can run.
    pub again: Option<&'a Again>,
    /// Makes the attributes and the replay of the call, which a [light](Observer::is_light) observer does not receive.
    pub description: OnDemand<'a, (Attributes, Option<Again>)>,
}

impl OpCall<'_> {
    /// Returns the call without its tensors.
    pub fn repeatable(&self) -> Repeatable {
        let (attributes, again) = (self.description.0)();
        Repeatable { op: self.op, attributes, again }
    }
}

/// Closure that computes what few listeners ask for.
pub struct OnDemand<'a, T>(pub &'a dyn Fn() -> T);

impl<T> Copy for OnDemand<'_, T> {}

impl<T> Clone for OnDemand<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> fmt::Debug for OnDemand<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnDemand")
    }
}

/// A cast, as passed to a [`Listener`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CastCall<'a> {
    /// Role of the cast tensor.
    pub of: CastRole,
    /// Tensor before the cast.
    pub input: &'a Tensor,
    /// Tensor after the cast.
    pub output: &'a Tensor,
    /// `true` when numbers were computed. `false` for a cached low copy of a parameter, and for a widening, whose
    /// numbers are computed on first read.
    pub computed: bool,
    /// Identity of the innermost cell slot, in a backward pass that of the forward cast.
    pub slot: Option<usize>,
    /// `true` when it ran in a backward pass.
    pub backward: bool,
}

/// Role of a cast tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CastRole {
    /// A parameter, or a tensor that requires a gradient.
    Leaf(LeafId),
    /// An input of a cell, at its boundary.
    IntoCell,
    /// An output of a cell, at its boundary.
    OutOfCell,
    /// An input of this op.
    IntoOp(Op),
    /// A gradient on its way back through a cast.
    Gradient,
    /// Anything else, such as a cast in code.
    Other,
}

impl CastRole {
    /// Returns the parameter, or the tensor that requires a gradient.
    pub fn leaf(self) -> Option<LeafId> {
        match self {
            CastRole::Leaf(leaf) => Some(leaf),
            _ => None,
        }
    }
}

/// Entry into a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CellEntry {
    /// Identity of its slot; see `Child::path_of`.
    pub slot: usize,
    /// Name of its type.
    pub kind: &'static str,
}

impl CellEntry {
    /// Describes the entry into the cell of a slot.
    pub fn new(slot: usize, kind: &'static str) -> Self {
        CellEntry { slot, kind }
    }
}

/// A completed cell call.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CellCall<'a> {
    /// Identity of its slot; see `Child::path_of`.
    pub slot: usize,
    /// Name of its type.
    pub kind: &'static str,
    /// `true` when the cell has parameters, or cells inside it have.
    pub has_params: OnDemand<'a, bool>,
    /// Input tensors, before its adapter casts them.
    pub inputs: &'a [Tensor],
    /// Output tensors, before its adapter casts them; `None` after an error.
    pub outputs: Option<&'a [Tensor]>,
}

impl<'a> CellCall<'a> {
    /// Describes a call of the cell that was entered.
    pub fn new(
        entry: CellEntry,
        has_params: &'a dyn Fn() -> bool,
        inputs: &'a [Tensor],
        outputs: Option<&'a [Tensor]>,
    ) -> Self {
        let CellEntry { slot, kind } = entry;
        CellCall { slot, kind, has_params: OnDemand(has_params), inputs, outputs }
    }
}

impl CellCall<'_> {
    /// Returns whether it has parameters, or cells inside it have. This visits the cells inside it, up to the first that
    /// has.
    pub fn has_params(&self) -> bool {
        (self.has_params.0)()
    }
}

/// Gradients computed by the backward pass of one op.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct GradientCall<'a> {
    /// The op; `None` for a recomputed cell.
    pub op: Option<Op>,
    /// Identity of the innermost cell slot of the forward pass.
    pub slot: Option<usize>,
    /// Gradient of the op's output.
    pub grad: &'a Tensor,
    /// Gradients of its inputs, where wanted.
    pub gradients: &'a [Option<Tensor>],
    /// Number of the op's [node](Tensor::node) on the tape.
    pub node: u64,
    /// Returns whether the gradients are finite for a gradient of the smallest normal numbers: if so, no slope is infinite.
    pub has_finite_slopes: OnDemand<'a, bool>,
}

impl GradientCall<'_> {
    /// Returns whether the gradients are finite for a gradient of the smallest normal numbers: if so, no slope is infinite.
    pub fn has_finite_slopes(&self) -> bool {
        (self.has_finite_slopes.0)()
    }
}

/// The sum of gradients that arrive at one place, or its rounding if it was kept in f32.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Accumulation<'a> {
    /// Identity of the slot of the op whose result they are gradients of.
    pub slot: Option<usize>,
    /// The leaf they are gradients of, if it is one.
    pub leaf: Option<LeafId>,
    /// Two gradients, or their sum in f32 where it is rounded.
    pub terms: &'a [&'a Tensor],
    /// Their sum.
    pub sum: &'a Tensor,
}

/// The codes of an operand of a product, as they were made of its numbers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Codes {
    /// Identity of the slot of the op.
    pub slot: Option<usize>,
    /// The operand: `input`, `weight` or `gradient`.
    pub operand: &'static str,
    /// Format of the codes.
    pub format: &'static str,
    /// Count of the numbers other than 0.
    pub numbers: u64,
    /// Count of those that became 0.
    pub zero: u64,
    /// Count of those beyond the largest code, which became that one.
    pub saturated: u64,
}

/// A step that changes the gradient or the value of one parameter.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ParamStep<'a> {
    /// The [identity](Param::id) of the parameter.
    pub leaf: LeafId,
    /// Gradient or value before the step.
    pub before: &'a Tensor,
    /// Gradient or value after the step.
    pub after: &'a Tensor,
    /// Gradient that led to an update.
    pub gradient: Option<&'a Tensor>,
    /// Number of elements that would have become infinite and kept their value.
    pub refused: u64,
}

impl<'a> ParamStep<'a> {
    /// Describes the update of a parameter.
    pub fn update(param: &Param, [before, after]: [&'a Tensor; 2], gradient: Option<&'a Tensor>, refused: u64) -> Self {
        ParamStep { leaf: param.id(), before, after, gradient, refused }
    }
}

/// Runs `f` while `listener` observes this thread, and returns both.
///
/// Calls can be nested: each listener receives every event, the outermost first.
pub fn listen<L: Listener + 'static, R>(listener: L, f: impl FnOnce() -> R) -> (R, L) {
    let public = Rc::new(Public(RefCell::new(listener)));
    let result = observed_by(public.clone(), f);
    let Ok(Public(listener)) = Rc::try_unwrap(public).map_err(|_| ()) else { unreachable!("its guard is gone") };
    (result, listener.into_inner())
}

/// Runs `f` while an observer observes this thread.
pub fn observed_by<R>(listener: Rc<dyn Observer>, f: impl FnOnce() -> R) -> R {
    let _scope = context::listen(listener);
    f()
}

/// Maker of the observers of other threads.
pub type Elsewhere = Arc<dyn Fn() -> Rc<dyn Observer> + Send + Sync>;

/// Observer of the tensors of a thread as they are, on the tape, for diagnoses: a [`Listener`] of more events, at the price
/// of some care. A tensor that it keeps keeps the tape alive, unless it keeps [`Tensor::to_keep`]. Ops that it runs are
/// hidden from all listeners, but neither off the tape nor outside the region in force.
pub trait Observer {
    /// Returns whether it does without attributes, calls of cells, and unscaled or updated tensors, which take time to make.
    fn is_light(&self) -> bool {
        false
    }

    /// Returns a maker of observers for threads into which the precision is [carried](crate::precision::carry).
    fn elsewhere(&self) -> Option<Elsewhere> {
        None
    }

    /// Called as [`Listener::op`].
    fn op(&self, _call: &OpCall<'_>) {}

    /// Called as [`Listener::cast`].
    fn cast(&self, _cast: &CastCall<'_>) {}

    /// Called when the numbers of a widening are computed, after its cast was reported.
    fn widen(&self, _from: &Tensor, _to: DType) {}

    /// Called as [`Listener::enter`].
    fn enter(&self, _cell: &CellEntry) {}

    /// Called as [`Listener::leave`].
    fn leave(&self, _cell: &CellCall<'_>) {}

    /// Called as [`Listener::gradient`].
    fn gradient(&self, _call: &GradientCall<'_>) {}

    /// Called as [`Listener::accumulate`].
    fn accumulate(&self, _sum: &Accumulation<'_>) {}

    /// Called as [`Listener::unscale`].
    fn unscale(&self, _step: &ParamStep<'_>) {}

    /// Called as [`Listener::update`].
    fn update(&self, _step: &ParamStep<'_>) {}

    /// Called for each parameter with the largest magnitude of its gradient before and after unscaling.
    fn unscaled(&self, _leaf: LeafId, _before: f64, _after: f64) {}

    /// Returns whether it counts the codes of quantized operands, which takes a pass over their numbers.
    fn counts_codes(&self) -> bool {
        false
    }

    /// Called after an operand was quantized, if it [counts codes](Observer::counts_codes).
    fn codes(&self, _codes: &Codes) {}

    /// Called after a parameter was updated, with the number of elements that would have become infinite.
    fn updated(&self, _param: &Param, _refused: u64) {}
}

/// A listener of the user.
struct Public<L>(RefCell<L>);

impl<L: Listener> Public<L> {
    /// Notifies it, outside every region and off the tape.
    fn tell(&self, f: impl FnOnce(&mut L)) {
        let _off = context::enter(Frame::Off);
        with_recording(false, || f(&mut self.0.borrow_mut()));
    }
}

/// Returns copies that hold nothing on the tape. Reading one does not compute a widening in place of an op.
fn apart(tensors: &[Tensor]) -> Vec<Tensor> {
    tensors.iter().map(Tensor::to_keep).collect()
}

impl<L: Listener> Observer for Public<L> {
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

    fn accumulate(&self, sum: &Accumulation<'_>) {
        let terms: Vec<Tensor> = sum.terms.iter().map(|x| x.to_keep()).collect();
        let (terms, total) = (terms.iter().collect::<Vec<_>>(), sum.sum.to_keep());
        self.tell(|listener| listener.accumulate(&Accumulation { terms: &terms, sum: &total, ..*sum }));
    }

    fn unscale(&self, step: &ParamStep<'_>) {
        self.tell(|listener| listener.unscale(step));
    }

    fn update(&self, step: &ParamStep<'_>) {
        self.tell(|listener| listener.update(step));
    }
}
