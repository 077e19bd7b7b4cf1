//! Parameters: named places for tensors, shared by handle.

use std::{
    fmt, mem,
    sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use super::{
    Array, Beyond, LeafId,
    context::{self, Hidden},
    pass, recording,
};
use crate::{
    DType, Tensor,
    error::{Error, Result},
};

/// A place for a tensor that is trained, or for a buffer that is not. A handle: clones share it, so tied weights are one
/// `Param` under two paths. Its value is f32 unless it was made otherwise; policies cast copies and never the value.
///
/// Low copies are kept with the value and vanish when the value changes, so a parameter is cast once for each dtype
/// between two updates, however often it is used.
///
/// [`decorate`](crate::rewrite::decorate) stores the value itself in f16 or bf16. The parameter may then have a
/// [master](Param::master), the f32 number behind the value: optimizers update the master, and the value is always the
/// master rounded once.
#[derive(Clone)]
pub struct Param(Arc<Inner>);

struct Inner {
    id: LeafId,
    trained: bool,
    state: RwLock<State>,
}

struct State {
    /// On the tape when trained; its low copies live with it.
    value: Tensor,
    lowered: Option<Lowered>,
    /// The dtype in which weight files hold it; without one, that of the master or the value.
    saved_as: Option<DType>,
    /// Whether a policy says that its gradients come through f16 only with a loss scale.
    requires_scaler: bool,
    /// What forward passes stored whose steps may still be given up, in order, from the first of them on.
    changes: Vec<Change>,
}

/// A value that a forward pass stored.
struct Change {
    /// The pass; `None` once it is settled.
    pass: Option<u64>,
    /// All that was known of the number before.
    before: Array,
    to: To,
}

/// What a forward pass makes of a value.
#[derive(Clone)]
enum To {
    /// Another value.
    Value(Array),
    /// `keep * value + take * batch`.
    Blend { keep: f64, take: f64, batch: Vec<f64> },
}

/// What is remembered of a parameter that is stored low.
struct Lowered {
    /// The dtype it was made in.
    from: DType,
    /// Of the dtype f32; the value is this, rounded.
    master: Option<Array>,
    rounding: Rounding,
}

/// How the result of an update is rounded into a value that is stored low.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rounding {
    /// To nearest even: from the master, where there is one.
    Nearest,
    /// Up or down at random, by a stream of this seed; bf16 alone.
    Stochastic { seed: u64 },
    /// To nearest even, and what rounding leaves out is kept in bf16 by the optimizer; bf16 alone.
    Kahan,
}

impl Param {
    /// A parameter that is trained.
    pub fn new(value: Tensor) -> Self {
        Param::make(value, true)
    }

    /// A buffer: saved with the weights, never trained, and no gradient is computed for it. A layer is frozen by buffers
    /// in the place of its parameters, as the base of a [`LoRA`](crate::layers::LoRA) is.
    pub fn buffer(value: Tensor) -> Self {
        Param::make(value, false)
    }

