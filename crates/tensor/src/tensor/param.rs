//! Parameters: named places for tensors, shared by handle.

mod frozen;

use std::{
    fmt, mem,
    sync::{
        Arc, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicBool, AtomicU64},
    },
};

use super::{Array, Beyond, LeafId, context, pass, recording};
use crate::{
    DType, Tensor,
    error::{Error, Result},
};

/// Place for a tensor that is trained, or for a buffer that is not. A handle: clones share the place, so tied weights
/// are one `Param` under two paths. The value is f32 unless created otherwise; policies cast copies, never the value.
///
/// Low copies are kept with the value and dropped when it changes, so between two updates a parameter is cast only a few
/// times per dtype, however often it is used. A training step that reads a large one once keeps no copy, and casts it
/// again in the backward pass.
///
/// `decorate` stores the value itself in f16 or bf16. The parameter may then have a
/// [master](Param::master) in f32: optimizers update the master, and the value is always the master rounded once.
#[derive(Clone)]
pub struct Param(Arc<Inner>);

struct Inner {
    id: LeafId,
    is_buffer: bool,
    frozen: AtomicBool,
    /// Time at which the last optimizer that has it was made; 0 if none has.
    in_optimizer: AtomicU64,
    state: RwLock<State>,
}

struct State {
    /// Value, on the tape when trained. Its low copies live as long as it does.
    value: Tensor,
    lowered: Option<Lowered>,
    /// Dtype in weight files. Default: that of the master, or else of the value.
    saved_as: Option<DType>,
    /// `true` when a policy requires a loss scale for its gradients, which pass through f16.
    requires_scaler: bool,
    /// Values stored by forward passes, in order from the first whose step may still be abandoned.
    changes: Vec<Change>,
}

/// A value stored by a forward pass.
struct Change {
    /// Number of the pass; `None` once it is settled.
    pass: Option<u64>,
    /// Previous number at full precision.
    before: Array,
    to: To,
}

/// New value stored by a forward pass.
#[derive(Clone)]
enum To {
    /// Another value.
    Value(Array),
    /// `keep * value + take * batch`.
    Blend { keep: f64, take: f64, batch: Vec<f64> },
}

/// Record of a parameter that is stored low.
#[derive(Clone)]
struct Lowered {
    /// Dtype in which it was created.
    from: DType,
    /// Master in f32; the value is the master, rounded.
    master: Option<Array>,
    rounding: Rounding,
}

/// Rounding of an update into a value that is stored low.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rounding {
    /// To nearest even, from the master if there is one.
    Nearest,
    /// Stochastic, from a stream with this seed. bf16 only.
    Stochastic {
        /// Seed of the stream.
        seed: u64,
    },
    /// To nearest even, with the rounding error kept in bf16 by the optimizer. bf16 only.
    Kahan,
}

impl Param {
    /// Creates a parameter that is trained.
    pub fn new(value: Tensor) -> Self {
        Param::make(value, false)
    }

    /// Creates a buffer: saved with the weights, never trained, without a gradient.
    pub fn buffer(value: Tensor) -> Self {
        Param::make(value, true)
    }

