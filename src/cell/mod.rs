//! Trees of cells: the trait, the slot a cell sits in, parameters, paths and walking.

mod child;
#[doc(hidden)]
#[allow(missing_docs)]
pub mod derived;
mod evaluation;
mod file;
mod in_slot;
mod kinds;
mod member;
mod outline;
mod params;
mod recompute;
mod saved;
mod site;
mod trace;
mod walk;

use std::{any::Any, fmt::Debug};

pub use child::{Castable, Child, Slot, SlotMut};
pub use evaluation::ran_in_evaluation;
pub use in_slot::InSlot;
pub use kinds::kinds;
pub(crate) use kinds::{documentation, known_kinds};
pub use member::Member;
pub use params::Params;
/// Makes a struct a [cell](trait@Cell): it writes the kind, which is the name of the type, and the walk over what the
/// struct holds.
///
/// ```
/// use precast::prelude::*;
///
/// #[derive(Cell, Debug)]
/// struct Head {
///     fc: Child<Dense>,                 // a cell in its slot
///     norms: [Option<Child<LayerNorm>>; 2], // collections of slots
///     scale: Param,                     // trained, or a buffer
///     classes: usize,                   // plain data, which needs no mark
/// }
///
/// impl Forward for Head {
///     fn forward(&self, x: &Tensor) -> Result<Tensor> { self.fc.call(x)?.mul(&self.scale.tensor()) }
/// }
/// ```
///
/// What is a slot or a parameter goes by the type of the field ([`Member`]). A cell outside of a slot does not compile,
/// and neither do a cell, a slot or a parameter inside of a collection that is no `Member`, such as a `HashMap`:
///
/// ```compile_fail,E0277
/// # use precast::prelude::*;
/// #[derive(Cell, Debug)]
/// struct Net { fc: Vec<Dense> } // `Dense` cannot sit in a cell tree; hold a cell in a slot, `Child<..>`
/// # impl Forward for Net {}
/// ```
///
/// # Words
///
/// | above the struct | |
/// | --- | --- |
/// | `#[cell(saved)]` | architecture files can name it; the type derives `Serialize` and `Deserialize` |
/// | `#[cell(kind = "Name")]` | its kind, where that is not the name of the type |
/// | `#[cell(kinds(Name, Name))]` | of a generic type: the names of the types, each a kind. No other type that it makes is a cell |
///
/// A cell that is not saved works everywhere but in architecture files.
///
/// # Generic cells
///
/// A type parameter in a `Child` is a cell. A field of another type parameter is marked `#[cell(data)]`, for it may be
/// anything. All types that a generic struct makes have one kind.
///
/// ```
/// use precast::prelude::*;
///
/// #[derive(Cell, Debug)]
/// struct Scaled<C, T: Copy + Into<f64>> {
///     inner: Child<C>,
///     #[cell(data)]
///     by: T,
/// }
///
/// impl<C: Cell, T: Copy + Into<f64>> Forward for Scaled<C, T> {
///     fn forward(&self, x: &Tensor) -> Result<Tensor> {
///         self.inner.call(x)?.mul(&Tensor::scalar(self.by.into(), DType::F32))
///     }
/// }
/// ```
pub use precast_derive::Cell;
pub(crate) use precast_policy::path::{named, no_such_path};
#[doc(inline)]
pub use precast_policy::{Adapter, Cast, Outline, OutlinedCell, Planned, policy::Pattern};
pub use saved::SavedCell;
pub(crate) use saved::writing;
pub(crate) use site::{HOLD_IT, Site};
pub use trace::{CastOf, NonFinite, Trace, TracedOp};
pub use walk::{Entry, Node, NodeMut, join};

use crate::{
    Tensor,
    error::{Error, Result},
};

