//! The threads that help: awake for a while after a piece of work, because within a training step the next one follows soon
//! and to wake a thread takes longer than many a kernel; asleep in a process that does something else.
//!
//! There is one job at a time, in the [`Slot`]. Its caller alone puts it there, while it has the slot locked, and waits until
//! each of its pieces is done. Whoever takes a piece has taken it off the count of those left, so the caller waits for it; whoever
//! finds none left looks at nothing else of the job. So a helper that comes late finds no piece and is not waited for.

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

/// How long a helper looks for the next piece before it sleeps: the kernels of a step mostly follow within 100 microseconds,
/// and with this much a step of the benched networks wakes a helper about once in ten milliseconds.
const AWAKE: Duration = Duration::from_millis(1);

/// Looks at what another thread does, some tens of microseconds, before this one offers its core to others at every look:
/// they may need it, above all the very thread that is waited for.
const SPINS: u32 = 2000;

/// What is called with the number of each piece. A pointer and no reference: when the last piece is done the caller may
/// drop what it points to, while the function that was handed the pointer still returns.
type Work<'a> = *const (dyn Fn(usize) + Sync + 'a);

/// Threads that help those who ask, until dropped.
pub(super) struct Helpers {
    slot: Arc<Slot>,
    threads: Vec<Thread>,
}

/// The place of one job, which callers and helpers share.
struct Slot {
    /// Held by the caller whose job it is.
    occupied: Mutex<()>,
    job: AtomicPtr<Work<'static>>,
    /// Pieces that nobody has taken.
    left: AtomicUsize,
    /// Pieces that are not done, taken or not.
    unfinished: AtomicUsize,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// Which helpers sleep, or are about to.
    asleep: Box<[AtomicBool]>,
    stopped: AtomicBool,
}

impl Helpers {
    /// As many as the system gives.
    pub fn new(count: usize) -> Self {
        let slot = Arc::new(Slot {
            occupied: Mutex::default(),
            job: AtomicPtr::default(),
            left: AtomicUsize::new(0),
            unfinished: AtomicUsize::new(0),
            panic: Mutex::default(),
            asleep: (0..count).map(|_| AtomicBool::new(false)).collect(),
            stopped: AtomicBool::new(false),
        });
        // Those beyond the cores would only keep the others from theirs.
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

    /// Calls `work` with each number below `pieces`, of which there are some. The calling thread takes pieces at once and
    /// goes on until none is left; it does all of them where the helpers work for another, or for this very call further
    /// up. A panic in a piece is raised again when all pieces are done.
    pub fn share(&self, pieces: usize, work: &(dyn Fn(usize) + Sync)) {
        let slot = &*self.slot;
        let Ok(occupied) = slot.occupied.try_lock() else {
            return (0..pieces).for_each(work);
        };
        let others = pieces - 1;
        let work: Work = work;
        slot.job.store(ptr::from_ref(&work).cast_mut().cast(), Ordering::Relaxed);
        slot.unfinished.store(pieces, Ordering::Relaxed);
        // Release, for what stands above and what the caller wrote before; in one order with `asleep`, so that a helper either
        // sees these pieces before it sleeps, or is seen asleep.
        slot.left.store(others, Ordering::SeqCst);
        for (thread, asleep) in self.threads.iter().zip(&slot.asleep).take(others) {
            if asleep.load(Ordering::SeqCst) && asleep.swap(false, Ordering::SeqCst) {
                thread.unpark();
            }
        }
        // SAFETY: `work` was a reference, which outlives this call.
        unsafe { slot.finish(work, 0) };
        while slot.take() {}
        // Acquire, for what the helpers wrote.
        wait(|| slot.unfinished.load(Ordering::Acquire) == 0, || false);
        let panic = slot.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(occupied);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        self.slot.stopped.store(true, Ordering::SeqCst);
        self.threads.iter().for_each(Thread::unpark);
    }
}

impl Slot {
    /// What a helper does, until it is stopped.
    fn help(&self, number: usize, awake: Duration) {
        let asleep = &self.asleep[number];
        while !self.stopped.load(Ordering::SeqCst) {
            while self.take() {}
            let since = Instant::now();
            if wait(|| self.has_news(), || since.elapsed() >= awake) {
                continue;
            }
            asleep.store(true, Ordering::SeqCst);
            // It may be woken for nothing.
            while asleep.load(Ordering::SeqCst) && !self.has_news() {
                thread::park();
            }
            asleep.store(false, Ordering::SeqCst);
        }
    }

    /// Whether there is a piece to take, or no more to wait for.
    fn has_news(&self) -> bool {
        self.left.load(Ordering::SeqCst) > 0 || self.stopped.load(Ordering::SeqCst)
    }

    /// Takes a piece and does it; `false` where none is left.
    fn take(&self) -> bool {
        let taken = self.left.fetch_update(Ordering::Acquire, Ordering::Relaxed, |left| left.checked_sub(1));
        let Ok(piece) = taken else { return false };
        // SAFETY: the job's caller made `left` more than zero, with release, after it had stored `job`, and all that
        // changed `left` since are the takers before this one; so this is that caller's pointer, to a place in its `share`.
        // There it stays, and no other job takes its place, until `unfinished` is zero, which needs this piece to be done.
        unsafe { self.finish(*self.job.load(Ordering::Relaxed), piece) };
        true
    }

    /// Does a piece that was taken.
    ///
    // SAFETY: what `work` points to is there until the piece is done.
    unsafe fn finish(&self, work: Work, piece: usize) {
        // SAFETY: the caller's promise; the piece is not done before this returns.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| unsafe { (*work)(piece) })) {
            *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
        }
        // Release, for what the piece wrote. From here on the caller may be gone, and what `work` points to with it.
        self.unfinished.fetch_sub(1, Ordering::Release);
    }
}

/// Looks until something is `done`, or `late`: whether it is done.
fn wait(done: impl Fn() -> bool, late: impl Fn() -> bool) -> bool {
    let mut looks = 0_u32;
    while !done() {
        looks = looks.wrapping_add(1);
        // The clock takes as long as some looks.
        if looks.is_multiple_of(16) && late() {
            return false;
        }
        if looks < SPINS { hint::spin_loop() } else { thread::yield_now() }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread};

    use super::*;

    /// Miri checks each access, and takes a thousand times as long.
    const fn times(count: usize) -> usize {
        if cfg!(miri) { count.div_ceil(50) } else { count }
    }

    /// Calls of `share` with several numbers of pieces, each piece done once and its work seen by the caller.
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
            // Some of these find the helpers asleep, or on their way there.
            share_often(&helpers, times(100).max(10), |time| thread::sleep(AWAKE * (time % 5) as u32 / 4));
        }
    }

    #[test]
    fn who_comes_while_others_have_the_helpers_works_alone() {
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
        for count in [0, 1, 2, 7] {
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