    fn make(value: Tensor, is_buffer: bool) -> Self {
        let id = LeafId::fresh();
        let value = Tensor::parameter(value.array().contiguous(), (!is_buffer).then_some(id));
        let state =
            RwLock::new(State { value, lowered: None, saved_as: None, requires_scaler: false, changes: vec![] });
        let (frozen, in_optimizer) = (AtomicBool::new(false), AtomicU64::new(0));
        let param = Param(Arc::new(Inner { id, is_buffer, frozen, in_optimizer, state }));
        param.note_late();
        param
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.0.state.read().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.0.state.write().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Returns a value as a tensor of this parameter.
    fn placed(&self, value: Array) -> Tensor {
        Tensor::parameter(value, self.is_trained().then_some(self.0.id))
    }

    /// Returns the value as read by `forward`: on the tape when the parameter is trained.
    pub fn tensor(&self) -> Tensor {
        self.read().value.clone()
    }

    /// Returns the value, off the tape.
    pub fn value(&self) -> Tensor {
        self.tensor().detach()
    }

    /// Returns the f32 master of a value that `decorate` stores low, if it keeps one.
    /// Optimizers update the master, and undoing restores it. The value is always the master rounded once.
    pub fn master(&self) -> Option<Tensor> {
        self.read().master().cloned().map(Tensor::from_array)
    }

    /// Returns the number at full precision: the master if there is one, else the value. [`set`](Param::set) accepts
    /// it.
    pub fn full(&self) -> Tensor {
        self.master().unwrap_or_else(|| self.value())
    }

    /// Replaces the value and drops the low copies of the old one.
    ///
    /// A parameter with a [master](Param::master) also accepts f32, as its new master; the value is rounded from it. If
    /// it receives its own dtype, the master becomes the exact widening.
    ///
    /// A value set by a cell during a forward pass is part of the step: it takes effect at once, and is reverted if the
    /// step is skipped. In a forward pass, a non-finite number does not replace a finite one, and the step is not
    /// taken.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) or [`ErrorKind::DType`](crate::ErrorKind::DType) when the new
    /// value differs in shape or dtype,
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when a finite number of a new master would become infinite in the
    /// value. Nothing is changed then.
    pub fn set(&self, value: &Tensor) -> Result<()> {
        self.check(value)?;
        self.change(To::Value(value.array().contiguous()))
    }

    /// Changes the value as part of the current forward pass, or permanently outside one.
    fn change(&self, to: To) -> Result<()> {
        let _hidden = context::enter_op();
        let mut state = self.write();
        let before = state.full();
        let new = to.of(&before);
        let made = Tensor::from_array(new.cast(state.value.dtype()));
        if !made.has_only_finite() && became_infinite(&before, made.array()) {
            drop(state);
            // Outside a pass a value is set unchecked.
            match (pass::note_refused(self), &to) {
                (true, _) => return Ok(()),
                (false, To::Value(_)) => state = self.write(),
                (false, To::Blend { .. }) => return Err(Error::value("running statistics would not be finite")),
            }
        }
        match pass::note_change(self) {
            Some(pass) => state.changes.push(Change { pass: Some(pass), before, to }),
            None if state.changes.is_empty() => {}
            None => match to {
                To::Value(_) => state.changes.clear(),
                blend => state.changes.push(Change { pass: None, before, to: blend }),
            },
        }
        self.store(&mut state, &new);
        Ok(())
    }

    /// Checks that [`set`](Param::set) would accept a value.
    pub(crate) fn check(&self, value: &Tensor) -> Result<()> {
        self.read().check(value)
    }

    /// Stores a number in the value, and in the master if there is one.
    fn store(&self, state: &mut State, full: &Array) {
        state.value = self.placed(full.cast(state.value.dtype()));
        if let Some(Lowered { master: Some(master), .. }) = &mut state.lowered {
            *master = full.cast(DType::F32);
        }
    }

    /// Keeps the values stored by a pass.
    pub(super) fn settle(&self, pass: u64) {
        let mut state = self.write();
        state.changes.iter_mut().filter(|change| change.pass == Some(pass)).for_each(|change| change.pass = None);
        state.forget_settled();
    }

    /// Reverts the values stored by a pass as if it had never run. Values that other passes stored since are stored
    /// again.
    pub(super) fn take_back(&self, pass: u64) {
        let mut state = self.write();
        let Some(first) = state.changes.iter().position(|change| change.pass == Some(pass)) else { return };
        let later = state.changes.split_off(first);
        let mut value = later[0].before.clone();
        for change in later.into_iter().filter(|change| change.pass != Some(pass)) {
            let after = change.to.of(&value);
            state.changes.push(Change { before: std::mem::replace(&mut value, after), ..change });
        }
        self.store(&mut state, &value);
        state.forget_settled();
    }

    /// Lets an optimizer write the value, and the master if there is one, which it keeps in sync. Neither changes its
    /// dtype or shape. Low copies of the old value are dropped.
    pub(crate) fn rewrite<R>(&self, change: impl FnOnce(&mut Array, Option<&mut Array>) -> R) -> R {
        /// The value, taken out so that unshared memory is changed in place, and put back on drop, also by a panic.
        struct TakenOut<'a>(&'a Param, RwLockWriteGuard<'a, State>, Array);
        impl Drop for TakenOut<'_> {
            fn drop(&mut self) {
                self.1.value = self.0.placed(mem::replace(&mut self.2, Array::empty()));
            }
        }
        let mut state = self.write();
        state.changes.clear();
        let value = mem::replace(&mut state.value, self.placed(Array::empty())).into_array();
        let TakenOut(_, state, value) = &mut TakenOut(self, state, value);
        change(value, state.lowered.as_mut().and_then(|lowered| lowered.master.as_mut()))
    }

