//! The slot in which a cell sits inside its parent, and the adapter that a plan puts there.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{
    Adapter, AsCell, Cast, Cell, Forward, InSlot, Planned, SavedCell,
    file::read_slot,
    in_slot::PastItsSlot,
    recompute::recomputed,
    saved::note_not_written,
    site::{self, Site},
};
use crate::{
    DType, Tensor,
    error::{Error, Result},
    observe::{self, CellCall},
    precision::{self, Frame},
    tensor::pass,
};

/// The slot of a cell in a tree: the cell, the user's `to_float`, and the adapter that a plan put there.
///
/// A `Child<Dense>` knows the type of its cell, a plain `Child` holds any. The adapter stands in the slot, not between
/// two cells, so wrapping renames nothing and cannot happen twice. [`call`](Child::call) runs the cell through its
/// adapter. Neither `child.forward(&x)` nor `child.cell().forward(&x)` compiles.
///
/// Where a plan was applied, a call that goes past the slot of a cell around this one is an error: a plan that changes
/// the precision of `blocks` means `blocks.0` to be called inside of `blocks.with(..)`. Another error is a
/// [`to_float`](Child::to_float) that was asked for since.
///
/// In files a `Child` reads and writes as its cell; with `to_float`, as `{to_float: float32, cell: {...}}`.
pub struct Child<C: ?Sized = dyn Cell> {
    to_float: Option<DType>,
    recompute: bool,
    planned: Planned,
    /// Where it stood when a plan was applied.
    site: Option<Site>,
    cell: Box<InSlot<C>>,
}

/// A cell in its slot, as a walk shows it.
#[derive(Debug)]
pub struct Slot<'a> {
    /// The cell.
    pub cell: &'a InSlot,
    /// The dtype that the user asked for in code.
    pub to_float: Option<DType>,
    /// What a plan put here.
    pub adapter: Option<&'a Adapter>,
    /// Whether [recompute](Child::recompute) was asked for in code.
    pub recompute: bool,
    /// All that a plan put here.
    pub planned: &'a Planned,
    /// Identity of the slot while the tree is not moved; see [`observe::Event::slot`].
    pub id: usize,
}

/// As [`Slot`], mutable.
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
    /// The dtype that the user asked for in code.
    pub fn to_float(&self) -> Option<DType> {
        *self.to_float
    }

    /// As [`Child::set_to_float`].
    ///
    /// # Errors
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) unless the dtype is f32, f16 or bf16.
    pub fn set_to_float(&mut self, dtype: Option<DType>) -> Result<()> {
        check_castable("to_float", dtype)?;
        *self.to_float = dtype;
        Ok(())
    }

    /// What a plan put here.
    pub fn adapter(&self) -> Option<&Adapter> {
        self.planned.adapter.as_ref()
    }

    /// Puts an adapter here, as a plan does.
    ///
    /// # Errors
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when it casts to another dtype than f32, f16 or bf16.
    pub fn set_adapter(&mut self, adapter: Option<Adapter>) -> Result<()> {
        if let Some(Adapter::Cast(cast) | Adapter::CastOps(cast, _)) = &adapter {
            check_castable("an adapter", Some(cast.inward))?;
            check_castable("an adapter", Some(cast.outward))?;
        }
        self.planned.adapter = adapter;
        Ok(())
    }

    /// As [`Child::is_recomputed`].
    pub fn is_recomputed(&self) -> bool {
        *self.recompute || self.planned.recompute
    }

    /// As [`Child::set_recompute`].
    pub fn set_recompute(&mut self, recompute: bool) {
        *self.recompute = recompute;
    }

    /// Whether an adapter is in force here.
    pub(super) fn adapts(&self) -> bool {
        self.planned.adapter.is_some() || self.to_float.is_some()
    }

    /// Puts here what a plan decided, and where it was applied; returns what was here.
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
    /// A slot with a cell and no adapter.
    pub fn new(cell: C) -> Self {
        Child { to_float: None, recompute: false, planned: Planned::default(), site: None, cell: InSlot::new(cell) }
    }

    /// Forgets the type of the cell.
    pub fn erase(self) -> Child {
        let Child { to_float, recompute, planned, site, cell } = self;
        Child { to_float, recompute, planned, site, cell }
    }
}

