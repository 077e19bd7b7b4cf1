//! The engine of ranks that are threads of one process, for tests, with faults.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, VecDeque},
    panic,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use crate::{
    engine::{Engine, Pending},
    error::{Error, ErrorKind, Result},
    ranks::Ranks,
};

/// A fault to plant in a job of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// A rank that no longer answers after so many messages: it sends and receives nothing more.
    Silent {
        /// The rank.
        rank: usize,
        /// Messages that it still sends.
        after: usize,
    },
    /// A rank that ends with an error in place of its next message after so many.
    Ends {
        /// The rank.
        rank: usize,
        /// Messages that it still sends.
        after: usize,
    },
    /// Messages that arrive late, in another order than they were sent, drawn from this seed.
    Late {
        /// The seed.
        seed: u64,
    },
}

/// Messages to one rank, by sender and tag.
type Mailbox = HashMap<(usize, u16), VecDeque<Arc<Vec<u8>>>>;

#[derive(Debug)]
struct Job {
    mailboxes: Vec<Mutex<Mailbox>>,
    ended: Vec<AtomicU64>,
    /// 0, or 256 times the next number of the rank that has ended the job, plus the exit code.
    aborted: AtomicU64,
}

/// The engine of one rank of a job of threads.
#[derive(Debug)]
pub struct Threads {
    rank: usize,
    job: Arc<Job>,
    faults: Vec<Fault>,
    /// Messages that are waited for, with their memory; `None` for one that was sent.
    wanted: RefCell<HashMap<usize, Option<Wanted>>>,
    begun: Cell<usize>,
    sent: Cell<usize>,
    drawn: Cell<u64>,
}

#[derive(Debug)]
struct Wanted {
    from: usize,
    tag: u16,
    memory: Vec<u8>,
}

fn lock(mailbox: &Mutex<Mailbox>) -> MutexGuard<'_, Mailbox> {
    mailbox.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Threads {
    /// Makes the engines of so many ranks, at least one, with faults.
    pub fn engines(size: usize, faults: &[Fault]) -> Vec<Threads> {
        let size = size.max(1);
        let job = Arc::new(Job {
            mailboxes: (0..size).map(|_| Mutex::default()).collect(),
            ended: (0..size).map(|_| AtomicU64::new(0)).collect(),
            aborted: AtomicU64::new(0),
        });
        let engine = |rank| Threads {
            rank,
            job: job.clone(),
            faults: faults.to_vec(),
            wanted: RefCell::default(),
            begun: Cell::new(0),
            sent: Cell::new(0),
            drawn: Cell::new(rank as u64),
        };
        (0..size).map(engine).collect()
    }

    /// Runs a job of so many ranks, at least one, each on a thread of its own, and returns their results in the order
    /// of ranks.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] if the patience is 0.
    ///
    /// # Panics
    /// If a rank panics, once all have ended.
    pub fn run<T: Send>(
        size: usize,
        faults: &[Fault],
        patience: Duration,
        work: impl Fn(&Ranks) -> T + Sync,
    ) -> Result<Vec<T>> {
        let work = |engine| Ok(work(&Ranks::new(Box::new(engine)).with_patience(patience)?));
        let work = &work;
        let ended: Vec<thread::Result<Result<T>>> = thread::scope(|scope| {
            let ranks: Vec<_> =
                Threads::engines(size, faults).into_iter().map(|engine| scope.spawn(move || work(engine))).collect();
            ranks.into_iter().map(thread::ScopedJoinHandle::join).collect()
        });
        ended.into_iter().map(|result| result.unwrap_or_else(|words| panic::resume_unwind(words))).collect()
    }

    /// Returns whether this rank has sent all that a planted fault lets it send.
    fn is_silent(&self) -> bool {
        self.faults.iter().any(
            |fault| matches!(*fault, Fault::Silent { rank, after } if rank == self.rank && self.sent.get() > after),
        )
    }

    /// Draws whether a message is late.
    fn is_late(&self) -> bool {
        let Some(seed) = self.faults.iter().find_map(|fault| match fault {
            Fault::Late { seed } => Some(*seed),
            _ => None,
        }) else {
            return false;
        };
        // The finalizer of SplitMix64.
        let drawn = self.drawn.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.drawn.set(drawn);
        let mixed = (drawn ^ seed).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 31)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 62 != 0
    }

    fn check(&self) -> Result<()> {
        match self.job.aborted.load(Ordering::Acquire) {
            0 => Ok(()),
            met => {
                let words = format!("rank {} has ended all ranks with exit code {}", met / 256 - 1, met % 256);
                Err(Error::new(ErrorKind::Ended, words))
            }
        }
    }

    fn begin(&self, wanted: Option<Wanted>) -> Pending {
        let pending = self.begun.get();
        self.begun.set(pending + 1);
        self.wanted.borrow_mut().insert(pending, wanted);
        Pending(pending)
    }
}

