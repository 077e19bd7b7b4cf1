//! The slot that holds a cell inside its parent, and the adapter that a plan puts there.

use std::{fmt, sync::Arc};

use precast_tensor::context::Quantizer;

use super::{Adapter, AsCell, Cell, Forward, InSlot, Planned, in_slot::PastItsSlot, site::Site};
use crate::{
    DType, Tensor,
    error::{Error, Result},
};

/// The slot of a cell in a tree: the cell, the user's `to_float`, and the adapter that a plan put there.
///
/// A `Child<Dense>` knows the type of its cell, a plain `Child` holds any. The adapter is part of the slot, not placed
/// between two cells, so wrapping renames nothing and cannot happen twice. [`call`](Child::call) runs the cell through
/// its adapter. Neither `child.forward(&x)` nor `child.cell().forward(&x)` compiles.
///
/// Once a plan is applied, a call that bypasses the slot of a surrounding cell is an error: if the plan changes the
/// precision of `blocks`, `blocks.0` must be called inside `blocks.with(..)`. Requesting [`to_float`](Child::to_float)
/// after the plan was applied is also an error.
///
/// In files, a `Child` is read and written as its cell; with `to_float`, as `{to_float: float32, cell: {...}}`.
pub struct Child<C: ?Sized = dyn Cell> {
    pub(super) to_float: Option<DType>,
    pub(super) recompute: bool,
    pub(super) planned: Planned,
    /// The site of the slot when a plan was applied.
    pub(super) site: Option<Site>,
    pub(super) cell: Box<InSlot<C>>,
}

/// A cell in its slot, as passed to visitors of a walk.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Slot<'a> {
    /// The cell.
    pub cell: &'a InSlot,
    /// The dtype requested in code.
    pub to_float: Option<DType>,
    /// The adapter put here by a plan.
    pub adapter: Option<&'a Adapter>,
    /// `true` when [recompute](Child::recompute) was requested in code.
    pub recompute: bool,
    /// Everything a plan put here.
    pub planned: &'a Planned,
    /// Identity of the slot, valid until the tree is moved; see [`Event::slot`](crate::observe::Event::slot).
    pub id: usize,
    pub(super) site: Option<&'a Site>,
}

impl Slot<'_> {
    /// Returns the operands of the products of the cell, if a plan quantizes them.
    pub(crate) fn quantizer(&self) -> Option<&Arc<Quantizer>> {
        self.site?.quantizer()
    }

    /// Returns whether the cell is recomputed, as [`Child::is_recomputed`] does.
    pub fn is_recomputed(&self) -> bool {
        self.recompute || self.planned.recompute
    }
}

/// Mutable form of [`Slot`].
#[derive(Debug)]
pub struct SlotMut<'a> {
    /// The cell.
    pub cell: &'a mut InSlot,
    to_float: &'a mut Option<DType>,
    recompute: &'a mut bool,
    planned: &'a mut Planned,
    pub(super) site: &'a mut Option<Site>,
}