impl Child {
    /// A slot with a cell of any kind: what lists of cells hold.
    pub fn of(cell: impl Cell) -> Child {
        Child::new(cell).erase()
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
    #[doc(hidden)]
    pub fn forward<T: PastItsSlot>(&self, x: T) -> Result<Tensor> {
        x.never()
    }

    #[doc(hidden)]
    pub fn forward_many<T: PastItsSlot>(&self, inputs: T) -> Result<Vec<Tensor>> {
        inputs.never()
    }

    /// Asks that this cell and all inside it run in `dtype`, at every level and inside every region.
    /// A `to_float` further inside wins over this one.
    ///
    /// # Errors
    /// [`ErrorKind::DType`] unless the dtype is f32, f16 or bf16.
    ///
    /// [`ErrorKind::DType`]: crate::ErrorKind::DType
    pub fn to_float(mut self, dtype: DType) -> Result<Self> {
        self.set_to_float(Some(dtype))?;
        Ok(self)
    }

    /// As [`to_float`](Child::to_float), in place; `None` takes the request back.
    ///
    /// # Errors
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) unless the dtype is f32, f16 or bf16.
    pub fn set_to_float(&mut self, dtype: Option<DType>) -> Result<()> {
        check_castable("to_float", dtype)?;
        self.to_float = dtype;
        Ok(())
    }

    /// The cell itself, for its fields. To run it, use [`call`](Child::call) or [`with`](Child::with).
    pub fn cell(&self) -> &InSlot<C> {
        &self.cell
    }

    /// The cell itself, mutable.
    pub fn cell_mut(&mut self) -> &mut InSlot<C> {
        &mut self.cell
    }

    /// What a plan put into this slot.
    pub fn adapter(&self) -> Option<&Adapter> {
        self.planned.adapter.as_ref()
    }

    /// The dtype asked for by [`to_float`](Child::to_float).
    pub fn requested(&self) -> Option<DType> {
        self.to_float
    }

    /// Address of the slot. A slot has a size even where its cell has none, so no two slots share an address.
    fn id(&self) -> usize {
        std::ptr::from_ref(self).cast::<()>() as usize
    }

    /// Keeps no activation of this cell and those inside it for the backward pass, which computes them again from the
    /// inputs of the cell: less memory for one more forward pass. (Chen et al. 2016, "Training deep nets with sublinear
    /// memory cost".)
    ///
    /// The second run is that of the first, op by op: in the same dtypes, whatever region the backward pass runs in,
    /// with the same dropout, and without moving running statistics again. Outputs and gradients are the same bit for
    /// bit. (The gradient of a parameter that is used three times or more, inside and outside of the cell, is summed in
    /// another order.) Code in `forward` runs once: what it does besides calling ops is not done again. Inside of a
    /// recomputed cell, further recomputed cells change nothing.
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
    pub fn recompute(mut self) -> Self {
        self.recompute = true;
        self
    }

    /// As [`recompute`](Child::recompute), in place, or takes it back.
    pub fn set_recompute(&mut self, recompute: bool) {
        self.recompute = recompute;
    }

    /// Whether its activations are [recomputed](Child::recompute), because code or a plan asks for it.
    pub fn is_recomputed(&self) -> bool {
        self.recompute || self.planned.recompute
    }

    /// The adapter in force: the plan's; without a plan, the one that `to_float` asks for. The surrounding region is
    /// then known only while the cell runs: a root returns what it computed, an inner cell returns f32.
    fn in_force(&self) -> Option<Adapter> {
        if self.planned.adapter.is_some() {
            return self.planned.adapter.clone();
        }
        let inward = self.to_float?;
        let outward = match precision::current() {
            Some(Frame::Fixed(dtype)) => dtype,
            _ if precision::slot().is_none() => inward,
            _ => DType::F32,
        };
        Some(Adapter::Cast(Cast { inward, outward }))
    }
}

