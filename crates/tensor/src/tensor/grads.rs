//! Gradients of one backward pass.

mod clip;
mod over_ranks;

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    sync::Arc,
};

use precast_kernels::{
    alone_mut,
    elementwise::{finite, peak::Magnitude as _},
    float::{Float as _, Real as _},
    reduce::Squares,
    threads,
};

use super::{
    Array, LeafId, Param, Tensor, context, late,
    listener::ParamStep,
    pass::{self, Pass},
    with_float,
};
use crate::{DType, logging::warn};

/// Gradients of one backward pass, by leaf.
///
/// Those of a scaled loss are a `ScaledGrads` until they are
/// unscaled.
///
/// Unscaling and clipping by norm do not rewrite the gradients in memory. The factors are kept here and applied when a
/// gradient is read, by [`get`](Grads::get) or by an optimizer during its update.
#[derive(Clone, Default)]
pub struct Grads {
    by_leaf: HashMap<LeafId, Tensor>,
    /// Position in time at which the last part of each gradient arrived.
    arrivals: HashMap<LeafId, usize>,
    /// Number of parts that arrived.
    parts: usize,
    /// Factors not yet applied. With them, gradients are read in f32, or f64.
    pending: Option<Factors>,
    /// Leaves whose gradients came out of an op in f16, where small gradients underflow.
    through_f16: HashSet<LeafId>,
    unscaled: Option<Unscaled>,
    /// Forward passes that the gradients come from.
    passes: Vec<Arc<Pass>>,
    /// `true` for a later part of a step that is taken in parts.
    is_later_part: bool,
}

/// Factors applied when a gradient is read: first `unscale`, then `clip`. Each product is rounded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factors {
    /// Reciprocal of the loss scale.
    pub unscale: f32,
    /// Factor of clipping.
    pub clip: f64,
}

/// Scaling of a loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scaling {
    /// Loss scale; 1 if there is none.
    pub scale: f32,
    /// `true` when there is a loss scale.
    pub by_scaler: bool,
    /// `true` when the loss was finite before scaling.
    pub finite_loss: bool,
}

/// Checks of gradients whose loss was scaled.
#[derive(Clone, Debug, PartialEq)]
pub struct Unscaled {
    /// Scaling of the loss.
    pub scaling: Scaling,
    /// Path of the first parameter whose gradient is not finite.
    pub first: Option<String>,
    /// `true` when a gradient was replaced since and not checked for finiteness.
    pub replaced: bool,
}

impl Default for Factors {
    fn default() -> Self {
        Factors { unscale: 1.0, clip: 1.0 }
    }
}

impl Grads {
    /// Returns the gradient of a parameter, in the parameter's dtype, or in f32 or f64 after unscaling or clipping.
    /// `None` when the loss does not depend on it.
    pub fn get(&self, param: &Param) -> Option<Tensor> {
        self.read(param.id())
    }

    /// Returns the gradient with respect to a tensor made by [`Tensor::requires_grad`]; `None` when the loss does not
    /// depend on it.
    pub fn of(&self, leaf: &Tensor) -> Option<Tensor> {
        self.read(leaf.place().leaf()?)
    }

    /// Replaces the gradient of a parameter, for instance to clip it yourself.
    /// `LossScale::apply` checks that it is finite.
    pub fn set(&mut self, param: &Param, grad: Tensor) {
        self.multiply_out();
        self.unscaled.iter_mut().for_each(|unscaled| unscaled.replaced = true);
        self.put(param.id(), grad);
    }

    /// Returns whether a parameter has a gradient.
    pub fn contains(&self, param: &Param) -> bool {
        self.by_leaf.contains_key(&param.id())
    }

    /// Returns the number of leaves with a gradient.
    pub fn len(&self) -> usize {
        self.by_leaf.len()
    }

    /// Returns whether no leaf has a gradient.
    pub fn is_empty(&self) -> bool {
        self.by_leaf.is_empty()
    }

