//! A pool of vectors: what one training step allocates, the next one needs in the same sizes.
//!
//! Fresh memory costs page faults and clearing, which is more than an addition or a relu costs. So kernels allocate the
//! vectors they write to from the pool, and tensors [`recycle`] them when the last one that shares a storage dies. There is
//! one pool behind a lock, and not one for each thread, because a tensor may die on another thread than the one that made
//! it. The lock is held for some tens of nanoseconds. The pool accepts only vectors that it allocated, so it never holds
//! more than was in use at once, nor what a user made.
//!
//! "Uninit" in a name means that the elements are whatever an earlier use left: valid numbers, but any.

use std::{
    any::{Any, TypeId},
    collections::{BTreeMap, HashSet},
    ops::{Deref, DerefMut},
    sync::{Mutex, PoisonError},
};

/// The most bytes of unused memory that the pool of all tensors keeps for later: 512 MiB, enough for a step of most networks
/// that are trained on a CPU. When more would be kept, all of it is freed. glibc would keep what is freed in blocks of less
/// than 32 MiB for itself, so it is asked to return it to the system.
pub const MAX_KEPT_BYTES: usize = 512 << 20;

/// Vectors of fewer bytes are left to the allocator, which is as fast.
const SMALL: usize = 1024;

/// The most addresses that are remembered. Those of vectors that never come back would otherwise pile up.
const MAX_IN_USE: usize = 1 << 16;

/// What can be an element of a pooled vector.
pub(crate) trait Item: Copy + Default + Send + 'static {}
impl<T: Copy + Default + Send + 'static> Item for T {}

struct Pool {
    /// Unused vectors by element type, capacity and address.
    kept: BTreeMap<(TypeId, usize, usize), Box<dyn Any + Send>>,
    /// Bytes of `kept`.
    bytes: usize,
    /// Addresses of the vectors that were allocated and have not come back.
    in_use: Option<HashSet<usize>>,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { kept: BTreeMap::new(), bytes: 0, in_use: None });

fn bytes_of<T>(capacity: usize) -> usize {
    capacity * size_of::<T>()
}

/// A vector from the pool with a capacity of `len` elements or at most a quarter more, if there is one.
fn reused<T: Item>(len: usize) -> Option<Vec<T>> {
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let id = TypeId::of::<T>();
    let (&key, _) = pool.kept.range((id, len, 0)..=(id, len + len / 4, usize::MAX)).next()?;
    let vector = *pool.kept.remove(&key)?.downcast::<Vec<T>>().ok()?;
    pool.bytes -= bytes_of::<T>(key.1);
    pool.in_use.get_or_insert_default().insert(key.2);
    Some(vector)
}

/// Remembers a vector that was made because the pool had none.
fn remembered<T>(vector: Vec<T>) -> Vec<T> {
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let in_use = pool.in_use.get_or_insert_default();
    if in_use.len() == MAX_IN_USE {
        in_use.clear();
    }
    in_use.insert(vector.as_ptr() as usize);
    vector
}

/// A vector from the pool with room for `len` elements, after `prepare`, or a `fresh` one.
fn reused_or<T: Item>(len: usize, prepare: impl FnOnce(&mut Vec<T>), fresh: impl FnOnce() -> Vec<T>) -> Vec<T> {
    if bytes_of::<T>(len) < SMALL {
        return fresh();
    }
    match reused(len) {
        Some(mut vector) => {
            prepare(&mut vector);
            vector
        }
        None => remembered(fresh()),
    }
}

/// A vector of `len` elements, for those who write all of them.
pub(crate) fn uninit_vec<T: Item>(len: usize) -> Vec<T> {
    reused_or(len, |vector| vector.resize(len, T::default()), || vec![T::default(); len])
}

/// A vector of `len` zeros.
pub(crate) fn zeros<T: Item>(len: usize) -> Vec<T> {
    let clear = |vector: &mut Vec<T>| {
        vector.clear();
        vector.resize(len, T::default());
    };
    reused_or(len, clear, || vec![T::default(); len])
}

/// An empty vector with room for `len` elements.
pub(crate) fn with_capacity<T: Item>(len: usize) -> Vec<T> {
    reused_or(len, Vec::clear, || Vec::with_capacity(len))
}

/// A copy.
pub(crate) fn copied<T: Item>(from: &[T]) -> Vec<T> {
    let mut vector = with_capacity(from.len());
    vector.extend_from_slice(from);
    vector
}

