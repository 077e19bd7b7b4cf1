//! One team of threads for all kernels.
//!
//! Work is split by results, never within a sum, so no bit depends on the number of threads.

mod helpers;

use std::{
    cell::Cell,
    marker::PhantomData,
    ops::Range,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread::available_parallelism,
};

use helpers::Helpers;

/// Number of multiply-adds below which work is not split. At this size, 2 to 6 microseconds, two threads take about 0.7
/// of the time of one; at a quarter of it they take as long as one. Waking a helper takes some 9 microseconds, but a
/// helper sleeps only after spinning for a while.
pub const SMALL: usize = 1 << 18;

/// Maximum number of threads.
const MOST: usize = 256;

/// Number of working threads, and the helpers among them.
#[derive(Clone)]
struct Team {
    threads: usize,
    helpers: Option<Arc<Helpers>>,
}

thread_local! {
    static ALONE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f` without help from other threads.
pub fn alone<R>(f: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            ALONE.set(self.0);
        }
    }
    let _restore = Restore(ALONE.replace(true));
    f()
}

/// Number of times work was split among threads, for the test that no bit depends on their number.
pub static SHARED: AtomicUsize = AtomicUsize::new(0);

static TEAM: RwLock<Option<Team>> = RwLock::new(None);

/// Sets the number of threads used by the kernels, including the calling one. 0 means one per core, and more than 256
/// count as 256.
///
/// Default: the environment variable `PRECAST_THREADS`, or one per core if that is unset or not a number. Results do
/// not depend on it: the same seed gives the same bits with any number of threads.
///
/// On machines with different vectors, the last bits of some sums may differ. `PRECAST_VECTORS`, which is 1, 4, 8 or
/// 16, limits the number of f32 in a vector of the kernels (1: no vectors except those of the compiler and of
/// `matrixmultiply`). If unset or anything else, the widest available vectors are used. It is read once.
///
/// ```
/// # use precast_kernels::threads as precast;
/// precast::set_threads(1);
/// ```
pub fn set_threads(count: usize) {
    *TEAM.write().unwrap_or_else(PoisonError::into_inner) = Some(Team::of(count));
}

impl Team {
    fn of(count: usize) -> Team {
        let threads = if count == 0 { available_parallelism().map_or(1, usize::from) } else { count }.min(MOST);
        // If no thread can be started, the calling one works alone.
        match Helpers::new(threads - 1) {
            helpers if helpers.count() > 0 => Team { threads: 1 + helpers.count(), helpers: Some(Arc::new(helpers)) },
            _ => Team { threads: 1, helpers: None },
        }
    }

    fn get() -> Team {
        if ALONE.get() {
            return Team { threads: 1, helpers: None };
        }
        if let Some(team) = &*TEAM.read().unwrap_or_else(PoisonError::into_inner) {
            return team.clone();
        }
        let wanted = std::env::var("PRECAST_THREADS").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
        TEAM.write().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| Team::of(wanted)).clone()
    }

    /// Calls `f` with each number below `pieces`.
    fn share(&self, pieces: usize, f: &(dyn Fn(usize) + Sync)) {
        match &self.helpers {
            Some(helpers) if pieces > 1 => {
                SHARED.fetch_add(1, Ordering::Relaxed);
                helpers.share(pieces, f);
            }
            _ => (0..pieces).for_each(f),
        }
    }
}

/// Returns the number of threads used by the kernels.
pub fn count() -> usize {
    Team::get().threads
}

// The functions below call `f` through a pointer, so that they are compiled once.

/// Calls `f` with parts of `0..len` that begin at multiples of `unit`, on several threads if `work` multiply-adds are
/// worth it.
pub fn split(len: usize, unit: usize, work: usize, f: impl Fn(Range<usize>) + Sync) {
    split_by(len, unit, work, &f);
}

fn split_by(len: usize, unit: usize, work: usize, f: &(dyn Fn(Range<usize>) + Sync)) {
    let units = len.div_ceil(unit);
    if work < SMALL || units < 2 {
        return if len > 0 {
            f(0..len)
        };
    }
    let team = Team::get();
    // On a machine with many cores, each thread still gets a worthwhile amount of work.
    let parts = team.threads.min(units).min(work / (SMALL / 2));
    let start = |part: usize| (units * part / parts * unit).min(len);
    team.share(parts, &|part| f(start(part)..start(part + 1)));
}

/// Calls `f` with each chunk of `out` and its number, on several threads if `work` is worth it.
pub fn chunks<T: Send>(out: &mut [T], size: usize, work: usize, f: impl Fn(usize, &mut [T]) + Sync) {
    let (len, out) = (out.len(), Shared::new(out));
    let chunk: &(dyn Fn(usize) + Sync) = &|i| {
        let (start, end) = (i * size, len.min((i + 1) * size));
        // SAFETY: each chunk is taken once, and chunks do not overlap.
        f(i, unsafe { out.part(start, end - start) });
    };
    let pieces = len.div_ceil(size);
    if work < SMALL { (0..pieces).for_each(chunk) } else { Team::get().share(pieces, chunk) }
}

