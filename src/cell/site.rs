//! Where a slot stood when a plan was applied, so that a call which contradicts the plan is an error.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use super::walk::{below, named};
use super::{AsCell, Child, NodeMut, SlotMut};
use crate::{
    DType,
    error::{Error, Result},
    precision,
};

/// Where a slot stood when a plan was applied, and what code had asked for.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    path: Arc<str>,
    /// That of its adapter, where there is one.
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
    /// The number of the adapter in this slot.
    pub fn number(&self) -> Option<u64> {
        self.number
    }

    /// Checks a call, before the adapter of the slot is entered: that it runs in the adapter in which the slot stands, and that
    /// code asks for what it asked for then.
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

impl<C: ?Sized + AsCell> Child<C> {
    /// Tells every slot where it stands. A plan does so when all its adapters are in place.
    pub(crate) fn settle(&mut self) {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);

        fn go(slot: &mut SlotMut<'_>, path: &mut String, around: Option<&Around>) {
            let number = slot.adapts().then(|| NUMBERS.fetch_add(1, Ordering::Relaxed));
            let here: Arc<str> = path.as_str().into();
            *slot.site = Some(Site { path: here.clone(), number, around: around.cloned(), to_float: slot.to_float() });
            let own = number.map(|number| Around { number, path: here });
            let around = own.as_ref().or(around);
            slot.cell.visit_mut(&mut |name, node| {
                if let NodeMut::Cell(mut slot) = node {
                    below(path, name, |path| go(&mut slot, path, around));
                }
            });
        }
        go(&mut self.slot_mut(), &mut String::new(), None);
    }
}
