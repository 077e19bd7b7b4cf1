//! The site of a slot when a plan was applied, used to report calls that contradict the plan.

use std::sync::Arc;

use precast_tensor::context::{self, Quantizer};

use super::named;
use crate::{
    DType,
    error::{Error, Result},
};

/// The site of a slot when a plan was applied, and the dtype requested in code at that time.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(super) path: Arc<str>,
    /// The number of its adapter, if it has one.
    pub(super) number: Option<u64>,
    /// The nearest adapter around it.
    pub(super) around: Option<Around>,
    pub(super) to_float: Option<DType>,
    /// The operands of its products, if a plan quantizes them.
    pub(super) quantizer: Option<Arc<Quantizer>>,
}

/// An adapter around a slot.
#[derive(Clone, Debug)]
pub(super) struct Around {
    pub number: u64,
    pub path: Arc<str>,
}

impl Site {
    /// Returns the number of the adapter in this slot.
    pub fn number(&self) -> Option<u64> {
        self.number
    }

    /// Returns the operands of the products of the cell, if a plan quantizes them.
    pub fn quantizer(&self) -> Option<&Arc<Quantizer>> {
        self.quantizer.as_ref()
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
            Some(around) if context::adapter() != Some(around.number) => {
                let (cell, slot) = (named(&self.path), named(&around.path));
                Err(Error::plan(format!(
                    "{cell} is called past the slot of {slot}, whose precision the applied plan changes; call it by `part` of the \
                     network, or inside of `call` or `with` of that slot, or apply the policy to the network as it is now"
                )))
            }
            _ => Ok(()),
        }
    }
}

/// Advice for a cell that a walk over the network does not reach.
pub(crate) const HOLD_IT: &str = "hold it in a field of type `Child`, or in a `Vec`, `Option` or `BTreeMap` of these";