    /// Returns the path of the first parameter whose gradient was not finite at unscaling. `None` also for gradients
    /// that were never scaled; check those with `all_finite`.
    pub fn non_finite(&self) -> Option<&str> {
        self.unscaled.as_ref()?.first.as_deref()
    }

    /// Returns the norm of all gradients together: the square root of the sum of all squares, computed in f64.
    pub fn norm(&self) -> f64 {
        let factor = |pending: Factors| f64::from(pending.unscale) * pending.clip;
        let arrays: Vec<Array> =
            self.in_order().iter().map(|id| self.by_leaf[id].least().array().contiguous()).collect();
        let mut all = Squares::NONE;
        let squares = |which: usize, part: Range<usize>| {
            with_float!(&arrays[which], x: T => {
                let x = &x.as_slice().expect("contiguous")[part];
                let wide = || x.iter().map(|x| x.widen().as_f64()).collect();
                Squares::or(finite::sum_of_squares::<T>(x), x.len(), wide)
            }, else Squares::NONE)
        };
        threads::by_parts(&lengths(&arrays), all, squares).iter().for_each(|&(_, part)| all += part);
        match self.pending {
            // A product may be infinite although the gradient is finite.
            Some(_) if all.root().is_finite() && self.non_finite().is_some() => f64::INFINITY,
            pending => all.root() * pending.map_or(1.0, factor),
        }
    }

    /// Returns the stored gradient of a parameter, and the factors still to be applied.
    pub(crate) fn pending(&self, param: &Param) -> Option<(&Tensor, Factors)> {
        #[cfg(debug_assertions)]
        crate::internals::LOOK_UPS.set(crate::internals::LOOK_UPS.get() + 1);
        let factors = self.pending.unwrap_or_default();
        Some((self.by_leaf.get(&param.id())?.least(), factors))
    }

    /// Returns whether this gradient came out of an op in f16 and its loss was never scaled.
    pub(crate) fn is_unscaled_f16(&self, param: &Param) -> bool {
        self.unscaled.as_ref().is_none_or(|unscaled| !unscaled.scaling.by_scaler)
            && self.through_f16.contains(&param.id())
    }

    pub(crate) fn scale_checks(&self) -> Option<&Unscaled> {
        self.unscaled.as_ref()
    }

    /// Splits off the gradients of some leaves, with the checks of their scale.
    pub(crate) fn split_off(&mut self, leaves: impl Iterator<Item = LeafId>, unscaled: Unscaled) -> Grads {
        let by_leaf: HashMap<LeafId, Tensor> =
            leaves.filter_map(|id| self.by_leaf.remove(&id).map(|grad| (id, grad))).collect();
        let through_f16 = by_leaf.keys().copied().filter(|id| self.through_f16.contains(id)).collect();
        let pending = Some(Factors { unscale: 1.0 / unscaled.scaling.scale, clip: 1.0 });
        let arrivals = by_leaf.keys().filter_map(|id| Some((*id, *self.arrivals.get(id)?))).collect();
        let (passes, parts, is_later_part) = (self.passes.clone(), self.parts, self.is_later_part);
        Grads { by_leaf, pending, through_f16, unscaled: Some(unscaled), passes, arrivals, parts, is_later_part }
    }

    /// Marks the gradients that are still to be split off as later parts of a step.
    pub(crate) fn continue_step(&mut self) {
        self.is_later_part = true;
    }

    /// Returns whether earlier parts of the same step were taken before.
    pub(crate) fn continues_step(&self) -> bool {
        self.is_later_part
    }

