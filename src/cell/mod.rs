//! Trees of cells: the trait, the slot that holds a cell, parameters, paths and walks.

mod asked;
mod call;
mod child;
mod copies;
mod copy;
mod delayed;
#[doc(hidden)]
#[allow(missing_docs)]
pub mod derived;
mod evaluation;
mod file;
mod freeze;
mod in_slot;
mod inner;
mod kinds;
mod member;
mod number;
mod outline;
mod params;
mod recompute;
mod saved;
mod site;
mod trace;
mod walk;

use std::{any::Any, fmt::Debug};

pub(crate) use asked::{Asked, Described, Wrong};
pub use child::{Castable, Child, Slot, SlotMut};
pub use copies::Copies;
pub(crate) use copy::Towards;
pub use evaluation::ran_in_evaluation;
pub(crate) use file::NamedSlot;
pub use in_slot::InSlot;
pub use inner::Inner;
pub use kinds::kinds;
pub(crate) use kinds::{known_kinds, registered};
pub use member::Member;
pub use params::Params;
pub(crate) use precast_base::path::{named, no_such_path};
/// Derives [`Cell`](trait@Cell) for a struct: its kind, which is the name of the type, and the walk over its fields.
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
/// The type of a field decides whether it is a slot or a parameter ([`Member`]). A cell outside a slot does not
/// compile, and neither does a cell, slot or parameter inside a collection that is not a `Member`, such as a `HashMap`:
///
/// ```compile_fail,E0277
/// # use precast::prelude::*;
/// #[derive(Cell, Debug)]
/// struct Net { fc: Vec<Dense> } // `Dense` cannot sit in a cell tree; hold a cell in a slot, `Child<..>`
/// # impl Forward for Net {}
/// ```
///
/// # Attributes
///
/// | above the struct | |
/// | --- | --- |
/// | `#[cell(new)]` | `new`, which takes the fields in order; a slot is given as its cell |
/// | `#[cell(saved)]` | architecture files can name it; the type must derive `Serialize` and `Deserialize` |
/// | `#[cell(kind = "Name")]` | its kind, if different from the name of the type |
/// | `#[cell(kinds(Name, Name))]` | of a generic type: the names of the types, each of them a kind. No other instance is a cell |
///
/// A cell that is not saved works everywhere except in architecture files.
///
/// # Constructor
///
/// `#[cell(new)]` writes a `new` as visible as the struct. A struct with a `new` of its own fills its slots by `into`.
///
/// ```
/// use precast::prelude::*;
///
/// #[derive(Cell, Debug)]
/// #[cell(new)]
/// struct Net { conv: Child<Conv2d>, norm: Child<BatchNorm2d>, head: Child<Dense> }
/// # impl Forward for Net {}
///
/// #[derive(Cell, Debug)]
/// struct Twin { left: Child<Dense>, right: Child<Dense> }
/// # impl Forward for Twin {}
///
/// impl Twin {
///     fn new(width: usize, rng: &mut Rng) -> Self {
///         Twin { left: Dense::new(width, width, rng).into(), right: Dense::new(width, width, rng).into() }
///     }
/// }
///
/// let rng = &mut Rng::seed(1);
/// let net = Child::new(Net::new(Conv2d::new(1, 8, 3, rng), BatchNorm2d::new(8), Dense::new(72, 10, rng)));
/// let twin = Child::new(Twin::new(4, rng));
/// assert_eq!((net.named_params().len(), twin.named_params().len()), (8, 4));
/// ```
///
/// # Generic cells
///
/// A type parameter in a `Child` is a cell. A field of any other type parameter must be marked `#[cell(data)]`, since
/// it may be anything. All instances of a generic struct have one kind.
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
#[doc(inline)]
pub use precast_policy::{Adapter, Cast, Outline, OutlinedCell, Planned, policy::Pattern};
pub use saved::SavedCell;
pub(crate) use saved::writing;
pub(crate) use site::{HOLD_IT, Site};
pub use trace::{Trace, TracedOp};
pub(crate) use walk::join;
pub use walk::{Part, PartMut, Visited};

use crate::{
    Tensor,
    error::{Error, Result},
};

