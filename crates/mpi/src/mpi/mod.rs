//! The engine of MPI, whose library is loaded at run time.

#[cfg(unix)]
mod find;
#[cfg(unix)]
mod functions;
#[cfg(unix)]
mod loaded;

use std::{
    process,
    sync::{Arc, OnceLock},
    thread,
    time::Duration,
};

use crate::{
    engine::{Engine, Pending},
    error::{Error, ErrorKind, Result},
    launcher,
};

/// Calls `MPI_Abort`, from any thread: the process ends, whatever MPI thinks of the thread.
type Abort = Box<dyn Fn(u8) + Send + Sync>;

/// MPI of this process, which can be initialized once.
static ABORT: OnceLock<Abort> = OnceLock::new();

/// Functions that MPI has beyond those of an engine.
trait MpiEngine: Engine {
    fn version(&self) -> &str;
    fn finalize(&self) -> Result<()>;
    fn cut_at(&mut self, bytes: usize);
}

/// The engine of MPI. It stays on the thread that has loaded it, and nothing is sent when it is dropped.
#[derive(Debug)]
pub struct Mpi {
    engine: Box<dyn MpiEngine>,
}

impl Mpi {
    /// Loads the MPI library of the launcher, or that of `PRECAST_MPI`, and initializes it unless the program has done
    /// so. Its messages have a communicator of their own. A library whose name contains `mpi_abi` has the ABI of MPI 5.
    ///
    /// # Errors
    /// - [`ErrorKind::Library`] if no library is found, or it lacks a function, and on systems other than Unix.
    /// - [`ErrorKind::Launcher`] if the library sees another number of processes than the launcher has started: it is
    ///   not that of the launcher.
    /// - [`ErrorKind::Mpi`] with MPI's own words.
    pub fn load() -> Result<Mpi> {
        let engine = load()?;
        if let Some(launched) = launcher::launched().filter(|launched| *launched != engine.size()) {
            let words = format!(
                "the launcher has started {launched} processes, and {} sees {}: it is not the MPI of this launcher; \
                 `PRECAST_MPI` takes the path of the right library",
                engine.version(),
                engine.size()
            );
            return Err(Error::new(ErrorKind::Launcher, words));
        }
        Ok(Mpi { engine })
    }

    /// Returns the first line of the library's version.
    pub fn version(&self) -> &str {
        self.engine.version()
    }

    /// Sets the most bytes of a message of MPI; longer ones are cut. Default: 2^30. It is the same on all ranks.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] if it is 0, or more than MPI can count.
    pub fn cut_at(mut self, bytes: usize) -> Result<Self> {
        if !(1..=i32::MAX as usize).contains(&bytes) {
            let words = format!("messages of MPI are cut at {bytes} bytes; expected a number from 1 to {}", i32::MAX);
            return Err(Error::new(ErrorKind::Argument, words));
        }
        self.engine.cut_at(bytes);
        Ok(self)
    }
}

impl Engine for Mpi {
    fn rank(&self) -> usize {
        self.engine.rank()
    }

    fn size(&self) -> usize {
        self.engine.size()
    }

    fn send(&self, to: usize, tag: u16, bytes: Arc<Vec<u8>>) -> Result<Pending> {
        self.engine.send(to, tag, bytes)
    }

    fn receive(&self, from: usize, tag: u16, memory: Vec<u8>) -> Result<Pending> {
        self.engine.receive(from, tag, memory)
    }

    fn poll(&self, pending: &Pending) -> Result<Option<Vec<u8>>> {
        self.engine.poll(pending)
    }

    fn abort(&self, code: u8) {
        end_all(code);
    }

    fn aborter(&self) -> Option<fn(u8)> {
        Some(|code| end_all(code))
    }

    fn finish(&self) -> Result<()> {
        self.engine.finalize()
    }
}

/// Ends all ranks of MPI and this process, also if MPI hangs.
fn end_all(code: u8) -> ! {
    // If no thread can be started, MPI must do.
    let _ = thread::Builder::new().spawn(|| {
        thread::sleep(Duration::from_secs(2));
        process::abort();
    });
    if let Some(abort) = ABORT.get() {
        abort(code);
    }
    process::exit(code.into())
}

#[cfg(unix)]
fn load() -> Result<Box<dyn MpiEngine>> {
    use find::Abi;

    let (library, abi, path) = find::open()?;
    let place = |error: Error| error.context(&path);
    match abi {
        Abi::OpenMpi => loaded::address(library, functions::Constants::open_mpi).map_err(place),
        Abi::Standard => loaded::address(library, |_| Ok(functions::Constants::standard())).map_err(place),
        Abi::Mpich => loaded::int(library).map_err(place),
    }
}

#[cfg(not(unix))]
fn load() -> Result<Box<dyn MpiEngine>> {
    Err(Error::new(ErrorKind::Library, "MPI libraries are loaded on Unix only"))
}