    /// Notifies listeners of the gradients of these parameters, with the factors that are not yet applied.
    pub(crate) fn tell_gradients<'a>(&self, params: impl Iterator<Item = &'a Param>) {
        if !context::is_heard_in_full() {
            return;
        }
        for param in params {
            if let (Some(before), Some(after)) = (self.by_leaf.get(&param.id()), self.read(param.id())) {
                let step = ParamStep { leaf: param.id(), before, after: &after, gradient: None, refused: 0 };
                context::tell(|listener| listener.unscale(&step));
            }
        }
    }

    /// Adds other gradients; low ones are added in f32.
    pub(crate) fn add(&mut self, other: Grads) {
        self.multiply_out();
        self.through_f16.extend(&other.through_f16);
        self.came_from(&other.passes);
        for id in other.in_order() {
            let Some(grad) = other.read(id) else { continue };
            let wide = |x: &Tensor| if x.dtype().is_low() { x.array().cast(DType::F32) } else { x.array().clone() };
            let sum = match self.by_leaf.get(&id) {
                Some(before) => Tensor::from_array(wide(before).add(&wide(&grad))),
                None => grad,
            };
            self.put(id, sum);
        }
    }

    /// Returns the gradient as [`of`](Grads::of) does, times a factor.
    pub(crate) fn of_times(&self, leaf: &Tensor, factor: f32) -> Option<Tensor> {
        Some(multiplied(self.of(leaf)?, Factors { unscale: factor, clip: 1.0 }))
    }

    /// Returns the largest magnitude of each stored gradient of these leaves, and of the same multiplied by a factor,
    /// in the dtype of the product: that of the arithmetic.
    pub(crate) fn peaks_of(&self, leaves: impl Iterator<Item = LeafId>, factor: f32) -> Vec<(LeafId, f64, f64)> {
        let grads: Vec<_> = leaves.filter_map(|id| Some((id, self.by_leaf.get(&id)?.least()))).collect();
        // A monitor has looked at most of them when they were computed.
        let new: Vec<&Tensor> =
            grads.iter().map(|(_, grad)| *grad).filter(|grad| grad.known_peak().is_none()).collect();
        let arrays: Vec<Array> = new.iter().map(|grad| grad.array().contiguous()).collect();
        new.iter().zip(peaks(&arrays)).for_each(|(grad, peak)| grad.know_peak(peak));
        let times = |grad: &Tensor, peak: f64| match grad.dtype() {
            DType::F64 => peak * f64::from(factor),
            _ => f64::from(peak as f32 * factor),
        };
        let both = |(id, grad): (LeafId, &Tensor)| {
            let peak = grad.peak();
            (id, peak, times(grad, peak))
        };
        grads.into_iter().map(both).collect()
    }

    /// Returns the stored gradient of a leaf.
    pub(crate) fn lying(&self, id: LeafId) -> Option<&Tensor> {
        self.by_leaf.get(&id)
    }

    /// Returns the position in time at which the last part of a gradient arrived, among all of this backward pass.
    pub(crate) fn arrival(&self, id: LeafId) -> usize {
        self.arrivals.get(&id).copied().unwrap_or(usize::MAX)
    }

    /// Records that a part of the gradient of a leaf arrived.
    pub(super) fn arrived(&mut self, id: LeafId) {
        self.parts += 1;
        self.arrivals.insert(id, self.parts);
    }

    pub(super) fn put(&mut self, id: LeafId, grad: Tensor) {
        self.by_leaf.insert(id, grad);
    }

    /// Records that a leaf's gradient came out of an op in f16.
    pub(super) fn came_through_f16(&mut self, id: LeafId) {
        self.through_f16.insert(id);
    }

    /// Records forward passes that the gradients come from.
    pub(super) fn came_from(&mut self, passes: &[Arc<Pass>]) {
        passes.iter().for_each(|pass| pass::add(&mut self.passes, pass));
    }

    /// Returns the forward passes that the gradients come from.
    pub(crate) fn passes(&self) -> &[Arc<Pass>] {
        &self.passes
    }

    /// Returns the path of the first non-finite number that a forward pass refused to store.
    pub(crate) fn refused(&self) -> Option<&str> {
        self.passes.iter().find_map(|pass| pass.refused())
    }

    /// Marks the step as not taken, unless it is settled later.
    pub(crate) fn doubt(&self) {
        self.passes.iter().for_each(|pass| pass.doubt());
    }

    /// Settles the step as taken, keeping everything its forward passes stored.
    pub(crate) fn settle(&self) {
        self.passes.iter().for_each(|pass| pass.settle());
    }

    /// Abandons a step and reverts everything its forward passes stored, such as the running statistics of a batch
    /// norm.
    ///
    /// A loop that checks `all_finite` itself and skips the update need not call it. For
    /// skipped steps, `LossScale::update` does so.
    pub fn discard(self) {
        self.passes.iter().for_each(|pass| pass.take_back());
    }

    /// Returns the path of a cell that behaves differently in training, ran in evaluation, and shares its network with
    /// one of these parameters that has a gradient.
    pub(crate) fn evaluated_beside<'a>(&self, params: impl Iterator<Item = &'a Param>) -> Option<&str> {
        if self.passes.iter().all(|pass| pass.evaluated.cells.is_empty()) {
            return None;
        }
        let trained: Vec<LeafId> = params.map(Param::id).filter(|id| self.by_leaf.contains_key(id)).collect();
        self.passes.iter().find_map(|pass| pass.evaluated.beside(trained.iter().copied()))
    }

    /// Warns of parameters that have a gradient here, are in no optimizer, and came to be trained after the optimizer
    /// of `params` was made. Each is reported once.
    pub(crate) fn warn_of_late<'a>(&self, params: impl Iterator<Item = &'a Param>) {
        if late::is_empty() {
            return;
        }
        let made = params.map(Param::in_optimizer_since).max().unwrap_or(u64::MAX);
        let late = late::take(self.by_leaf.keys().copied(), made);
        if let Some(words) = late::warning(&late) {
            tracing::warn!(target: "precast", parameters = late.len(), "trained parameters are in no optimizer");
            warn(&words);
        }
    }

    fn read(&self, id: LeafId) -> Option<Tensor> {
        let grad = self.by_leaf.get(&id)?;
        Some(match self.pending {
            Some(factors) => multiplied(grad.clone(), factors),
            None => grad.clone(),
        })
    }

    fn multiply_out(&mut self) {
        if let Some(factors) = self.pending.take() {
            self.replace_all(|grad| multiplied(grad, factors));
        }
    }

    /// Replaces every gradient, in its memory if that is not shared. A panic leaves no gradient, rather than some that
    /// are replaced and some that are not.
    fn replace_all(&mut self, by: impl Fn(Tensor) -> Tensor) {
        self.by_leaf = std::mem::take(&mut self.by_leaf).into_iter().map(|(id, grad)| (id, by(grad))).collect();
    }

    /// Returns the leaves in creation order, so that sums over them have the same bits in every run.
    fn in_order(&self) -> Vec<LeafId> {
        let mut leaves: Vec<LeafId> = self.by_leaf.keys().copied().collect();
        leaves.sort_unstable();
        leaves
    }
}

