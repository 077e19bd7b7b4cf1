//! Helper threads. A helper spins for a while after a piece of work, because within a training step the next piece
//! follows soon, and waking a thread takes longer than many kernels. Then it sleeps.
//!
//! There is one job at a time, in the [`Slot`]. A caller locks the slot, stores its job there, and waits until all
//! pieces are done. A thread takes a piece by decrementing the count of pieces left, so the caller waits for that
//! piece. A thread that finds no piece left reads nothing else of the job. So a helper that wakes late finds no piece,
//! and the caller does not wait for it.

use std::{
    any::Any,
    hint,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    ptr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering},
    },
    thread::{self, Builder, Thread, available_parallelism},
    time::{Duration, Instant},
};

/// Time that a helper spins before it sleeps. The kernels of a step mostly follow within 100 microseconds. With this
/// time, a step of the networks in the benches wakes a helper about once in ten milliseconds.
const AWAKE: Duration = Duration::from_millis(1);

/// Number of spins, some tens of microseconds, before a waiting thread yields its core at every spin. Others may need
/// the core, in particular the thread being waited for.
const SPINS: u32 = 2000;

/// Function called with the number of each piece. It is a pointer rather than a reference, because the caller may drop
/// its target once the last piece is done, while the function that received the pointer is still returning.
type Work<'a> = *const (dyn Fn(usize) + Sync + 'a);

/// Helper threads, which run until this is dropped.
pub(super) struct Helpers {
    slot: Arc<Slot>,
    threads: Vec<Thread>,
}

/// Place of one job, shared by callers and helpers.
struct Slot {
    /// Lock held by the caller of the job.
    lock: Mutex<()>,
    job: AtomicPtr<Work<'static>>,
    /// Number of pieces not yet taken by a thread.
    left: AtomicUsize,
    /// Number of unfinished pieces, taken or not.
    unfinished: AtomicUsize,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// Helpers that sleep, or are about to.
    asleep: Box<[AtomicBool]>,
    shutdown: AtomicBool,
}

impl Helpers {
    /// Starts `count` helpers, or as many as the system allows.
    pub fn new(count: usize) -> Self {
        let slot = Arc::new(Slot {
            lock: Mutex::default(),
            job: AtomicPtr::default(),
            left: AtomicUsize::new(0),
            unfinished: AtomicUsize::new(0),
            panic: Mutex::default(),
            asleep: (0..count).map(|_| AtomicBool::new(false)).collect(),
            shutdown: AtomicBool::new(false),
        });
        // Helpers beyond the number of cores do not spin: they would take cores from the others.
        let cores = available_parallelism().map_or(1, usize::from);
        let threads = (0..count).map_while(|number| {
            let slot = slot.clone();
            let awake = if number + 1 < cores { AWAKE } else { Duration::ZERO };
            let helper =
                Builder::new().name(format!("precast-{number}")).spawn(move || slot.help(number, awake)).ok()?;
            Some(helper.thread().clone())
        });
        let threads = threads.collect();
        Helpers { slot, threads }
    }

    pub fn count(&self) -> usize {
        self.threads.len()
    }

    /// Calls `work` with each number below `pieces`, which is at least 1. The calling thread takes pieces until none is
    /// left. If the helpers work for another caller, or for an outer call of this thread, it does all of them. A panic
    /// in a piece is resumed when all pieces are done.
    pub fn share(&self, pieces: usize, work: &(dyn Fn(usize) + Sync)) {
        let slot = &*self.slot;
        let Ok(lock) = slot.lock.try_lock() else {
            return (0..pieces).for_each(work);
        };
        let others = pieces - 1;
        let work: Work = work;
        slot.job.store(ptr::from_ref(&work).cast_mut().cast(), Ordering::Relaxed);
        slot.unfinished.store(pieces, Ordering::Relaxed);
        // Release, for the stores above and the caller's earlier writes. Sequentially consistent with `asleep`: a
        // helper either sees these pieces before it sleeps, or is seen asleep here.
        slot.left.store(others, Ordering::SeqCst);
        for (thread, asleep) in self.threads.iter().zip(&slot.asleep).take(others) {
            if asleep.load(Ordering::SeqCst) && asleep.swap(false, Ordering::SeqCst) {
                thread.unpark();
            }
        }
        // SAFETY: `work` was a reference that outlives this call.
        unsafe { slot.run_piece(work, 0) };
        while slot.take_piece() {}
        // Acquire, for the writes of the helpers.
        wait(|| slot.unfinished.load(Ordering::Acquire) == 0, || false);
        let panic = slot.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(lock);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        self.slot.shutdown.store(true, Ordering::SeqCst);
        self.threads.iter().for_each(Thread::unpark);
    }
}

impl Slot {
    /// Runs the loop of a helper, until shutdown.
    fn help(&self, number: usize, awake: Duration) {
        let asleep = &self.asleep[number];
        while !self.shutdown.load(Ordering::SeqCst) {
            while self.take_piece() {}
            let since = Instant::now();
            if wait(|| self.is_signalled(), || since.elapsed() >= awake) {
                continue;
            }
            asleep.store(true, Ordering::SeqCst);
            // `park` may return spuriously.
            while asleep.load(Ordering::SeqCst) && !self.is_signalled() {
                thread::park();
            }
            asleep.store(false, Ordering::SeqCst);
        }
    }