    /// Returns the rounding of updates into the value.
    pub(crate) fn rounding(&self) -> Rounding {
        self.read().lowered.as_ref().map_or(Rounding::Nearest, |lowered| lowered.rounding)
    }

    /// Moves running statistics towards those of a batch: `(1 - momentum) * self + momentum * batch`, rounded once.
    /// With `count`, `batch` is the biased variance of that many numbers and is converted to the unbiased one.
    ///
    /// # Errors
    /// As for [`set`](Param::set).
    pub fn blend(&self, batch: &Tensor, momentum: f64, count: Option<usize>) -> Result<()> {
        recording::blend(self, batch, momentum, count);
        let before = (self.clone(), self.full());
        recording::on_end(move || {
            let (buffer, old) = before;
            buffer.set(&old).expect("its own value");
        });
        let factor = count.map_or(1.0, |count| count as f64 / (count - 1) as f64);
        let batch = {
            let _hidden = context::enter_op();
            batch.to_f64()
        };
        self.change(To::Blend { keep: 1.0 - momentum, take: momentum * factor, batch })
    }

    /// Stores the value in a low dtype, with or without an f32 master, discarding any earlier low storage.
    pub(crate) fn store_low(&self, dtype: DType, with_master: bool, rounding: Rounding) {
        let mut state = self.write();
        let (from, full) = state.undecorated();
        state.changes.clear();
        state.value = self.placed(full.cast(dtype));
        state.lowered = Some(Lowered { from, master: with_master.then(|| full.cast(DType::F32)), rounding });
    }

    /// Returns the dtype in which it was created, restored by [`store_as_made`](Param::store_as_made).
    pub(crate) fn made_in(&self) -> DType {
        self.read().undecorated().0
    }

    /// Stores the value in the dtype in which it was created, from the master if there is one, else from the low value.
    pub(crate) fn store_as_made(&self) {
        let mut state = self.write();
        if state.lowered.is_some() {
            let (from, full) = state.undecorated();
            state.changes.clear();
            state.value = self.placed(full.cast(from));
            state.lowered = None;
        }
    }

    /// Sets the dtype in weight files; `None` for its own.
    pub(crate) fn save_as(&self, dtype: Option<DType>) {
        self.write().saved_as = dtype;
    }

    /// Returns the contents for a weight file: the number at full precision, rounded once to the requested dtype. Fails
    /// if that makes a number infinite.
    pub(crate) fn to_save(&self) -> Result<Tensor, Beyond> {
        let saved_as = self.read().saved_as;
        let full = self.full();
        match saved_as {
            Some(dtype) if full.dtype().is_float() => {
                Beyond::check(full.array(), dtype)?;
                Ok(Tensor::from_array(full.array().cast(dtype)))
            }
            _ => Ok(full),
        }
    }

