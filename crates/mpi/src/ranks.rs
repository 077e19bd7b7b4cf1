//! The ranks of a job: their calls, with a deadline.

use std::{
    cell::{Cell, RefCell},
    env, hint,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    call::{Call, Kind},
    engine::{Alone, Engine},
    error::{Error, ErrorKind, Result},
    launcher,
    mpi::Mpi,
    panics,
    transfers::{Link, Transfers},
};

/// The name of the environment variable with the deadline.
const PATIENCE: &str = "PRECAST_PATIENCE";

/// Polls without a result before a wait lets other processes run, and time before it sleeps.
const SPINS: u32 = 256;
const AWAKE: Duration = Duration::from_millis(200);

/// The ranks of a job, as one of them sees them. All ranks make the same calls in the same order.
///
/// Each message has the number of its call, the step, and the kind and size of the call. So ranks that make different
/// calls get an error that names rank and step. A rank that waits longer than the [patience](Ranks::with_patience) gets
/// an error that names the ranks that do not answer. After an error of a call, other than one of
/// [`agree`](Ranks::agree), every further call is that error: end all ranks by [`Ranks::or_abort`].
///
/// ```
/// use precast_mpi::Ranks;
///
/// let ranks = Ranks::of_launcher()?; // one rank if no launcher has started the program
/// ranks.abort_on_panic();
/// let steps = ranks.or_abort(ranks.vote(&[ranks.rank() as u64]))?;
/// assert_eq!(steps.max(0), ranks.size() as u64 - 1);
/// ranks.finish()?;
/// # Ok::<(), precast_mpi::Error>(())
/// ```
#[derive(Debug)]
pub struct Ranks {
    pub(crate) link: Link,
    patience: Duration,
    step: Arc<AtomicU64>,
    calls: Cell<u64>,
    broken: RefCell<Option<Error>>,
}

/// Work that consists of messages.
pub(crate) trait Work {
    /// Moves messages, and returns whether one has ended.
    fn advance(&mut self, link: &Link) -> Result<bool>;
    fn is_done(&self) -> bool;
    /// Returns the ranks that are waited for.
    fn awaited(&self) -> Vec<usize>;
}

impl Work for Transfers {
    fn advance(&mut self, link: &Link) -> Result<bool> {
        Transfers::advance(self, link, drop)
    }

    fn is_done(&self) -> bool {
        Transfers::is_done(self)
    }

    fn awaited(&self) -> Vec<usize> {
        Transfers::awaited(self)
    }
}

impl Ranks {
    /// Returns the ranks of an engine, with a patience of 60 seconds.
    pub fn new(engine: Box<dyn Engine>) -> Self {
        let link = Link { engine, sent: Cell::new(0) };
        Ranks {
            link,
            patience: Duration::from_secs(60),
            step: Arc::default(),
            calls: Cell::new(0),
            broken: RefCell::default(),
        }
    }

    /// Returns the ranks that the launcher of this process has started, or one rank if there is no launcher, or it has
    /// started one process. Only with several ranks is an MPI library loaded ([`Mpi::load`]). The patience is
    /// `PRECAST_PATIENCE` seconds.
    ///
    /// # Errors
    /// Those of [`Mpi::load`]; [`ErrorKind::Launcher`] if a launcher has started several processes that MPI cannot join
    /// ([`launched_apart`](crate::launched_apart)); [`ErrorKind::Argument`] if `PRECAST_PATIENCE` is not a number of
    /// seconds above 0.
    pub fn of_launcher() -> Result<Self> {
        if let Some(words) = launcher::launched_apart() {
            return Err(Error::new(ErrorKind::Launcher, words));
        }
        if launcher::launched().is_none_or(|size| size == 1) {
            return Ok(Ranks::new(Box::new(Alone)));
        }
        let ranks = Ranks::new(Box::new(Mpi::load()?));
        match env::var(PATIENCE) {
            Ok(text) => ranks.with_patience(patience(&text)?),
            Err(_) => Ok(ranks),
        }
    }

    /// Changes the time for which a rank waits for the messages of others. It must be longer than ranks may differ: by
    /// the time in which one of them reads data or writes a checkpoint, for example. Time in which the process itself
    /// was stopped does not count.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] if it is 0.
    pub fn with_patience(self, patience: Duration) -> Result<Self> {
        if patience.is_zero() {
            return Err(Error::new(ErrorKind::Argument, "the patience is 0 s; expected a time above 0"));
        }
        Ok(Ranks { patience, ..self })
    }

