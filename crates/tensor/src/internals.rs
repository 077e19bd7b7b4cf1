//! Methods of tensors, parameters and gradients for cells, plans and optimizers, which programs do not need.

#[cfg(debug_assertions)]
use std::cell::Cell;
use std::sync::Arc;

use precast_kernels::Array;

use crate::{
    Beyond, DType, Factors, Grads, LeafId, Param, Place, Result, Rounding, Tensor, Unscaled, listener::CastRole,
    pass::Pass,
};

#[cfg(debug_assertions)]
thread_local! {
    /// Number of times that an optimizer has looked up a gradient on this thread, for tests.
    pub static LOOK_UPS: Cell<usize> = const { Cell::new(0) };
}

/// Methods of a [`Tensor`].
pub trait TensorInternals: Sized {
    /// Creates a tensor outside the tape.
    fn from_array(array: Array) -> Self;
    /// Returns the value, computed here if nobody has read it.
    fn array(&self) -> &Array;
    /// Returns the place on the tape.
    fn place(&self) -> &Place;
    /// Returns the same value at another place.
    fn with_place(&self, place: Place) -> Self;
    /// Returns this widening as that of the same 16-bit tensor elsewhere on the tape.
    fn widening_of(&self, narrow: Self) -> Self;
    /// Casts as [`cast`](Tensor::cast) does, noting the tensor's role for the search for non-finite numbers.
    fn cast_as(&self, role: CastRole, to: DType) -> Self;
    /// Computes gradients as [`into_grads`](Tensor::into_grads) does, before an update of the parameters. Frees their low
    /// copies as well.
    ///
    /// # Errors
    /// Those of [`into_grads`](Tensor::into_grads).
    fn into_grads_before_update(self) -> Result<Grads>;
    /// Computes gradients as [`into_grads`](Tensor::into_grads) does, and calls `hook` for each leaf once its gradient is
    /// final. The hook may take the gradient out and change the parameter.
    ///
    /// # Errors
    /// Those of [`into_grads`](Tensor::into_grads) and of the hook.
    fn into_grads_taken(self, hook: impl FnMut(LeafId, &mut Grads) -> Result<()>) -> Result<Grads>;
}

impl TensorInternals for Tensor {
    fn from_array(array: Array) -> Self {
        Tensor::from_array(array)
    }
    fn array(&self) -> &Array {
        self.array()
    }
    fn place(&self) -> &Place {
        self.place()
    }
    fn with_place(&self, place: Place) -> Self {
        self.with_place(place)
    }
    fn widening_of(&self, narrow: Self) -> Self {
        self.widening_of(narrow)
    }
    fn cast_as(&self, role: CastRole, to: DType) -> Self {
        self.cast_as(role, to)
    }
    fn into_grads_before_update(self) -> Result<Grads> {
        self.into_grads_before_update()
    }
    fn into_grads_taken(self, hook: impl FnMut(LeafId, &mut Grads) -> Result<()>) -> Result<Grads> {
        self.into_grads_taken(hook)
    }
}

/// Methods of a [`Param`].
pub trait ParamInternals {
    /// Checks that [`set`](Param::set) would accept a value.
    ///
    /// # Errors
    /// Those of [`set`](Param::set).
    fn check(&self, value: &Tensor) -> Result<()>;
    /// Returns the rounding of updates into the value.
    fn rounding(&self) -> Rounding;
    /// Lets an optimizer write the value, and the master if there is one, which it keeps in sync. Neither changes its dtype or
    /// shape. Low copies of the old value are dropped.
    fn rewrite<R>(&self, change: impl FnOnce(&mut Array, Option<&mut Array>) -> R) -> R;
    /// Notes that an optimizer made at some time has it.
    fn note_optimizer(&self, time: u64);
    /// Returns whether its gradients, passing through f16, require a loss scale.
    fn requires_scaler(&self) -> bool;
    /// Stores the value in a low dtype, with or without an f32 master, discarding any earlier low storage.
    fn store_low(&self, dtype: DType, with_master: bool, rounding: Rounding);
    /// Stores the value in the dtype in which it was created, from the master if there is one, else from the low value.
    fn store_as_made(&self);
    /// Returns the dtype in which it was created.
    fn made_in(&self) -> DType;
    /// Sets the dtype in weight files; `None` for its own.
    fn save_as(&self, dtype: Option<DType>);
    /// Returns the contents for a weight file: the number at full precision, rounded once to the requested dtype.
    ///
    /// # Errors
    /// [`Beyond`] if that makes a number infinite.
    fn to_save(&self) -> Result<Tensor, Beyond>;
}

impl ParamInternals for Param {
    fn check(&self, value: &Tensor) -> Result<()> {
        self.check(value)
    }
    fn rounding(&self) -> Rounding {
        self.rounding()
    }
    fn rewrite<R>(&self, change: impl FnOnce(&mut Array, Option<&mut Array>) -> R) -> R {
        self.rewrite(change)
    }
    fn note_optimizer(&self, time: u64) {
        self.note_optimizer(time);
    }
    fn requires_scaler(&self) -> bool {
        self.requires_scaler()
    }
    fn store_low(&self, dtype: DType, with_master: bool, rounding: Rounding) {
        self.store_low(dtype, with_master, rounding);
    }
    fn store_as_made(&self) {
        self.store_as_made();
    }
    fn made_in(&self) -> DType {
        self.made_in()
    }
    fn save_as(&self, dtype: Option<DType>) {
        self.save_as(dtype);
    }
    fn to_save(&self) -> Result<Tensor, Beyond> {
        self.to_save()
    }
}

