//! A cell as borrowed from its slot.

use std::{
    fmt,
    ops::{Deref, DerefMut},
};

use super::Cell;
use crate::{Tensor, error::Result};

/// A cell as borrowed from its slot: all its fields and methods except `forward`, which would bypass its adapter. To
/// run it, use [`call`](crate::Child::call), [`call_many`](crate::Child::call_many) or [`with`](crate::Child::with) of
/// the slot.
///
/// ```compile_fail,E0277
/// use precast::prelude::*;
/// let net = Child::new(Dense::new(2, 1, &mut Rng::seed(1)));
/// assert_eq!(net.cell().weight.shape(), [1, 2]);
/// net.cell().forward(&Tensor::ones(&[3, 2], DType::F32))?; // `forward` of a cell in a slot runs without its adapter
/// # Ok::<(), Error>(())
/// ```
pub struct InSlot<C: ?Sized = dyn Cell>(C);

impl<C: Clone> InSlot<C> {
    /// Returns a copy of the cell, outside any slot. The two share their parameters; see
    /// [`deep_copy`](crate::Child::deep_copy) for one of its own.
    #[expect(clippy::should_implement_trait, reason = "what `clone` of a borrowed cell gave")]
    pub fn clone(&self) -> C {
        self.0.clone()
    }
}

impl<C> InSlot<C> {
    pub(super) fn new(cell: C) -> Box<Self> {
        Box::new(InSlot(cell))
    }
}

/// A trait without implementations, so that `forward` of a borrowed cell does not compile.
#[diagnostic::on_unimplemented(
    message = "`forward` of a cell in a slot runs without its adapter",
    label = "goes past the slot",
    note = "call the slot: `child.call(&x)`, `child.call_many(&inputs)`, or `child.with(inputs, |cell, inputs| ..)` for any method"
)]
pub trait PastItsSlot {
    /// Never called.
    fn never<R>(self) -> R;
}

impl<C: ?Sized> InSlot<C> {
    /// Does not compile: [`call`](crate::Child::call) of the slot applies the adapter.
    pub fn forward<T: PastItsSlot>(&self, x: T) -> Result<Tensor> {
        x.never()
    }

    /// Does not compile: [`call_many`](crate::Child::call_many) of the slot applies the adapter.
    pub fn forward_many<T: PastItsSlot>(&self, inputs: T) -> Result<Vec<Tensor>> {
        inputs.never()
    }
}

impl<C: ?Sized> Deref for InSlot<C> {
    type Target = C;
    fn deref(&self) -> &C {
        &self.0
    }
}

impl<C: ?Sized> DerefMut for InSlot<C> {
    fn deref_mut(&mut self) -> &mut C {
        &mut self.0
    }
}

impl<C: ?Sized + fmt::Debug> fmt::Debug for InSlot<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
