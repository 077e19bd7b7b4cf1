//! Trees of cells: the trait, the slot a cell sits in, parameters, paths and walking.

mod child;
mod children;
mod evaluation;
mod params;
mod pattern;
mod recompute;
mod trace;
mod walk;

use std::{any::Any, fmt::Debug};

pub use child::{Adapter, Cast, Castable, Child, Planned, Slot, SlotMut};
pub use children::Member;
#[doc(hidden)]
pub use children::{BareCell, PlainDataNotACellOrParameter, SitsInTheTree, marked_as_plain_data, name_of_field};
pub use evaluation::ran_in_evaluation;
pub use params::Params;
pub use pattern::Pattern;
pub use trace::{NonFinite, Trace, TracedOp};
pub(crate) use walk::no_such_path;
pub use walk::{Entry, Node, NodeMut, join};

use crate::{
    Tensor,
    error::{Error, Result},
};

/// A layer or a network.
///
/// A cell never names its own precision: the slot it sits in ([`Child`]) casts what goes in and out, and ops cast their
/// inputs to the dtype of the region they run in.
///
/// An implementation writes `#[typetag::serde]` above itself (its *kind* is then the name of its type), lists its fields
/// with [`children!`](crate::children), and writes [`forward`](Cell::forward), or [`forward_many`](Cell::forward_many) when it has several
/// inputs or outputs.
#[typetag::serde(tag = "kind")]
pub trait Cell: Any + Debug + Send + Sync {
    /// One tensor in, one out.
    ///
    /// # Errors
    /// What the ops inside report; a cell with several inputs reports that it has no single one.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _ = x;
        Err(Error::shape(format!("a {} has several inputs; call it with all of them", self.typetag_name())))
    }

    /// A list of tensors in, a list out. The default hands the only input to [`forward`](Cell::forward).
    ///
    /// # Errors
    /// What the ops inside report, and [`ErrorKind::Shape`](crate::ErrorKind::Shape) for a wrong number of inputs.
    fn forward_many(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        match inputs {
            [x] => Ok(vec![self.forward(x)?]),
            _ => Err(Error::shape(format!("a {} has 1 input, got {}", self.typetag_name(), inputs.len()))),
        }
    }

    /// Shows each child cell and parameter with its name, in order. Written by [`children!`](crate::children).
    fn visit(&self, visitor: &mut dyn FnMut(&str, Node<'_>));

    /// As [`visit`](Cell::visit), mutably. Written by [`children!`](crate::children).
    fn visit_mut(&mut self, visitor: &mut dyn FnMut(&str, NodeMut<'_>));

    /// Told when the network is switched between training and evaluation. Most cells do not care.
    fn on_train(&mut self, training: bool) {
        let _ = training;
    }
}

impl dyn Cell {
    /// The kind by which policies and lists name this cell: `Dense`.
    pub fn kind(&self) -> &'static str {
        self.typetag_name()
    }

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
    /// As a mutable trait object.
    fn as_cell_mut(&mut self) -> &mut dyn Cell;
}

impl<C: Cell> AsCell for C {
    fn as_cell(&self) -> &dyn Cell {
        self
    }
    fn as_cell_mut(&mut self) -> &mut dyn Cell {
        self
    }
}

impl AsCell for dyn Cell {
    fn as_cell(&self) -> &dyn Cell {
        self
    }
    fn as_cell_mut(&mut self) -> &mut dyn Cell {
        self
    }
}