/// What a cell computes.
///
/// It never names its own precision: the slot in which the cell sits ([`Child`]) casts what goes in and out, and ops
/// cast their inputs to the dtype of the region they run in. Write [`forward`](Forward::forward), or
/// [`forward_many`](Forward::forward_many) where there are several inputs or outputs.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no `forward`",
    label = "what it computes is missing",
    note = "write `impl Forward for {Self}`, with `fn forward(&self, x: &Tensor) -> Result<Tensor>` in it"
)]
pub trait Forward {
    /// One tensor in, one out.
    ///
    /// # Errors
    /// What the ops inside report; a cell with several inputs reports that it has no single one.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _ = x;
        Err(Error::shape("takes several inputs (call it with all of them), or its `forward` is not written"))
    }

    /// A list of tensors in, a list out. The default hands the only input to [`forward`](Forward::forward).
    ///
    /// # Errors
    /// What the ops inside report, and [`ErrorKind::Shape`](crate::ErrorKind::Shape) for a wrong number of inputs.
    fn forward_many(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        match inputs {
            [x] => Ok(vec![self.forward(x)?]),
            _ => Err(Error::shape(format!("takes 1 input, got {}", inputs.len()))),
        }
    }

    /// The numbers that decide what the next call does, beside parameters: the seed and the calls of a dropout.
    /// [Checkpoints](crate::Checkpoint) keep them. Most cells have none.
    fn counters(&self) -> Vec<u64> {
        vec![]
    }

    /// Takes numbers back that [`counters`](Forward::counters) gave; there are as many as it gives now.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for numbers that the cell cannot have. It is as it was then.
    fn set_counters(&mut self, counters: &[u64]) -> Result<()> {
        let _ = counters;
        Ok(())
    }

    /// Told when the network is switched between training and evaluation. Most cells do not care.
    fn on_train(&mut self, training: bool) {
        let _ = training;
    }
}

/// A layer or a network: a struct whose children sit in slots ([`Child`]). `#[derive(Cell)]` writes this trait.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no cell",
    label = "no cell",
    note = "a struct becomes a cell by `#[derive(Cell, Debug)]` and `impl Forward`"
)]
pub trait Cell: Forward + Any + Debug + Send + Sync {
    /// The kind by which policies, lists and files name this cell: `Dense`.
    fn kind(&self) -> &'static str;

    /// Shows each child cell and parameter with its name, in order.
    fn visit(&self, visitor: &mut dyn FnMut(&str, Node<'_>));

    /// As [`visit`](Cell::visit), mutably.
    fn visit_mut(&mut self, visitor: &mut dyn FnMut(&str, NodeMut<'_>));

    /// The cell as architecture files write it, if its type is marked `#[cell(saved)]`.
    fn saved(&self) -> Option<&dyn SavedCell> {
        None
    }
}

impl dyn Cell {
    /// This cell as a concrete type, if it is one.
    pub fn downcast_ref<C: Cell>(&self) -> Option<&C> {
        let any: &dyn Any = self;
        any.downcast_ref()
    }
}

/// A cell, seen as `dyn Cell`. Holds for every sized cell and for `dyn Cell` itself.
pub trait AsCell {
    /// As a trait object.
    fn as_cell(&self) -> &dyn Cell;
    /// In its slot, as a trait object.
    fn in_slot(cell: &InSlot<Self>) -> &InSlot;
    /// In its slot, as a mutable trait object.
    fn in_slot_mut(cell: &mut InSlot<Self>) -> &mut InSlot;
}

impl<C: Cell> AsCell for C {
    fn as_cell(&self) -> &dyn Cell {
        self
    }
    fn in_slot(cell: &InSlot<C>) -> &InSlot {
        cell
    }
    fn in_slot_mut(cell: &mut InSlot<C>) -> &mut InSlot {
        cell
    }
}

impl AsCell for dyn Cell {
    fn as_cell(&self) -> &dyn Cell {
        self
    }
    fn in_slot(cell: &InSlot) -> &InSlot {
        cell
    }
    fn in_slot_mut(cell: &mut InSlot) -> &mut InSlot {
        cell
    }
}
