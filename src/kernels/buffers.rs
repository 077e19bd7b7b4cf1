//! Memory that is used again: what one training step makes, the next one needs in the same sizes.
//!
//! Fresh memory costs page faults and clearing, which is more than an addition or a relu costs. So kernels [`take`] the
//! vectors they write to, and tensors [`give`] them back when the last one that shares a storage dies. There is one pool
//! behind a lock, and not one for each thread, because a tensor may die on another thread than the one that made it; the
//! lock is held for some tens of nanoseconds. Only what was taken comes back, so the pool never holds more than was in use
//! at once, nor what a user made.

use std::{
    any::{Any, TypeId},
    collections::{BTreeMap, HashSet},
    ops::{Deref, DerefMut},
    sync::{Mutex, PoisonError},
};

/// Bytes of unused memory that are kept for later at most, by all tensors together: 512 MiB, enough for a step of most
/// networks that are trained on a CPU. When more would be kept, all of it is freed; under glibc, which would keep what is
/// freed in blocks of less than 32 MiB for itself, it is told to hand it back to the system.
pub const MAX_KEPT_BYTES: usize = 512 << 20;

/// Buffers of fewer bytes are the allocator's: it is as fast.
const SMALL: usize = 1024;

/// Addresses that are remembered at most; of what never comes back they are remembered for nothing.
const MAX_LENT: usize = 1 << 16;

/// What can be an element of a buffer.
pub(crate) trait Item: Copy + Default + Send + 'static {}
impl<T: Copy + Default + Send + 'static> Item for T {}

struct Pool {
    /// Unused vectors by element type, capacity and address.
    kept: BTreeMap<(TypeId, usize, usize), Box<dyn Any + Send>>,
    /// Bytes of `kept`.
    bytes: usize,
    /// Addresses of the vectors that were taken.
    lent: Option<HashSet<usize>>,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { kept: BTreeMap::new(), bytes: 0, lent: None });

fn bytes_of<T>(capacity: usize) -> usize {
    capacity * size_of::<T>()
}

/// A used vector with room for `len` elements, at most a quarter more; none where there is none, or where it is too small
/// to be kept.
fn used<T: Item>(len: usize) -> Option<Vec<T>> {
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let id = TypeId::of::<T>();
    let (&key, _) = pool.kept.range((id, len, 0)..=(id, len + len / 4, usize::MAX)).next()?;
    let vector = *pool.kept.remove(&key)?.downcast::<Vec<T>>().ok()?;
    pool.bytes -= bytes_of::<T>(key.1);
    pool.lent.get_or_insert_default().insert(key.2);
    Some(vector)
}

/// Remembers a vector that was made because there was none.
fn lent<T>(vector: Vec<T>) -> Vec<T> {
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let lent = pool.lent.get_or_insert_default();
    if lent.len() == MAX_LENT {
        lent.clear();
    }
    lent.insert(vector.as_ptr() as usize);
    vector
}

/// A used vector with room for `len` elements, after `prepare`, or a `fresh` one.
fn used_or<T: Item>(len: usize, prepare: impl FnOnce(&mut Vec<T>), fresh: impl FnOnce() -> Vec<T>) -> Vec<T> {
    if bytes_of::<T>(len) < SMALL {
        return fresh();
    }
    match used(len) {
        Some(mut vector) => {
            prepare(&mut vector);
            vector
        }
        None => lent(fresh()),
    }
}

/// A vector of `len` elements, whatever they are: for those who write all of them.
pub(crate) fn take<T: Item>(len: usize) -> Vec<T> {
    used_or(len, |vector| vector.resize(len, T::default()), || vec![T::default(); len])
}

/// A vector of `len` zeros.
pub(crate) fn zeros<T: Item>(len: usize) -> Vec<T> {
    let clear = |vector: &mut Vec<T>| {
        vector.clear();
        vector.resize(len, T::default());
    };
    used_or(len, clear, || vec![T::default(); len])
}

/// An empty vector with room for `len` elements.
pub(crate) fn room<T: Item>(len: usize) -> Vec<T> {
    used_or(len, Vec::clear, || Vec::with_capacity(len))
}

/// A copy.
pub(crate) fn copied<T: Item>(from: &[T]) -> Vec<T> {
    let mut vector = room(from.len());
    vector.extend_from_slice(from);
    vector
}