    /// Sets whether its gradients, passing through f16, require a loss scale, and returns the previous setting.
    pub fn require_scaler(&self, required: bool) -> bool {
        std::mem::replace(&mut self.write().requires_scaler, required)
    }

    /// Returns whether its gradients, passing through f16, require a loss scale.
    pub(crate) fn requires_scaler(&self) -> bool {
        self.read().requires_scaler
    }

    /// Returns whether it is trained: it is not a buffer, and not [frozen](Param::freeze).
    pub fn is_trained(&self) -> bool {
        !self.0.is_buffer && !self.is_frozen()
    }

    /// Returns whether it is a buffer.
    pub fn is_buffer(&self) -> bool {
        self.0.is_buffer
    }

    /// Returns the lengths of the axes.
    pub fn shape(&self) -> Vec<usize> {
        self.read().value.shape().to_vec()
    }

    /// Returns the dtype of the value.
    pub fn dtype(&self) -> DType {
        self.read().value.dtype()
    }

    /// Returns whether both are handles of one parameter.
    pub fn is_same(&self, other: &Param) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns its identity, the same for all handles of the parameter.
    pub fn id(&self) -> LeafId {
        self.0.id
    }
}

impl State {
    /// Checks a new value.
    fn check(&self, value: &Tensor) -> Result<()> {
        let dtype = self.value.dtype();
        if value.shape() != self.value.shape() {
            return Err(Error::shape(format!(
                "a parameter of shape {:?} cannot take a value of shape {:?}",
                self.value.shape(),
                value.shape()
            )));
        }
        if value.dtype() != dtype && !(self.master().is_some() && value.dtype() == DType::F32) {
            return Err(Error::dtype(format!(
                "{} parameter cannot take {} value; cast it first",
                dtype.with_article(),
                value.dtype().with_article()
            )));
        }
        Beyond::check(value.array(), dtype).map_err(|beyond| {
            let (dtype, way_out) = (dtype.with_article(), beyond.way_out());
            Error::value(format!("{dtype} parameter cannot take a value that {beyond}; {way_out}"))
        })
    }

    fn master(&self) -> Option<&Array> {
        self.lowered.as_ref()?.master.as_ref()
    }

    /// Returns the number at full precision: the master or the value.
    fn full(&self) -> Array {
        self.master().unwrap_or(self.value.array()).clone()
    }

    /// Returns the dtype in which it was created, and the number at full precision.
    fn undecorated(&self) -> (DType, Array) {
        let from = self.lowered.as_ref().map_or(self.value.dtype(), |lowered| lowered.from);
        (from, self.full())
    }

    /// Drops changes that no pass can revert.
    fn forget_settled(&mut self) {
        let settled = self.changes.iter().take_while(|change| change.pass.is_none()).count();
        self.changes.drain(..settled);
    }
}

impl To {
    /// Returns the value for `value`, in the dtype of this one.
    fn of(&self, value: &Array) -> Array {
        match self {
            To::Value(value) => value.clone(),
            To::Blend { keep, take, batch } => {
                let old = Tensor::from_array(value.clone());
                let new: Vec<f64> =
                    old.to_f64().iter().zip(batch).map(|(old, batch)| keep * old + take * batch).collect();
                Tensor::from_f64(&new, old.shape(), old.dtype()).expect("as many numbers as the value has").into_array()
            }
        }
    }
}

/// Returns whether a finite number became non-finite.
fn became_infinite(old: &Array, new: &Array) -> bool {
    let numbers = |x: &Array| Tensor::from_array(x.clone()).to_f64();
    numbers(old).iter().zip(numbers(new)).any(|(old, new)| old.is_finite() && !new.is_finite())
}

impl fmt::Debug for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.tensor();
        let name = if self.0.is_buffer { "Buffer" } else { "Param" };
        write!(f, "{name}({} {:?})", value.dtype(), value.shape())
    }
}