impl<C: ?Sized + AsCell> Child<C> {
    /// Runs the cell on one tensor: casts in, runs, casts out.
    ///
    /// # Errors
    /// What the cell reports, with the path of the innermost cell in which it happened.
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

    /// Runs any method of the cell through the adapter, with inputs and outputs of any [`Castable`] shape.
    ///
    /// # Errors
    /// As [`call`](Child::call).
    pub fn with<I: Castable, O: Castable>(
        &self,
        inputs: I,
        body: impl FnOnce(&C, I::Owned) -> Result<O>,
    ) -> Result<O::Owned> {
        // The outermost call is a forward pass.
        let open = precision::slot().is_none().then(pass::open);
        let adapter = self.in_force();
        let entering = observe::is_watched().then(|| inputs.elements());
        let run = |inputs: I::Owned| {
            let outputs = body(&self.cell, inputs)?;
            if let Some(entering) = entering {
                let (kind, has_params) = (self.cell.as_cell().kind(), site::has_params(self.cell.as_cell()));
                let (slot, inputs, outputs) = (self.id(), entering, outputs.elements());
                observe::emit_cell_call(CellCall { slot, kind, has_params, inputs, outputs });
            }
            Ok::<O, Error>(outputs)
        };
        let (frame, cast) = (adapter.as_ref().map(Adapter::frame), adapter.as_ref().and_then(Adapter::cast));
        let to = |what: observe::Cast, dtype: Option<DType>| {
            move |x: Tensor| match dtype {
                Some(dtype) if x.dtype().is_castable() => x.cast_as(what, dtype),
                _ => x,
            }
        };
        // Each op in a region of one dtype casts its inputs itself. For the gradient of a weight it then knows the
        // input as it was.
        let wide = self.planned.wide_weight_grads;
        let by_op = wide == Some(true) && matches!(frame, Some(Frame::Fixed(_))) && self.cell.as_cell().is_leaf();
        let mut inward = to(observe::Cast::IntoCell, cast.map(|cast| cast.inward).filter(|_| !by_op));
        let outward = to(observe::Cast::OutOfCell, cast.map(|cast| cast.outward));
        // Looked up at the first output that is on the tape, when the cell has run.
        let mut passes: Option<Vec<_>> = None;
        let mut outward = |y: Tensor| {
            let y = outward(y);
            if open.is_some() && y.is_tracked() {
                pass::note_passes(&y, passes.get_or_insert_with(|| self.noted().into_iter().collect()));
            }
            y
        };
        let checked = match &self.site {
            Some(site) => site.check(self.to_float),
            None => site::check_unplanned(self.cell.as_cell()),
        };
        let result = checked.and_then(|()| {
            let _slot = precision::enter_slot(self.id());
            let number = self.site.as_ref().and_then(Site::number);
            let _region = frame.map(|frame| precision::enter_adapter(frame, number));
            let _grads = wide.map(precision::enter_weight_grads);
            if self.is_recomputed() {
                recomputed(inputs, &mut inward, run, &mut outward)
            } else {
                run(inputs.map(&mut inward)).map(|outputs| outputs.map(&mut outward))
            }
        });
        let result = result.map_err(|e| e.in_slot(self.id()));
        match open {
            Some(open) => open
                .end(result, |param| self.path_of_param(param))
                .map_err(|e| e.resolve_cell(|slot| self.path_of(slot))),
            None => result,
        }
    }