/// Applies the factors, in f64 if the gradient is f64, else in f32.
fn multiplied(grad: Tensor, Factors { unscale, clip }: Factors) -> Tensor {
    let grad = grad.cast(grad.dtype().wide());
    if (unscale, clip) == (1.0, 1.0) {
        return grad;
    }
    let mut product = grad.into_array();
    with_float!(&mut product, x: T => {
        finite::multiply(alone_mut(x).expect("in row-major order"), unscale, clip);
    }, else ());
    Tensor::from_array(product)
}

fn lengths(arrays: &[Array]) -> Vec<usize> {
    arrays.iter().map(|x| x.shape().iter().product()).collect()
}

/// Returns the largest magnitude in each array, which must be in row-major order: see [`Magnitude::peak`]. 0 for
/// integers and booleans.
pub(crate) fn peaks(arrays: &[Array]) -> Vec<f64> {
    let peak = |which: usize, part: Range<usize>| with_float!(&arrays[which], x: T => T::peak(&x.as_slice().expect("contiguous")[part]), else 0.0);
    let mut peaks = vec![0.0; arrays.len()];
    for (which, part) in threads::by_parts(&lengths(arrays), 0.0, peak) {
        let most: &mut f64 = &mut peaks[which];
        // As integers, so that NaN is the largest.
        *most = f64::from_bits(most.to_bits().max(part.to_bits()));
    }
    peaks
}

impl std::fmt::Debug for Grads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Grads({} leaves)", self.len())
    }
}