impl SlotMut<'_> {
    /// Returns the dtype requested in code.
    pub fn to_float(&self) -> Option<DType> {
        *self.to_float
    }

    /// Sets the dtype requested in code, as [`Child::set_to_float`] does.
    ///
    /// # Errors
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) unless the dtype is f32, f16 or bf16.
    pub fn set_to_float(&mut self, dtype: Option<DType>) -> Result<()> {
        check_castable("to_float", dtype)?;
        *self.to_float = dtype;
        Ok(())
    }

    /// Returns the adapter put here by a plan.
    pub fn adapter(&self) -> Option<&Adapter> {
        self.planned.adapter.as_ref()
    }

    /// Sets the adapter, as a plan does.
    ///
    /// # Errors
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when it casts to a dtype other than f32, f16 or bf16.
    pub fn set_adapter(&mut self, adapter: Option<Adapter>) -> Result<()> {
        if let Some(Adapter::Cast(cast) | Adapter::CastOps(cast, _)) = &adapter {
            check_castable("an adapter", Some(cast.inward))?;
            check_castable("an adapter", Some(cast.outward))?;
        }
        self.planned.adapter = adapter;
        Ok(())
    }

    /// Returns whether the cell is recomputed, as [`Child::is_recomputed`] does.
    pub fn is_recomputed(&self) -> bool {
        *self.recompute || self.planned.recompute
    }

    /// Sets whether the cell is recomputed, as [`Child::set_recompute`] does.
    pub fn set_recompute(&mut self, recompute: bool) {
        *self.recompute = recompute;
    }

    /// Returns the site where a plan was applied.
    pub(crate) fn site(&self) -> Option<Site> {
        self.site.clone()
    }

    /// Returns everything that a plan put here.
    pub(super) fn planned(&self) -> &Planned {
        self.planned
    }

    /// Returns whether an adapter is in force here.
    pub(super) fn adapts(&self) -> bool {
        self.planned.adapter.is_some() || self.to_float.is_some()
    }

    /// Stores a plan's decisions and the site where it was applied; returns the previous ones.
    pub(crate) fn replace_planned(&mut self, planned: Planned, site: Option<Site>) -> (Planned, Option<Site>) {
        (std::mem::replace(self.planned, planned), std::mem::replace(self.site, site))
    }
}

fn check_castable(what: &str, dtype: Option<DType>) -> Result<()> {
    match dtype {
        Some(dtype) if !dtype.is_castable() => {
            Err(Error::dtype(format!("{what} takes float32, float16 or bfloat16, got {}", dtype.long_name())))
        }
        _ => Ok(()),
    }
}

impl<C: Cell> Child<C> {
    /// Creates a slot with a cell and no adapter.
    pub fn new(cell: C) -> Self {
        Child { to_float: None, recompute: false, planned: Planned::default(), site: None, cell: InSlot::new(cell) }
    }

    /// Erases the type of the cell.
    pub fn erase(self) -> Child {
        let Child { to_float, recompute, planned, site, cell } = self;
        Child { to_float, recompute, planned, site, cell }
    }
}

impl Child {
    /// Creates a slot with a cell of any kind, for lists of cells.
    pub fn of(cell: impl Cell) -> Child {
        Child::new(cell).erase()
    }
}

/// `conv.into()` is [`Child::new`] where the type of the slot is known: in a struct or an argument.
impl<C: Cell> From<C> for Child<C> {
    fn from(cell: C) -> Child<C> {
        Child::new(cell)
    }
}

impl<C: Cell> From<C> for Child {
    fn from(cell: C) -> Child {
        Child::of(cell)
    }
}

impl<C: Cell> From<Child<C>> for Child {
    fn from(child: Child<C>) -> Child {
        child.erase()
    }
}

impl<C: ?Sized> Child<C> {
    /// Does not compile: [`call`](Child::call) applies the adapter.
    pub fn forward<T: PastItsSlot>(&self, x: T) -> Result<Tensor> {
        x.never()
    }

    /// Does not compile: [`call_many`](Child::call_many) applies the adapter.
    pub fn forward_many<T: PastItsSlot>(&self, inputs: T) -> Result<Vec<Tensor>> {
        inputs.never()
    }

    /// Requests that this cell and everything inside it run in `dtype`, at every level and inside every region. A
    /// `to_float` further inside overrides this one.
    ///
    /// # Errors
    /// [`ErrorKind::DType`] unless the dtype is f32, f16 or bf16.
    ///
    /// [`ErrorKind::DType`]: crate::ErrorKind::DType
    pub fn to_float(mut self, dtype: DType) -> Result<Self> {
        self.set_to_float(Some(dtype))?;
        Ok(self)
    }