    /// This slot, as a walk shows it.
    pub fn slot(&self) -> Slot<'_> {
        let (to_float, recompute, planned) = (self.to_float, self.recompute, &self.planned);
        let adapter = planned.adapter.as_ref();
        Slot { cell: AsCell::in_slot(&self.cell), to_float, adapter, recompute, planned, id: self.id() }
    }

    /// This slot, mutable.
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
/// Tensors in any arrangement, as they go into and out of a cell: one, a reference, a tuple, a list, an option.
pub trait Castable: Sized {
    /// The same arrangement, owned.
    type Owned;
    /// The same arrangement of what `f` makes of each tensor, in order.
    fn map(self, f: &mut dyn FnMut(Tensor) -> Tensor) -> Self::Owned;
    /// How many elements the castable tensors have.
    fn elements(&self) -> usize;
    /// Every castable tensor cast to `dtype`; integers, booleans and f64 as they are.
    fn cast_to(self, dtype: DType) -> Self::Owned {
        self.map(&mut |x| if x.dtype().is_castable() { x.cast(dtype) } else { x })
    }
    /// The tensors as they are.
    fn into_owned(self) -> Self::Owned {
        self.map(&mut |x| x)
    }
}

impl Castable for Tensor {
    type Owned = Tensor;
    fn map(self, f: &mut dyn FnMut(Tensor) -> Tensor) -> Tensor {
        f(self)
    }
    fn elements(&self) -> usize {
        if self.dtype().is_castable() { self.len() } else { 0 }
    }
}

impl Castable for &Tensor {
    type Owned = Tensor;
    fn map(self, f: &mut dyn FnMut(Tensor) -> Tensor) -> Tensor {
        f(self.clone())
    }
    fn elements(&self) -> usize {
        (**self).elements()
    }
}

impl<T: Castable> Castable for Vec<T> {
    type Owned = Vec<T::Owned>;
    fn map(self, f: &mut dyn FnMut(Tensor) -> Tensor) -> Self::Owned {
        self.into_iter().map(|x| x.map(f)).collect()
    }
    fn elements(&self) -> usize {
        self.iter().map(T::elements).sum()
    }
}

impl<T: Castable> Castable for Option<T> {
    type Owned = Option<T::Owned>;
    fn map(self, f: &mut dyn FnMut(Tensor) -> Tensor) -> Self::Owned {
        Option::map(self, |x| x.map(f))
    }
    fn elements(&self) -> usize {
        self.as_ref().map_or(0, T::elements)
    }
}

macro_rules! castable_tuple {
    ($($t:ident $i:tt),*) => {
        impl<$($t: Castable),*> Castable for ($($t,)*) {
            type Owned = ($($t::Owned,)*);
            fn map(self, f: &mut dyn FnMut(Tensor) -> Tensor) -> Self::Owned { ($(self.$i.map(f),)*) }
            fn elements(&self) -> usize { [$(self.$i.elements()),*].into_iter().sum() }
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
    /// The same layer in another place. The two share their parameters. The adapter is not copied.
    fn clone(&self) -> Self {
        let (to_float, recompute, cell) = (self.to_float, self.recompute, self.cell.clone());
        Child { to_float, recompute, planned: Planned::default(), site: None, cell: InSlot::new(cell) }
    }
}

/// The written form of a slot with a request.
#[derive(Serialize)]
struct Requested<'a, C: ?Sized> {
    to_float: DType,
    cell: &'a C,
}

impl<C: ?Sized + Serialize> Serialize for Child<C> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        write_slot(self.to_float, &**self.cell, serializer).inspect_err(|_| note_not_written(self.id()))
    }
}

impl Serialize for Slot<'_> {
    /// With the kind of the cell, whatever the slot knows of it.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        write_slot(self.to_float, &**self.cell, serializer).inspect_err(|_| note_not_written(self.id))
    }
}

fn write_slot<C: ?Sized + Serialize, S: Serializer>(
    to_float: Option<DType>,
    cell: &C,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match to_float {
        None => cell.serialize(serializer),
        Some(to_float) => Requested { to_float, cell }.serialize(serializer),
    }
}

impl<'de, C: Deserialize<'de>> Deserialize<'de> for Child<C> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (to_float, cell) = read_slot(deserializer)?;
        Ok(Child { to_float, recompute: false, planned: Planned::default(), site: None, cell: InSlot::new(cell) })
    }
}

impl<'de> Deserialize<'de> for Child {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (to_float, cell) = read_slot::<_, Box<dyn SavedCell>>(deserializer)?;
        Ok(Child { to_float, ..cell.into_slot() })
    }
}
