//! The record of what a copy of a network has copied.

use std::{
    any::type_name,
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use precast_tensor::LeafId;

use crate::{Param, error::Error};

/// The parameters and counters copied so far, so that what is shared in a network is shared in its copy.
#[derive(Debug, Default)]
pub struct Copies {
    params: HashMap<LeafId, Param>,
    counters: HashMap<usize, Arc<AtomicU64>>,
}

impl Copies {
    /// Returns the copy of a parameter; the same for every handle.
    pub fn param(&mut self, param: &Param) -> Param {
        self.params.entry(param.id()).or_insert_with(|| param.deep_copy()).clone()
    }

    /// Returns the copy of a counter that clones of a cell share.
    pub(super) fn counter(&mut self, counter: &Arc<AtomicU64>) -> Arc<AtomicU64> {
        let copy = || Arc::new(AtomicU64::new(counter.load(Ordering::Relaxed)));
        self.counters.entry(Arc::as_ptr(counter) as usize).or_insert_with(copy).clone()
    }
}

/// Returns the error of a field that cannot be copied.
pub(super) fn not_copied<T: ?Sized>() -> Error {
    Error::value(format!(
        "a field of type {} cannot be copied; plain data must be `Clone`, and a `Member` written by hand needs a `copied`",
        type_name::<T>()
    ))
}
