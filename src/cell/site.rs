//! The site of a slot when a plan was applied, used to report calls that contradict the plan.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use super::{AsCell, Cell, Child, Part, PartMut, SlotMut};
use super::{named, walk::below};
use crate::{
    DType,
    error::{Error, Result},
    precision,
};

/// The site of a slot when a plan was applied, and the dtype requested in code at that time.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    path: Arc<str>,
    /// The number of its adapter, if it has one.
    number: Option<u64>,
    /// The nearest adapter around it.
    around: Option<Around>,
    to_float: Option<DType>,
}

/// An adapter around a slot.
#[derive(Clone, Debug)]
struct Around {
    number: u64,
    path: Arc<str>,
}

impl Site {
    /// Returns the number of the adapter in this slot.
    pub fn number(&self) -> Option<u64> {
        self.number
    }

    /// Checks a call before the adapter of the slot is entered: it must run in the adapter that surrounds the slot, and
    /// the requested dtype must not have changed since.
    pub fn check(&self, to_float: Option<DType>) -> Result<()> {
        if to_float != self.to_float {
            let words = match to_float {
                Some(dtype) => format!("`to_float({})` was asked for", dtype.long_name()),
                None => "`to_float` was taken back".into(),
            };
            return Err(Error::plan(format!(
                "{words} after a plan was applied, which does not know it; apply the policy again"
            )));
        }
        match &self.around {
            Some(around) if precision::adapter() != Some(around.number) => {
                let (cell, slot) = (named(&self.path), named(&around.path));
                Err(Error::plan(format!(
                    "{cell} is called past the slot of {slot}, whose precision the applied plan changes; call it inside of `call` or `with` \
                     of that slot, or apply the policy to the network as it is now"
                )))
            }
            _ => Ok(()),
        }
    }
}

/// Advice for a cell that a walk over the network does not reach.
pub(crate) const HOLD_IT: &str = "hold it in a field of type `Child`, or in a `Vec`, `Option` or `BTreeMap` of these";

/// Checks a call of a cell unknown to any plan: inside a network with an applied plan it may have no parameters.
pub(super) fn check_unplanned(cell: &dyn Cell) -> Result<()> {
    if precision::adapter().is_none() || !has_params(cell) {
        return Ok(());
    }
    Err(Error::plan(format!(
        "a cell with parameters ({}) is called that the applied plan does not know: it came into the network after the plan \
         (then apply the policy again), or the network does not show it (then {HOLD_IT})",
        cell.kind()
    )))
}

/// Returns whether a cell, or one inside it, has parameters or buffers.
pub(super) fn has_params(cell: &dyn Cell) -> bool {
    let mut found = false;
    cell.visit(&mut |_, node| {
        found = found
            || match node {
                Part::Param(_) => true,
                Part::Cell(slot) => has_params(&**slot.cell),
            }
    });
    found
}

impl<C: ?Sized + AsCell> Child<C> {
    /// Records the site of every slot. A plan calls this once all its adapters are in place.
    pub(crate) fn number_adapters(&mut self) {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);

        fn go(slot: &mut SlotMut<'_>, path: &mut String, around: Option<&Around>) {
            let number = slot.adapts().then(|| NUMBERS.fetch_add(1, Ordering::Relaxed));
            let here: Arc<str> = path.as_str().into();
            *slot.site = Some(Site { path: here.clone(), number, around: around.cloned(), to_float: slot.to_float() });
            let own = number.map(|number| Around { number, path: here });
            let around = own.as_ref().or(around);
            slot.cell.visit_mut(&mut |name, node| {
                if let PartMut::Cell(mut slot) = node {
                    below(path, name, |path| go(&mut slot, path, around));
                }
            });
        }
        go(&mut self.slot_mut(), &mut String::new(), None);
    }
}