/// Returns a vector to the pool; frees it when the pool did not allocate it.
pub(crate) fn recycle<T: Item>(vector: Vec<T>) {
    let bytes = bytes_of::<T>(vector.capacity());
    if !(SMALL..=MAX_KEPT_BYTES).contains(&bytes) {
        return;
    }
    let key = (TypeId::of::<T>(), vector.capacity(), vector.as_ptr() as usize);
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    if !pool.in_use.as_mut().is_some_and(|in_use| in_use.remove(&key.2)) {
        return;
    }
    let full = pool.bytes + bytes > MAX_KEPT_BYTES;
    let unused = if full { std::mem::take(&mut pool.kept) } else { BTreeMap::new() };
    pool.bytes = if full { bytes } else { pool.bytes + bytes };
    pool.kept.insert(key, Box::new(vector));
    drop(pool);
    if full {
        drop(unused);
        return_to_system();
    }
}

/// Asks the allocator to return freed memory to the system. glibc keeps freed blocks that are not at the end of its heap.
/// Only large blocks are mappings of their own, which are unmapped at once, and glibc raises that threshold up to 32 MiB.
/// Other allocators return memory without being asked.
fn return_to_system() {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    {
        // As glibc declares it in `malloc.h`.
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> i32;
        }
        // SAFETY: `malloc_trim` takes a number, may be called from any thread, and touches no block that is in use.
        unsafe { malloc_trim(0) };
    }
}

/// A guard that recycles its vector when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Pooled<T: Item>(Vec<T>);

impl<T: Item> Pooled<T> {
    /// As [`uninit_vec`].
    pub fn uninit(len: usize) -> Self {
        Pooled(uninit_vec(len))
    }

    /// As [`zeros`].
    pub fn zeros(len: usize) -> Self {
        Pooled(zeros(len))
    }

    /// The items of an iterator, of which there are at most `capacity`.
    pub fn collect(capacity: usize, items: impl Iterator<Item = T>) -> Self {
        let mut vector = with_capacity(capacity);
        vector.extend(items);
        Pooled(vector)
    }

    /// The vector itself, which is no longer recycled here.
    pub fn into_vec(mut self) -> Vec<T> {
        std::mem::take(&mut self.0)
    }
}

impl<T: Item> From<Vec<T>> for Pooled<T> {
    fn from(vector: Vec<T>) -> Self {
        Pooled(vector)
    }
}

impl<T: Item> Deref for Pooled<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T: Item> DerefMut for Pooled<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

impl<T: Item> Drop for Pooled<T> {
    fn drop(&mut self) {
        recycle(std::mem::take(&mut self.0));
    }
}

/// Borrowed elements, or a copy of them in another order or format.
#[derive(Debug)]
pub(crate) enum Elements<'a, T: Item> {
    Borrowed(&'a [T]),
    Pooled(Pooled<T>),
}

impl<T: Item> Elements<'_, T> {
    /// A vector of the elements.
    pub fn into_vec(self) -> Vec<T> {
        match self {
            Elements::Borrowed(slice) => copied(slice),
            Elements::Pooled(vector) => vector.into_vec(),
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
            Elements::Pooled(vector) => vector,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Other tests use the pool at the same time, each of these a type of its own.

    #[test]
    fn what_was_recycled_is_allocated_again() {
        #[derive(Clone, Copy, Default, PartialEq, Debug)]
        struct Own(u32);
        let mut vector = uninit_vec::<Own>(1000);
        let address = vector.as_ptr();
        vector.fill(Own(7));
        vector.truncate(900);
        recycle(vector);
        assert!(reused::<Own>(799).is_none(), "it would waste more than a quarter");
        assert!(reused::<Own>(1001).is_none(), "it is too small");
        let vector = uninit_vec::<Own>(950);
        assert_eq!((vector.as_ptr(), vector.len()), (address, 950));
        assert!(vector[..900].iter().all(|&x| x == Own(7)), "it is not cleared");
        recycle(vector);
        let vector = zeros::<Own>(1000);
        assert_eq!(vector.as_ptr(), address);
        assert!(vector.iter().all(|&x| x == Own(0)));
        recycle(vector);
        let vector = with_capacity::<Own>(800);
        assert_eq!((vector.as_ptr(), vector.len()), (address, 0));
        let other = with_capacity::<Own>(800);
        assert_ne!(other.as_ptr(), address, "it is in use");
        drop(Pooled(vector));
        let copy = copied(&[Own(3); 800]);
        assert_eq!(copy.as_ptr(), address);
    }

    #[test]
    fn neither_what_the_pool_did_not_allocate_nor_what_is_small_is_kept() {
        #[derive(Clone, Copy, Default)]
        struct Own(#[allow(dead_code)] u64);
        let foreign = vec![Own(1); 1000];
        // Where a vector of the pool lay that was dropped and not recycled, its address is still remembered.
        POOL.lock().unwrap().in_use.as_mut().map(|in_use| in_use.remove(&(foreign.as_ptr() as usize)));
        recycle(foreign);
        assert!(reused::<Own>(1000).is_none());
        recycle(uninit_vec::<Own>(100));
        assert!(reused::<Own>(100).is_none());
        recycle(Vec::<Own>::new());
    }
}
