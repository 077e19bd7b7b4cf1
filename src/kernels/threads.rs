//! One pool of threads for all kernels.
//!
//! Work is split by results, never within a sum, so no bit depends on the number of threads.

use std::{
    marker::PhantomData,
    ops::Range,
    sync::{Arc, PoisonError, RwLock},
};

use rayon::{
    ThreadPool, ThreadPoolBuilder,
    iter::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator},
    slice::ParallelSliceMut,
};

/// Multiplications and additions below which waking other threads costs more than it saves (a wake-up takes 5 to 20
/// microseconds).
pub(crate) const SMALL: usize = 2 << 20;

static POOL: RwLock<Option<Arc<ThreadPool>>> = RwLock::new(None);

/// Sets how many threads the kernels use from now on; 0 means one for each core.
///
/// Without a call it is what the environment variable `PRECAST_THREADS` says, or one for each core. Results do not depend
/// on it: the same seed gives the same bits with any number of threads.
///
/// ```
/// precast::set_threads(1);
/// ```
pub fn set_threads(count: usize) {
    *POOL.write().unwrap_or_else(PoisonError::into_inner) = Some(start(count));
}

fn start(count: usize) -> Arc<ThreadPool> {
    let pool = ThreadPoolBuilder::new().num_threads(count).thread_name(|i| format!("precast-{i}")).build();
    // A machine that gives no threads still has the one that asks.
    let alone = || ThreadPoolBuilder::new().num_threads(1).use_current_thread().build();
    Arc::new(pool.or_else(|_| alone()).expect("a pool of the current thread needs none"))
}

fn pool() -> Arc<ThreadPool> {
    if let Some(pool) = &*POOL.read().unwrap_or_else(PoisonError::into_inner) {
        return pool.clone();
    }
    let wanted = std::env::var("PRECAST_THREADS").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut pool = POOL.write().unwrap_or_else(PoisonError::into_inner);
    pool.get_or_insert_with(|| start(wanted)).clone()
}

/// How many threads the kernels use.
pub(crate) fn count() -> usize {
    pool().current_num_threads()
}

/// Calls `f` with parts of `0..len` that begin at multiples of `unit`; on several threads when `work` multiplications and
/// additions are worth it.
pub(crate) fn split(len: usize, unit: usize, work: usize, f: impl Fn(Range<usize>) + Sync) {
    let units = len.div_ceil(unit);
    if work < SMALL || units < 2 {
        return if len > 0 {
            f(0..len)
        };
    }
    let pool = pool();
    let parts = pool.current_num_threads().min(units);
    if parts == 1 {
        return f(0..len);
    }
    let start = |part: usize| (units * part / parts * unit).min(len);
    pool.install(|| (0..parts).into_par_iter().with_max_len(1).for_each(|part| f(start(part)..start(part + 1))));
}

/// Calls `f` with each chunk of `out` and its number; on several threads when `work` is worth it.
pub(crate) fn chunks<T: Send>(out: &mut [T], size: usize, work: usize, f: impl Fn(usize, &mut [T]) + Sync) {
    if out.len() <= size || work < SMALL || pool().current_num_threads() == 1 {
        return out.chunks_mut(size).enumerate().for_each(|(i, chunk)| f(i, chunk));
    }
    pool().install(|| out.par_chunks_mut(size).enumerate().for_each(|(i, chunk)| f(i, chunk)));
}

/// A slice to which several threads write, each to elements of its own.
pub(crate) struct Shared<'a, T> {
    start: *mut T,
    len: usize,
    borrowed: PhantomData<&'a mut [T]>,
}

impl<T> Clone for Shared<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Shared<'_, T> {}

// SAFETY: it is a borrowed slice whose users write to elements of their own; each use says why.
unsafe impl<T: Send> Send for Shared<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    pub fn new(slice: &'a mut [T]) -> Self {
        Shared { start: slice.as_mut_ptr(), len: slice.len(), borrowed: PhantomData }
    }

    /// The place of an element.
    #[inline(always)]
    pub fn at(self, index: usize) -> *mut T {
        debug_assert!(index < self.len);
        self.start.wrapping_add(index)
    }

    /// The place where some elements begin, maybe none.
    #[inline(always)]
    pub fn from(self, index: usize) -> *mut T {
        debug_assert!(index <= self.len);
        self.start.wrapping_add(index)
    }
}