    /// Returns the number of this rank.
    pub fn rank(&self) -> usize {
        self.link.engine.rank()
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> usize {
        self.link.engine.size()
    }

    /// Returns the engine.
    pub fn engine(&self) -> &dyn Engine {
        &*self.link.engine
    }

    /// Returns the bytes that this rank has sent, without the heads of messages.
    pub fn bytes_sent(&self) -> u64 {
        self.link.sent.get()
    }

    /// Sets the number of the step, which errors name, and which must be the same on all ranks.
    pub fn set_step(&self, step: u64) {
        self.step.store(step, Ordering::Relaxed);
    }

    /// Returns the number of the step.
    pub fn step(&self) -> u64 {
        self.step.load(Ordering::Relaxed)
    }

    /// Ends all ranks if `result` is an error: writes its words with the rank to stderr, and exits with code 70. An error
    /// that all ranks have, such as one of [`Ranks::agree`], needs no such end.
    ///
    /// # Errors
    /// The error itself, if there is one rank, or ranks are threads.
    pub fn or_abort<T, E: std::fmt::Display>(&self, result: std::result::Result<T, E>) -> std::result::Result<T, E> {
        result.inspect_err(|error| self.abort(error))
    }

    /// Ends all ranks: writes the words with the rank to stderr, and exits with code 70. Does nothing if there is one
    /// rank, and returns if ranks are threads.
    pub fn abort(&self, words: impl std::fmt::Display) {
        if self.size() == 1 {
            return;
        }
        let (rank, words) = (self.rank(), words.to_string());
        let line = match words.starts_with(&format!("rank {rank}:")) {
            true => format!("{words}\n"),
            false => format!("rank {rank}: {words}, step {}\n", self.step()),
        };
        panics::say_last(&line);
        self.link.engine.abort(panics::EXIT_CODE);
    }

    /// Adds to the panic hook of this process that a panic ends all ranks: after the words of the panic come the rank
    /// and the step on stderr. The exit code is 70. Does nothing for one rank, or if ranks are threads.
    ///
    /// A panic that is caught ends them as well.
    pub fn abort_on_panic(&self) {
        if let Some(abort) = self.link.engine.aborter() {
            panics::abort_on_panic(self.rank(), self.step.clone(), abort);
        }
    }

    /// Waits for all ranks and ends MPI. A process that ends without this call is a failed one to its launcher.
    ///
    /// # Errors
    /// Those of [`Ranks::barrier`] and of MPI.
    pub fn finish(self) -> Result<()> {
        self.barrier()?;
        self.link.engine.finish()
    }

    /// Counts a call of all ranks.
    pub(crate) fn call(&self, kind: Kind, size: usize, form: u32) -> Result<Call> {
        if let Some(error) = &*self.broken.borrow() {
            return Err(error.clone());
        }
        let sequence = self.calls.get();
        self.calls.set(sequence + 1);
        Ok(Call { sequence, step: self.step(), kind, size: size as u64, form })
    }

    /// Remembers an error, after which no call has a sense.
    pub(crate) fn broken<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|error| {
            self.broken.borrow_mut().get_or_insert_with(|| error.clone());
        })
    }

    /// Waits until work is done, while messages arrive within the patience.
    pub(crate) fn wait(&self, work: &mut dyn Work) -> Result<()> {
        self.broken(self.wait_for(work))
    }

    fn wait_for(&self, work: &mut dyn Work) -> Result<()> {
        let (mut idle, mut waited, mut last) = (0u32, Duration::ZERO, Instant::now());
        loop {
            let moved = work.advance(&self.link)?;
            if work.is_done() {
                return Ok(());
            }
            if moved {
                (idle, waited, last) = (0, Duration::ZERO, Instant::now());
                continue;
            }
            idle = idle.saturating_add(1);
            if idle < SPINS {
                hint::spin_loop();
                continue;
            }
            // A process that was stopped finds a long time in one go, in which the others had no chance to be heard.
            waited += last.elapsed().min(Duration::from_secs(1));
            last = Instant::now();
            if waited > self.patience {
                return Err(self.silent(&work.awaited()));
            }
            match waited > AWAKE {
                true => thread::sleep(Duration::from_millis(1)),
                false => thread::yield_now(),
            }
        }
    }

    fn silent(&self, awaited: &[usize]) -> Error {
        let names: Vec<String> = awaited.iter().map(usize::to_string).collect();
        let who = match &names[..] {
            [one] => format!("rank {one} has"),
            _ => format!("ranks {} have", names.join(", ")),
        };
        let seconds = self.patience.as_secs_f64();
        let words = format!("rank {}: {who} not answered for {seconds} s, step {}", self.rank(), self.step());
        Error::new(ErrorKind::Silent, words)
    }
}

/// Reads a deadline.
fn patience(text: &str) -> Result<Duration> {
    let seconds = text.trim().parse::<f64>().ok().filter(|seconds| *seconds > 0.0);
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).ok_or_else(|| {
        Error::new(ErrorKind::Argument, format!("{PATIENCE} is `{text}`; expected a number of seconds above 0"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_is_a_number_of_seconds() {
        assert_eq!(patience("2.5"), Ok(Duration::from_millis(2500)));
        for wrong in ["", "0", "-1", "nan", "inf", "1e300", "a minute"] {
            let error = patience(wrong).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Argument);
            assert!(error.to_string().contains(wrong), "{error}");
        }
    }
}
