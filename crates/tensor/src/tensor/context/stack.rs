//! Stacks of a context, whose entries leave by their own guards, in any order.

use std::cell::RefCell;

/// Entries with the numbers of their guards, the innermost last.
pub(super) struct Stack<T>(RefCell<Vec<(u64, T)>>);

impl<T> Stack<T> {
    pub const fn new() -> Self {
        Stack(RefCell::new(Vec::new()))
    }

    pub fn push(&self, number: u64, entry: T) {
        self.0.borrow_mut().push((number, entry));
    }

    /// Takes the entry of a guard out, and leaves those of others. The caller drops it, since its `drop` may use the
    /// context.
    pub fn remove(&self, number: u64) -> Option<T> {
        self.remove_with(number, |_, _| {})
    }

    /// Removes an entry, and calls `after` with it and the entries inside it.
    pub fn remove_with(&self, number: u64, after: impl FnOnce(&T, &mut [(u64, T)])) -> Option<T> {
        let mut entries = self.0.borrow_mut();
        let place = entries.iter().rposition(|(of, _)| *of == number)?;
        let (_, removed) = entries.remove(place);
        after(&removed, &mut entries[place..]);
        Some(removed)
    }

    /// Calls `f` with the innermost entry. `f` must not push or remove one.
    pub fn top<R>(&self, f: impl FnOnce(Option<&mut T>) -> R) -> R {
        f(self.0.borrow_mut().last_mut().map(|(_, entry)| entry))
    }

    /// Calls `f` with the entries after the first ones. `f` must not push or remove one.
    pub fn after<R>(&self, first: usize, f: impl FnOnce(&mut dyn Iterator<Item = &T>) -> R) -> R {
        f(&mut self.0.borrow()[first..].iter().map(|(_, entry)| entry))
    }
}