/// The computation of a cell.
///
/// A cell never names its own precision: its slot ([`Child`]) casts its inputs and outputs, and ops cast their inputs
/// to the dtype of the region they run in. Implement [`forward`](Forward::forward), or
/// [`forward_many`](Forward::forward_many) for several inputs or outputs.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no `forward`",
    label = "what it computes is missing",
    note = "write `impl Forward for {Self}`, with `fn forward(&self, x: &Tensor) -> Result<Tensor>` in it"
)]
pub trait Forward {
    /// Computes one output from one input.
    ///
    /// # Errors
    /// Those of the ops inside. A cell with several inputs reports that it does not take a single one.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _ = x;
        Err(Error::shape("takes several inputs (call it with all of them), or its `forward` is not written"))
    }

    /// Computes a list of outputs from a list of inputs. The default passes a single input to
    /// [`forward`](Forward::forward).
    ///
    /// # Errors
    /// Those of the ops inside, and [`ErrorKind::Shape`](crate::ErrorKind::Shape) for a wrong number of inputs.
    fn forward_many(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        match inputs {
            [x] => Ok(vec![self.forward(x)?]),
            _ => Err(Error::shape(format!("takes 1 input, got {}", inputs.len()))),
        }
    }

    /// Returns the state, other than parameters, that determines the next call: the seed and the call count of a
    /// dropout. [Checkpoints](crate::Checkpoint) store it. Most cells have none.
    fn counters(&self) -> Vec<u64> {
        vec![]
    }

    /// Restores numbers returned by [`counters`](Forward::counters); there must be as many as it returns now.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for numbers that are invalid for the cell, which is then
    /// unchanged.
    fn set_counters(&mut self, counters: &[u64]) -> Result<()> {
        let _ = counters;
        Ok(())
    }

    /// Called when the network switches between training and evaluation. Most cells ignore it.
    fn on_train(&mut self, training: bool) {
        let _ = training;
    }
}

/// A layer or a network: a struct whose children are held in slots ([`Child`]). Implemented by `#[derive(Cell)]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a cell",
    label = "no cell",
    note = "a struct becomes a cell by `#[derive(Cell, Debug)]` and `impl Forward`"
)]
pub trait Cell: Forward + Any + Debug + Send + Sync {
    /// Returns the kind by which policies, lists and files name this cell, such as `Dense`.
    fn kind(&self) -> &'static str;

    /// Passes each child cell and parameter with its name to the visitor, in order.
    fn visit(&self, visitor: &mut dyn FnMut(&str, Part<'_>));

    /// Visits mutably, as [`visit`](Cell::visit) does.
    fn visit_mut(&mut self, visitor: &mut dyn FnMut(&str, PartMut<'_>));

    /// Copies the cell, with its own parameters, for [`Child::deep_copy`].
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a field that cannot be copied.
    fn copied(&self, copies: &mut Copies) -> Result<Self>
    where
        Self: Sized;

    /// Copies the cell as [`copied`](Cell::copied) does, into a slot.
    ///
    /// # Errors
    /// As [`copied`](Cell::copied).
    fn copied_in_slot(&self, copies: &mut Copies) -> Result<Child>;

    /// Returns the cell in the form written to architecture files, if its type is marked `#[cell(saved)]`.
    fn saved(&self) -> Option<&dyn SavedCell> {
        None
    }
}

impl dyn Cell {
    /// Returns this cell as a concrete type, if it is of that type.
    pub fn downcast_ref<C: Cell>(&self) -> Option<&C> {
        let any: &dyn Any = self;
        any.downcast_ref()
    }

    /// Returns this cell as a concrete type to change it, if it is of that type.
    pub fn downcast_mut<C: Cell>(&mut self) -> Option<&mut C> {
        let any: &mut dyn Any = self;
        any.downcast_mut()
    }
}

/// A cell viewed as `dyn Cell`. Implemented for every sized cell and for `dyn Cell` itself.
pub trait AsCell {
    /// Returns the cell as a trait object.
    fn as_cell(&self) -> &dyn Cell;
    /// Copies the cell with its own parameters.
    ///
    /// # Errors
    /// As [`Child::deep_copy`].
    fn copied(cell: &InSlot<Self>, copies: &mut Copies) -> Result<Box<InSlot<Self>>>;
    /// Converts a cell in its slot to a trait object.
    fn in_slot(cell: &InSlot<Self>) -> &InSlot;
    /// Converts a cell in its slot to a mutable trait object.
    fn in_slot_mut(cell: &mut InSlot<Self>) -> &mut InSlot;
}

impl<C: Cell> AsCell for C {
    fn as_cell(&self) -> &dyn Cell {
        self
    }
    fn copied(cell: &InSlot<C>, copies: &mut Copies) -> Result<Box<InSlot<C>>> {
        let copy = Cell::copied(&**cell, copies).map_err(|error| error.context(cell.kind()))?;
        Ok(InSlot::new(copy))
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
    fn copied(cell: &InSlot, copies: &mut Copies) -> Result<Box<InSlot>> {
        Ok(cell.copied_in_slot(copies).map_err(|error| error.context(cell.kind()))?.cell)
    }
    fn in_slot(cell: &InSlot) -> &InSlot {
        cell
    }
    fn in_slot_mut(cell: &mut InSlot) -> &mut InSlot {
        cell
    }
}