    fn make(value: Tensor, trained: bool) -> Self {
        let id = LeafId::fresh();
        let value = Tensor::parameter(value.array().contiguous(), trained.then_some(id));
        let state =
            RwLock::new(State { value, lowered: None, saved_as: None, requires_scaler: false, changes: vec![] });
        Param(Arc::new(Inner { id, trained, state }))
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.0.state.read().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.0.state.write().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A value of this parameter.
    fn placed(&self, value: Array) -> Tensor {
        Tensor::parameter(value, self.0.trained.then_some(self.0.id))
    }

    /// The value, on the tape when the parameter is trained: what `forward` reads.
    pub fn tensor(&self) -> Tensor {
        self.read().value.clone()
    }

    /// The value, off the tape.
    pub fn value(&self) -> Tensor {
        self.tensor().detach()
    }

    /// The f32 number behind a value that [`decorate`](crate::rewrite::decorate) stores low, if it keeps one: what
    /// optimizers update, and what undoing returns to. The value is always the master rounded once.
    pub fn master(&self) -> Option<Tensor> {
        self.read().master().cloned().map(Tensor::from_array)
    }

    /// The master where there is one, else the value: all that is known of the number. [`set`](Param::set) takes it back.
    pub(crate) fn full(&self) -> Tensor {
        self.master().unwrap_or_else(|| self.value())
    }

    /// Replaces the value. Low copies of the old one are gone.
    ///
    /// A parameter with a [master](Param::master) takes f32, too: that is its new master, and the value is rounded from it.
    /// When it takes its own dtype, the master is the exact widening.
    ///
    /// What a cell sets while it runs in a forward pass is part of the step: it is there at once, and taken back where the step
    /// is skipped. A number there that is not finite, where the old one was, is not stored, and the step is not taken.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) or [`ErrorKind::DType`](crate::ErrorKind::DType) when the new value differs in shape or dtype,
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when a finite number of a new master would become infinite in the value.
    /// Nothing is changed then.
    pub fn set(&self, value: &Tensor) -> Result<()> {
        self.check(value)?;
        self.change(To::Value(value.array().contiguous()))
    }

    /// Changes the value as part of the forward pass that is run, or for good outside of one.
    fn change(&self, to: To) -> Result<()> {
        let _hidden = context::hide(Hidden::Recorders);
        let mut state = self.write();
        let before = state.full();
        let new = to.of(&before);
        let made = Tensor::from_array(new.cast(state.value.dtype()));
        if !made.has_only_finite() && became_infinite(&before, made.array()) {
            drop(state);
            // Outside of a pass a value is set as it is.
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

    /// Checks that [`set`](Param::set) would take a value.
    pub(crate) fn check(&self, value: &Tensor) -> Result<()> {
        self.read().check(value)
    }

    /// Puts a number into the value, and into the master where there is one.
    fn store(&self, state: &mut State, full: &Array) {
        state.value = self.placed(full.cast(state.value.dtype()));
        if let Some(Lowered { master: Some(master), .. }) = &mut state.lowered {
            *master = full.cast(DType::F32);
        }
    }

    /// Keeps what a pass stored.
    pub(super) fn settle(&self, pass: u64) {
        let mut state = self.write();
        state.changes.iter_mut().filter(|change| change.pass == Some(pass)).for_each(|change| change.pass = None);
        state.forget_settled();
    }

    /// Takes back what a pass stored, as if it had never been; what other passes stored since is stored again.
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

    /// Lets an optimizer write the value, and the master where there is one, which it keeps in step. Neither changes its dtype
    /// or shape. Low copies of the old value are gone.
    pub(crate) fn rewrite<R>(&self, change: impl FnOnce(&mut Array, Option<&mut Array>) -> R) -> R {
        let mut state = self.write();
        state.changes.clear();
        // Taken out, so that it is changed in place where nothing else holds it.
        let mut value = mem::replace(&mut state.value, self.placed(Array::empty())).into_array();
        let result = change(&mut value, state.lowered.as_mut().and_then(|lowered| lowered.master.as_mut()));
        state.value = self.placed(value);
        result
    }

    /// How the results of updates are rounded into the value.
    pub(crate) fn rounding(&self) -> Rounding {
        self.read().lowered.as_ref().map_or(Rounding::Nearest, |lowered| lowered.rounding)
    }

    /// Moves running statistics towards those of a batch: `(1 - momentum) * self + momentum * batch`, rounded once. Of a
    /// `count`, `batch` is the biased variance of so many numbers, and the unbiased one is taken.
    ///
    /// # Errors
    /// As [`set`](Param::set).
    pub(crate) fn blend(&self, batch: &Tensor, momentum: f64, count: Option<usize>) -> Result<()> {
        recording::blend(self, batch, momentum, count);
        let before = (self.clone(), self.full());
        recording::on_end(move || {
            let (buffer, old) = before;
            buffer.set(&old).expect("its own value");
        });
        let factor = count.map_or(1.0, |count| count as f64 / (count - 1) as f64);
        let batch = {
            let _hidden = context::hide(Hidden::Recorders);
            batch.to_f64()
        };
        self.change(To::Blend { keep: 1.0 - momentum, take: momentum * factor, batch })
    }

    /// Stores the value in a low dtype, with an f32 master or without, as if it had never been stored low before.
    pub(crate) fn store_low(&self, dtype: DType, with_master: bool, rounding: Rounding) {
        let mut state = self.write();
        let (from, full) = state.undecorated();
        state.changes.clear();
        state.value = self.placed(full.cast(dtype));
        state.lowered = Some(Lowered { from, master: with_master.then(|| full.cast(DType::F32)), rounding });
    }

    /// The dtype it was made in, to which [`store_as_made`](Param::store_as_made) returns.
    pub(crate) fn made_in(&self) -> DType {
        self.read().undecorated().0
    }

    /// Stores the value in the dtype it was made in: from the master where there is one, else from the low value.
    pub(crate) fn store_as_made(&self) {
        let mut state = self.write();
        if state.lowered.is_some() {
            let (from, full) = state.undecorated();
            state.changes.clear();
            state.value = self.placed(full.cast(from));
            state.lowered = None;
        }
    }

    /// Sets the dtype in which weight files hold it; `None` for its own.
    pub(crate) fn save_as(&self, dtype: Option<DType>) {
        self.write().saved_as = dtype;
    }

    /// What a weight file holds: all that is known of the number, rounded once to the dtype asked for, unless that makes a
    /// number infinite.
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

    /// Says whether its gradients come through f16 only with a loss scale, and returns what was said before.
    pub(crate) fn require_scaler(&self, required: bool) -> bool {
        std::mem::replace(&mut self.write().requires_scaler, required)
    }

    /// Whether its gradients come through f16 only with a loss scale.
    pub(crate) fn requires_scaler(&self) -> bool {
        self.read().requires_scaler
    }

    /// Whether it is trained; a buffer is not.
    pub fn is_trained(&self) -> bool {
        self.0.trained
    }

    /// Lengths of the axes.
    pub fn shape(&self) -> Vec<usize> {
        self.read().value.shape().to_vec()
    }

    /// The dtype of the value.
    pub fn dtype(&self) -> DType {
        self.read().value.dtype()
    }

    /// Whether both are handles of one parameter.
    pub fn is_same(&self, other: &Param) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn id(&self) -> LeafId {
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

    /// All that is known of the number: the master, or the value.
    fn full(&self) -> Array {
        self.master().unwrap_or(self.value.array()).clone()
    }

    /// The dtype it was made in, and all that is known of the number.
    fn undecorated(&self) -> (DType, Array) {
        let from = self.lowered.as_ref().map_or(self.value.dtype(), |lowered| lowered.from);
        (from, self.full())
    }

    /// Forgets changes that no pass can take back.
    fn forget_settled(&mut self) {
        let settled = self.changes.iter().take_while(|change| change.pass.is_none()).count();
        self.changes.drain(..settled);
    }
}

impl To {
    /// The value that is made of another, in the dtype of that.
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

/// Whether a number is not finite that was.
fn became_infinite(old: &Array, new: &Array) -> bool {
    let numbers = |x: &Array| Tensor::from_array(x.clone()).to_f64();
    numbers(old).iter().zip(numbers(new)).any(|(old, new)| old.is_finite() && !new.is_finite())
}

impl fmt::Debug for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.tensor();
        let name = if self.0.trained { "Param" } else { "Buffer" };
        write!(f, "{name}({} {:?})", value.dtype(), value.shape())
    }
}