/// Calls `f` with a range and that part of each of several slices of one length, on several threads if `work` is worth
/// it.
pub fn together<T: Send, U: Send>(
    first: &mut [T],
    others: &mut [&mut [U]],
    work: usize,
    f: impl Fn(Range<usize>, &mut [T], &mut [&mut [U]]) + Sync,
) {
    /// Least number of elements of a part, so that no two threads write to one cache line.
    const UNIT: usize = 1024;
    let len = first.len();
    assert!(others.iter().all(|other| other.len() == len), "slices of one length");
    let first = Shared::new(first);
    let others: Vec<Shared<U>> = others.iter_mut().map(|other| Shared::new(other)).collect();
    split(len, UNIT, work, |range| {
        // SAFETY: parts do not overlap, and all slices have this length.
        let part = unsafe { first.part(range.start, range.len()) };
        let mut parts: Vec<&mut [U]> = others
            .iter()
            // SAFETY: parts do not overlap, and all slices have this length.
            .map(|other| unsafe { other.part(range.start, range.len()) })
            .collect();
        f(range, part, &mut parts);
    });
}

/// Number of elements of a part of [`by_parts`].
pub const PART: usize = 1 << 14;

/// Approximate cost, in multiply-adds, of an element that is read with little computation: most of it is waiting for
/// memory.
pub const PASSED: usize = 8;

/// Calls `f` for every part of some slices, given by their lengths, with the number of the slice and the range of the
/// part. Returns the number of the slice and the result for each part, in order; results are initialized with `start`.
/// The parts are fixed, so that nothing computed from the results depends on the number of threads.
pub fn by_parts<R: Clone + Send>(
    lengths: &[usize],
    start: R,
    f: impl Fn(usize, Range<usize>) -> R + Sync,
) -> Vec<(usize, R)> {
    let of = |(which, &len): (usize, &usize)| (0..len).step_by(PART).map(move |i| (which, i..len.min(i + PART)));
    let parts: Vec<(usize, Range<usize>)> = lengths.iter().enumerate().flat_map(of).collect();
    let mut answers = vec![start; parts.len()];
    chunks(&mut answers, 1, lengths.iter().sum::<usize>() * PASSED, |i, answer| {
        let (which, range) = parts[i].clone();
        answer[0] = f(which, range);
    });
    parts.iter().map(|(which, _)| *which).zip(answers).collect()
}

/// A slice to which several threads write, each to its own elements.
pub struct Shared<'a, T> {
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

// SAFETY: it is a mutable borrow of a slice. Its users write to disjoint elements, and each use says why.
unsafe impl<T: Send> Send for Shared<'_, T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    /// Borrows a slice for several threads.
    pub fn new(slice: &'a mut [T]) -> Self {
        Shared { start: slice.as_mut_ptr(), len: slice.len(), borrowed: PhantomData }
    }

    /// Returns the address of an element.
    #[inline(always)]
    pub fn at(self, index: usize) -> *mut T {
        debug_assert!(index < self.len);
        self.start.wrapping_add(index)
    }

    /// Returns some elements as a slice.
    ///
    /// # Safety
    /// These elements are not accessed elsewhere while the slice lives.
    pub unsafe fn part(self, start: usize, len: usize) -> &'a mut [T] {
        assert!(start <= self.len && len <= self.len - start);
        // SAFETY: the elements are inside, as was asserted; the rest is guaranteed by the caller.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), len) }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, Ordering},
        thread,
    };

    use super::*;

    #[test]
    fn the_number_of_threads_may_change_while_others_work() {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let mut out = vec![0; 5000];
                        chunks(&mut out, 700, SMALL, |i, out| {
                            let inside = Shared::new(out);
                            split(inside.len, 1, SMALL, |some| {
                                // SAFETY: parts do not overlap.
                                unsafe { inside.part(some.start, some.len()) }.iter_mut().for_each(|x| *x += i);
                            });
                        });
                        assert!(out.iter().enumerate().all(|(i, x)| *x == i / 700));
                    }
                });
            }
            // Miri is slow, especially with 255 threads.
            let counts: &[usize] = if cfg!(miri) { &[1, 2, 3] } else { &[1, 2, 3, 8, usize::MAX] };
            for count in counts.iter().cycle().take(8 * counts.len()) {
                set_threads(*count);
            }
            done.store(true, Ordering::Relaxed);
        });
        set_threads(0);
    }
}