/// Methods of [`Grads`].
pub trait GradsInternals: Sized {
    /// Creates gradients of parameters, which are the sums over ranks, each with `true` if it came out of an op in f16.
    fn of_ranks<'a>(sums: impl Iterator<Item = (&'a Param, Tensor, bool)>, refused: Option<String>) -> Self;
    /// Returns the stored gradient of a leaf.
    fn lying(&self, id: LeafId) -> Option<&Tensor>;
    /// Returns the stored gradient of a parameter, and the factors still to be applied.
    fn pending(&self, param: &Param) -> Option<(&Tensor, Factors)>;
    /// Returns the gradient as [`of`](Grads::of) does, times a factor.
    fn of_times(&self, leaf: &Tensor, factor: f32) -> Option<Tensor>;
    /// Returns the largest magnitude of each stored gradient of these leaves, and of the same multiplied by a factor, in the
    /// dtype of the product: that of the arithmetic.
    fn peaks_of(&self, leaves: impl Iterator<Item = LeafId>, factor: f32) -> Vec<(LeafId, f64, f64)>;
    /// Returns the position in time at which the last part of a gradient arrived, among all of this backward pass.
    fn arrival(&self, id: LeafId) -> usize;
    /// Forgets the order in which gradients arrived.
    fn forget_arrivals(&mut self);
    /// Adds other gradients; low ones are added in f32.
    fn add(&mut self, other: Self);
    /// Returns the checks of the scale.
    fn scale_checks(&self) -> Option<&Unscaled>;
    /// Returns whether this gradient came out of an op in f16 and its loss was never scaled.
    fn is_unscaled_f16(&self, param: &Param) -> bool;
    /// Returns whether the gradient of a parameter came out of an op in f16.
    fn is_through_f16(&self, param: &Param) -> bool;
    /// Notifies listeners of the gradients of these parameters, with the factors that are not yet applied.
    fn tell_gradients<'a>(&self, params: impl Iterator<Item = &'a Param>);
    /// Splits off the gradients of some leaves, with the checks of their scale.
    fn split_off(&mut self, leaves: impl Iterator<Item = LeafId>, unscaled: Unscaled) -> Self;
    /// Marks the gradients that are still to be split off as later parts of a step.
    fn continue_step(&mut self);
    /// Returns whether earlier parts of the same step were taken before.
    fn continues_step(&self) -> bool;
    /// Returns the forward passes that the gradients come from.
    fn passes(&self) -> &[Arc<Pass>];
    /// Returns the path of the first non-finite number that a forward pass refused to store.
    fn refused(&self) -> Option<&str>;
    /// Marks the step as not taken, unless it is settled later.
    fn doubt(&self);
    /// Settles the step as taken, keeping everything its forward passes stored.
    fn settle(&self);
    /// Returns the path of a cell that behaves differently in training, ran in evaluation, and shares its network with one of
    /// these parameters that has a gradient.
    fn evaluated_beside<'a>(&self, params: impl Iterator<Item = &'a Param>) -> Option<&str>;
    /// Warns of parameters that have a gradient here, are in no optimizer, and came to be trained after the optimizer of
    /// `params` was made. Each is reported once.
    fn warn_of_late<'a>(&self, params: impl Iterator<Item = &'a Param>);
}

impl GradsInternals for Grads {
    fn of_ranks<'a>(sums: impl Iterator<Item = (&'a Param, Tensor, bool)>, refused: Option<String>) -> Self {
        Grads::of_ranks(sums, refused)
    }
    fn lying(&self, id: LeafId) -> Option<&Tensor> {
        self.lying(id)
    }
    fn pending(&self, param: &Param) -> Option<(&Tensor, Factors)> {
        self.pending(param)
    }
    fn of_times(&self, leaf: &Tensor, factor: f32) -> Option<Tensor> {
        self.of_times(leaf, factor)
    }
    fn peaks_of(&self, leaves: impl Iterator<Item = LeafId>, factor: f32) -> Vec<(LeafId, f64, f64)> {
        self.peaks_of(leaves, factor)
    }
    fn arrival(&self, id: LeafId) -> usize {
        self.arrival(id)
    }
    fn forget_arrivals(&mut self) {
        self.forget_arrivals();
    }
    fn add(&mut self, other: Self) {
        self.add(other);
    }
    fn scale_checks(&self) -> Option<&Unscaled> {
        self.scale_checks()
    }
    fn is_unscaled_f16(&self, param: &Param) -> bool {
        self.is_unscaled_f16(param)
    }
    fn is_through_f16(&self, param: &Param) -> bool {
        self.is_through_f16(param)
    }
    fn split_off(&mut self, leaves: impl Iterator<Item = LeafId>, unscaled: Unscaled) -> Self {
        self.split_off(leaves, unscaled)
    }
    fn continue_step(&mut self) {
        self.continue_step();
    }
    fn continues_step(&self) -> bool {
        self.continues_step()
    }
    fn passes(&self) -> &[Arc<Pass>] {
        self.passes()
    }
    fn refused(&self) -> Option<&str> {
        self.refused()
    }
    fn doubt(&self) {
        self.doubt();
    }
    fn settle(&self) {
        self.settle();
    }
    fn tell_gradients<'a>(&self, params: impl Iterator<Item = &'a Param>) {
        self.tell_gradients(params);
    }
    fn evaluated_beside<'a>(&self, params: impl Iterator<Item = &'a Param>) -> Option<&str> {
        self.evaluated_beside(params)
    }
    fn warn_of_late<'a>(&self, params: impl Iterator<Item = &'a Param>) {
        self.warn_of_late(params);
    }
}
