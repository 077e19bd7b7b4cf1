//! Facts about the tensors of a pass: where each was written, or its numbers in another pass.

use std::collections::HashMap;

use precast::{Tensor, WeakTensor};

/// Facts by the identity of a tensor. It keeps identities from being used again, without keeping numbers.
#[derive(Debug)]
pub(crate) struct Beside<T> {
    facts: HashMap<usize, T>,
    held: Vec<WeakTensor>,
}

impl<T> Default for Beside<T> {
    fn default() -> Self {
        Beside { facts: HashMap::new(), held: Vec::new() }
    }
}

impl<T> Beside<T> {
    pub fn is_empty(&self) -> bool {
        self.facts.is_empty()
    }

    /// Returns the fact about a tensor, or about the 16-bit source of a widening.
    pub fn get(&self, x: &Tensor) -> Option<&T> {
        self.at(x.identity()).or_else(|| self.at(x.source()?.identity()))
    }

    /// Returns the fact about the tensor of an identity.
    pub fn at(&self, identity: usize) -> Option<&T> {
        self.facts.get(&identity)
    }

    pub fn insert(&mut self, x: &Tensor, fact: T) {
        self.insert_at(x.downgrade(), fact);
    }

    pub fn insert_at(&mut self, x: WeakTensor, fact: T) {
        self.facts.insert(x.identity(), fact);
        self.held.push(x);
    }

    /// Keeps the identity of a tensor without a fact.
    pub fn hold(&mut self, x: &Tensor) {
        self.held.push(x.downgrade());
    }
}