    /// Requests a dtype as [`to_float`](Child::to_float) does, in place; `None` cancels the request.
    ///
    /// # Errors
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) unless the dtype is f32, f16 or bf16.
    pub fn set_to_float(&mut self, dtype: Option<DType>) -> Result<()> {
        check_castable("to_float", dtype)?;
        self.to_float = dtype;
        Ok(())
    }

    /// Returns the cell, for access to its fields. To run it, use [`call`](Child::call) or [`with`](Child::with).
    pub fn cell(&self) -> &InSlot<C> {
        &self.cell
    }

    /// Returns the cell mutably.
    pub fn cell_mut(&mut self) -> &mut InSlot<C> {
        &mut self.cell
    }

    /// Returns the adapter that a plan put into this slot.
    pub fn adapter(&self) -> Option<&Adapter> {
        self.planned.adapter.as_ref()
    }

    /// Returns the dtype requested by [`to_float`](Child::to_float).
    pub fn requested(&self) -> Option<DType> {
        self.to_float
    }

    /// Returns the address of the slot. A slot has a size even where its cell has none, so no two slots share an
    /// address.
    pub(super) fn id(&self) -> usize {
        std::ptr::from_ref(self).cast::<()>() as usize
    }

    /// Keeps no activations of this cell and the cells inside it for the backward pass, which recomputes them from the
    /// inputs of the cell: less memory for one more forward pass. (Chen et al. 2016, "Training deep nets with sublinear
    /// memory cost".)
    ///
    /// The second run repeats the first op by op: in the same dtypes, whatever region the backward pass runs in, with
    /// the same dropout, and without updating running statistics again. Outputs and gradients are bit-identical. (The
    /// gradient of a parameter that is used three times or more, inside and outside of the cell, is summed in another
    /// order.) Code in `forward` runs once: side effects other than op calls are not repeated. Requesting recompute
    /// again inside a recomputed cell changes nothing.
    ///
    /// ```
    /// use precast::{prelude::*, sequential};
    /// let rng = &mut Rng::seed(1);
    /// let block = || sequential![Dense::new(64, 64, rng), Tanh, Dense::new(64, 64, rng), Tanh];
    /// # let mut block = block;
    /// let (plain, lean) = (Child::new(block()), Child::new(block()).recompute());
    /// let x = Tensor::ones(&[32, 64], DType::F32);
    /// let bytes = |net: &Child<_>| Ok::<usize, Error>(net.call(&x)?.sum_all()?.tape_bytes());
    /// assert_eq!((bytes(&plain)?, bytes(&lean)?), (3 * 32 * 64 * 4, 32 * 64 * 4));
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    #[doc(alias = "checkpoint")]
    #[doc(alias = "gradient_checkpointing")]
    pub fn recompute(mut self) -> Self {
        self.recompute = true;
        self
    }

    /// Switches [`recompute`](Child::recompute) on or off, in place.
    pub fn set_recompute(&mut self, recompute: bool) {
        self.recompute = recompute;
    }

    /// Returns whether code or a plan requests that its activations be [recomputed](Child::recompute).
    pub fn is_recomputed(&self) -> bool {
        self.recompute || self.planned.recompute
    }
}

impl<C: ?Sized + AsCell> Child<C> {
    /// Runs the cell on one tensor: casts in, runs, casts out.
    ///
    /// # Errors
    /// Those of the cell, with the path of the innermost cell in which the error occurred.
    pub fn call(&self, x: &Tensor) -> Result<Tensor> {
        self.with(x, |cell, x| Forward::forward(cell.as_cell(), &x))
    }

    /// Runs the cell on a list of tensors. Every floating tensor is cast.
    ///
    /// # Errors
    /// As [`call`](Child::call).
    pub fn call_many(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        self.with(inputs.to_vec(), |cell, inputs| Forward::forward_many(cell.as_cell(), &inputs))
    }