    /// Returns whether there is a piece to take, or a shutdown.
    fn is_signalled(&self) -> bool {
        self.left.load(Ordering::SeqCst) > 0 || self.shutdown.load(Ordering::SeqCst)
    }

    /// Takes a piece and runs it; returns `false` if none is left.
    fn take_piece(&self) -> bool {
        let taken = self.left.fetch_update(Ordering::Acquire, Ordering::Relaxed, |left| left.checked_sub(1));
        let Ok(piece) = taken else { return false };
        // SAFETY: the caller of the job stored `job` before it made `left` positive, with release. Only threads that
        // took pieces have changed `left` since. So `job` is that caller's pointer to a local variable of its `share`.
        // It stays valid, and no other job replaces it, until `unfinished` is zero, which this piece prevents.
        unsafe { self.run_piece(*self.job.load(Ordering::Relaxed), piece) };
        true
    }

    /// Runs a piece that was taken.
    ///
    /// # Safety
    /// `work` is valid until the piece is done.
    unsafe fn run_piece(&self, work: Work, piece: usize) {
        // SAFETY: guaranteed by the caller; the piece is not done before this returns.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| unsafe { (*work)(piece) })) {
            *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
        }
        // Release, for the writes of the piece. After this, the caller may have returned, and `work` may be dangling.
        self.unfinished.fetch_sub(1, Ordering::Release);
    }
}

/// Spins until `done` or until `late`. Returns whether it is done.
fn wait(done: impl Fn() -> bool, late: impl Fn() -> bool) -> bool {
    let mut spins = 0_u32;
    while !done() {
        spins = spins.wrapping_add(1);
        // Reading the clock takes as long as several spins.
        if spins.is_multiple_of(16) && late() {
            return false;
        }
        if spins < SPINS { hint::spin_loop() } else { thread::yield_now() }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread};

    use super::*;

    /// Returns a reduced count under Miri, which checks each access and takes a thousand times as long.
    const fn times(count: usize) -> usize {
        if cfg!(miri) { count.div_ceil(50) } else { count }
    }

    /// Calls `share` with several numbers of pieces. Checks that each piece is done once, and that the caller sees its
    /// work.
    fn share_often(helpers: &Helpers, times: usize, before: impl Fn(usize)) {
        for time in 0..times {
            before(time);
            let pieces = 1 + time % 11;
            let places: Vec<AtomicUsize> = (0..pieces).map(|_| AtomicUsize::new(0)).collect();
            helpers.share(pieces, &|piece| {
                places[piece].fetch_add(time + 1, Ordering::Relaxed);
            });
            assert!(places.iter().all(|place| place.load(Ordering::Relaxed) == time + 1), "{pieces} pieces");
        }
    }

    #[test]
    fn each_piece_is_done_once_by_any_number_of_threads() {
        for count in [0, 1, 2, 7] {
            let helpers = Helpers::new(count);
            assert_eq!(helpers.count(), count);
            share_often(&helpers, times(2000), |_| {});
            // Some of these calls find the helpers asleep, or falling asleep.
            share_often(&helpers, times(100).max(10), |time| thread::sleep(AWAKE * (time % 5) as u32 / 4));
        }
    }

    #[test]
    fn a_caller_that_finds_the_helpers_busy_works_alone() {
        for count in [1, 7] {
            let helpers = Helpers::new(count);
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| share_often(&helpers, times(500), |_| {}));
                }
            });
            helpers.share(5, &|_| share_often(&helpers, times(20), |_| {}));
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_when_the_other_pieces_are_done() {
        for count in [0, 1, 2, times(7)] {
            let helpers = Helpers::new(count);
            for bad in [0, 1, 5] {
                let done = AtomicUsize::new(0);
                let panic = catch_unwind(AssertUnwindSafe(|| {
                    helpers.share(6, &|piece| {
                        assert!(piece != bad, "piece {bad}");
                        done.fetch_add(1, Ordering::Relaxed);
                    });
                }));
                assert_eq!(panic.unwrap_err().downcast_ref::<String>(), Some(&format!("piece {bad}")));
                assert_eq!(done.into_inner(), 5);
                share_often(&helpers, times(100), |_| {});
            }
        }
    }

    #[test]
    fn helpers_end_with_their_team() {
        for nap in [Duration::ZERO, AWAKE / 2, AWAKE * 4] {
            let helpers = Helpers::new(3);
            share_often(&helpers, 10, |_| {});
            thread::sleep(nap);
            let slot = Arc::downgrade(&helpers.slot);
            drop(helpers);
            let since = Instant::now();
            while slot.strong_count() > 0 {
                assert!(since.elapsed() < Duration::from_secs(60), "a helper stays");
                thread::sleep(AWAKE);
            }
        }
    }
}