/// Takes a vector back; frees it when it was never taken.
pub(crate) fn give<T: Item>(vector: Vec<T>) {
    let bytes = bytes_of::<T>(vector.capacity());
    if !(SMALL..=MAX_KEPT_BYTES).contains(&bytes) {
        return;
    }
    let key = (TypeId::of::<T>(), vector.capacity(), vector.as_ptr() as usize);
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    if !pool.lent.as_mut().is_some_and(|lent| lent.remove(&key.2)) {
        return;
    }
    let full = pool.bytes + bytes > MAX_KEPT_BYTES;
    let unused = if full { std::mem::take(&mut pool.kept) } else { BTreeMap::new() };
    pool.bytes = if full { bytes } else { pool.bytes + bytes };
    pool.kept.insert(key, Box::new(vector));
    drop(pool);
    if full {
        drop(unused);
        hand_back_to_system();
    }
}

/// Asks the allocator to return what was freed. glibc keeps blocks that are not at the end of its heap, and raises the size
/// from which a block is a mapping of its own, which is unmapped at once, up to 32 MiB. Other allocators return memory of
/// their own accord.
fn hand_back_to_system() {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    {
        // SAFETY: glibc declares it so, in `malloc.h`.
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> i32;
        }
        // SAFETY: it takes a number, may be called from any thread, and touches no block that is in use.
        unsafe { malloc_trim(0) };
    }
}

/// A vector that is given back when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Lent<T: Item>(Vec<T>);

/// As [`take`], until dropped.
pub(crate) fn lend<T: Item>(len: usize) -> Lent<T> {
    Lent(take(len))
}

/// At most `room_for` items as they come, until dropped.
pub(crate) fn collected<T: Item>(room_for: usize, items: impl Iterator<Item = T>) -> Lent<T> {
    let mut vector = room(room_for);
    vector.extend(items);
    Lent(vector)
}

impl<T: Item> Lent<T> {
    /// The vector itself, to be kept.
    pub fn into_vec(mut self) -> Vec<T> {
        std::mem::take(&mut self.0)
    }
}

impl<T: Item> From<Vec<T>> for Lent<T> {
    fn from(vector: Vec<T>) -> Self {
        Lent(vector)
    }
}

impl<T: Item> Deref for Lent<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T: Item> DerefMut for Lent<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

impl<T: Item> Drop for Lent<T> {
    fn drop(&mut self) {
        give(std::mem::take(&mut self.0));
    }
}

/// Elements as they stand somewhere, or a copy of them in another order or format.
#[derive(Debug)]
pub(crate) enum Elements<'a, T: Item> {
    Borrowed(&'a [T]),
    Lent(Lent<T>),
}

impl<T: Item> Elements<'_, T> {
    /// A vector of the elements.
    pub fn into_vec(self) -> Vec<T> {
        match self {
            Elements::Borrowed(slice) => copied(slice),
            Elements::Lent(lent) => lent.into_vec(),
        }
    }
}

impl<T: Item> Default for Elements<'_, T> {
    fn default() -> Self {
        Elements::Borrowed(&[])
    }
}

impl<T: Item> Deref for Elements<'_, T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        match self {
            Elements::Borrowed(slice) => slice,
            Elements::Lent(lent) => lent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Other tests use the pool at the same time, each of these a type of its own.

    #[test]
    fn what_was_given_is_taken_again() {
        #[derive(Clone, Copy, Default, PartialEq, Debug)]
        struct Own(u32);
        let mut vector = take::<Own>(1000);
        let address = vector.as_ptr();
        vector.fill(Own(7));
        vector.truncate(900);
        give(vector);
        assert!(used::<Own>(799).is_none(), "it would waste more than a quarter");
        assert!(used::<Own>(1001).is_none(), "it is too small");
        let vector = take::<Own>(950);
        assert_eq!((vector.as_ptr(), vector.len()), (address, 950));
        assert!(vector[..900].iter().all(|&x| x == Own(7)), "it is not cleared");
        give(vector);
        let vector = zeros::<Own>(1000);
        assert_eq!(vector.as_ptr(), address);
        assert!(vector.iter().all(|&x| x == Own(0)));
        give(vector);
        let vector = room::<Own>(800);
        assert_eq!((vector.as_ptr(), vector.len()), (address, 0));
        let other = room::<Own>(800);
        assert_ne!(other.as_ptr(), address, "it is in use");
        drop(Lent(vector));
        let copy = copied(&[Own(3); 800]);
        assert_eq!(copy.as_ptr(), address);
    }

    #[test]
    fn neither_what_was_never_taken_nor_what_is_small_is_kept() {
        #[derive(Clone, Copy, Default)]
        struct Own(#[allow(dead_code)] u64);
        give(vec![Own(1); 1000]);
        assert!(used::<Own>(1000).is_none());
        give(take::<Own>(100));
        assert!(used::<Own>(100).is_none());
        give(Vec::<Own>::new());
    }
}