    /// Returns this slot as a walk passes it to visitors.
    pub fn slot(&self) -> Slot<'_> {
        let (to_float, recompute, planned) = (self.to_float, self.recompute, &self.planned);
        let adapter = planned.adapter.as_ref();
        let (cell, site) = (AsCell::in_slot(&self.cell), self.site.as_ref());
        Slot { cell, to_float, adapter, recompute, planned, id: self.id(), site }
    }

    /// Returns this slot, mutable.
    pub fn slot_mut(&mut self) -> SlotMut<'_> {
        let Child { to_float, recompute, planned, site, cell } = self;
        SlotMut { to_float, recompute, planned, site, cell: AsCell::in_slot_mut(cell) }
    }
}

#[diagnostic::on_unimplemented(
    message = "`{Self}` does not pass through a slot",
    label = "neither a tensor nor an arrangement of tensors",
    note = "tensors in tuples, lists and options pass; capture all else in the closure"
)]
/// Tensors in any arrangement that cells take and return: one, a reference, a tuple, a list, an option.
pub trait Castable: Sized {
    /// The same arrangement, owned.
    type Owned;
    /// Applies `f` to each tensor in order, keeping the arrangement.
    fn map(self, f: &mut dyn FnMut(Tensor) -> Tensor) -> Self::Owned;
    /// Casts every castable tensor to `dtype`; leaves integers, booleans and f64 as they are.
    fn cast_to(self, dtype: DType) -> Self::Owned {
        self.map(&mut |x| if x.dtype().is_castable() { x.cast(dtype) } else { x })
    }
    /// Returns the tensors unchanged.
    fn into_owned(self) -> Self::Owned {
        self.map(&mut |x| x)
    }
}

impl Castable for Tensor {
    type Owned = Tensor;
    fn map(self, f: &mut dyn FnMut(Tensor) -> Tensor) -> Tensor {
        f(self)
    }
}

impl Castable for &Tensor {
    type Owned = Tensor;
    fn map(self, f: &mut dyn FnMut(Tensor) -> Tensor) -> Tensor {
        f(self.clone())
    }
}

impl<T: Castable> Castable for Vec<T> {
    type Owned = Vec<T::Owned>;
    fn map(self, f: &mut dyn FnMut(Tensor) -> Tensor) -> Self::Owned {
        self.into_iter().map(|x| x.map(f)).collect()
    }
}

impl<T: Castable> Castable for Option<T> {
    type Owned = Option<T::Owned>;
    fn map(self, f: &mut dyn FnMut(Tensor) -> Tensor) -> Self::Owned {
        Option::map(self, |x| x.map(f))
    }
}

macro_rules! castable_tuple {
    ($($t:ident $i:tt),*) => {
        impl<$($t: Castable),*> Castable for ($($t,)*) {
            type Owned = ($($t::Owned,)*);
            fn map(self, f: &mut dyn FnMut(Tensor) -> Tensor) -> Self::Owned { ($(self.$i.map(f),)*) }
        }
    };
}
castable_tuple!(A 0, B 1);
castable_tuple!(A 0, B 1, C 2);
castable_tuple!(A 0, B 1, C 2, D 3);
castable_tuple!(A 0, B 1, C 2, D 3, E 4);
castable_tuple!(A 0, B 1, C 2, D 3, E 4, F 5);

impl<C: ?Sized + fmt::Debug> fmt::Debug for Child<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Child");
        if let Some(dtype) = self.to_float {
            out.field("to_float", &dtype);
        }
        if let Some(adapter) = self.adapter() {
            out.field("adapter", adapter);
        }
        if self.is_recomputed() {
            out.field("recompute", &true);
        }
        out.field("cell", &&*self.cell).finish()
    }
}

impl<C: Clone> Clone for Child<C> {
    /// Copies the slot for use in another place: the two share their parameters, so training one trains both. The
    /// adapter is not copied. For a network of its own, use [`deep_copy`](Child::deep_copy).
    fn clone(&self) -> Self {
        let (to_float, recompute, cell) = (self.to_float, self.recompute, self.cell.clone());
        Child { to_float, recompute, planned: Planned::default(), site: None, cell: InSlot::new(cell) }
    }
}