impl Engine for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.job.mailboxes.len()
    }

    fn send(&self, to: usize, tag: u16, bytes: Arc<Vec<u8>>) -> Result<Pending> {
        self.check()?;
        self.sent.set(self.sent.get() + 1);
        let ends = |fault: &Fault| matches!(*fault, Fault::Ends { rank, after } if rank == self.rank && self.sent.get() > after);
        if self.faults.iter().any(ends) {
            return Err(Error::new(ErrorKind::Ended, "a planted fault ends this rank"));
        }
        let mailbox = self.job.mailboxes.get(to);
        let mailbox = mailbox.ok_or_else(|| Error::new(ErrorKind::Argument, format!("there is no rank {to}")))?;
        if !self.is_silent() {
            lock(mailbox).entry((self.rank, tag)).or_default().push_back(bytes);
        }
        Ok(self.begin(None))
    }

    fn receive(&self, from: usize, tag: u16, memory: Vec<u8>) -> Result<Pending> {
        self.check()?;
        if from >= self.size() {
            return Err(Error::new(ErrorKind::Argument, format!("there is no rank {from}")));
        }
        Ok(self.begin(Some(Wanted { from, tag, memory })))
    }

    fn poll(&self, pending: &Pending) -> Result<Option<Vec<u8>>> {
        self.check()?;
        let mut all = self.wanted.borrow_mut();
        let unknown = || Error::new(ErrorKind::Argument, format!("message {} has ended", pending.0));
        let Some(Wanted { from, tag, memory }) = all.get_mut(&pending.0).ok_or_else(unknown)? else {
            all.remove(&pending.0);
            return Ok(Some(Vec::new()));
        };
        if self.is_silent() || self.is_late() {
            return Ok(None);
        }
        // Read before the mailbox: a rank ends after its last message.
        let has_ended = self.job.ended[*from].load(Ordering::Acquire) != 0;
        let mut mailbox = lock(&self.job.mailboxes[self.rank]);
        let key = (*from, *tag);
        let Some(bytes) = mailbox.get_mut(&key).and_then(VecDeque::pop_front) else {
            return match has_ended {
                true => Err(Error::new(ErrorKind::Ended, format!("rank {from} has ended"))),
                false => Ok(None),
            };
        };
        if mailbox.get(&key).is_some_and(VecDeque::is_empty) {
            mailbox.remove(&key);
        }
        drop(mailbox);
        if bytes.len() > memory.len() {
            let words = format!("message truncated: {} bytes met, {} expected", bytes.len(), memory.len());
            return Err(Error::new(ErrorKind::Mpi, words));
        }
        let mut memory = std::mem::take(memory);
        all.remove(&pending.0);
        memory.truncate(bytes.len());
        memory.copy_from_slice(&bytes);
        Ok(Some(memory))
    }

    fn abort(&self, code: u8) {
        let mine = (self.rank as u64 + 1) * 256 + u64::from(code);
        let _ = self.job.aborted.compare_exchange(0, mine, Ordering::AcqRel, Ordering::Acquire);
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // A machine that hangs does not say that it ends.
        if !self.is_silent() {
            self.job.ended[self.rank].store(1, Ordering::Release);
        }
    }
}
