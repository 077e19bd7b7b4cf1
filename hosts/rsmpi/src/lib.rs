//! An engine of `precast-mpi` over the crate `mpi` (rsmpi): the MPI library is linked when the program is built.
//!
//! `precast-mpi` by itself loads the library of the launcher at run time, and needs nothing to be built. This package is for
//! programs that use rsmpi already, and for systems where programs are linked statically or against one MPI only.
//!
//! ```no_run
//! use precast_mpi::{Ranks, Wire};
//! use precast_rsmpi::Linked;
//!
//! let ranks = Ranks::new(Box::new(Linked::initialize()?));
//! ranks.abort_on_panic();
//! let mut total = [0.0; 2];
//! ranks.or_abort(ranks.exchange(ranks.size(), Wire::Float32)?.sum(&[&[1.0, 2.0]], &mut total))?;
//! ranks.finish()?;
//! # Ok::<(), precast_mpi::Error>(())
//! ```
//!
//! A program that has a `Universe` hands over a communicator. Call [`Ranks::abort_on_panic`](precast_mpi::Ranks::abort_on_panic):
//! a `Universe` that is dropped by a panic waits for the other ranks for ever.
//!
//! ```no_run
//! use precast_mpi::Ranks;
//! use precast_rsmpi::Linked;
//!
//! let universe = mpi::initialize().ok_or("MPI is initialized")?;
//! let ranks = Ranks::new(Box::new(Linked::over(&universe.world())?));
//! ranks.abort_on_panic();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(missing_docs)]
#![warn(missing_debug_implementations)]

use std::{
    cell::RefCell,
    ffi::{CStr, c_int},
    fmt,
    marker::PhantomData,
    mem::{ManuallyDrop, MaybeUninit},
    process, ptr,
    sync::Arc,
    thread,
    time::Duration,
};

use mpi::{ffi, raw::AsRaw, topology::Communicator};
use precast_mpi::{Engine, Error, ErrorKind, Pending, Result};

/// The most bytes of a message of MPI, whose counts are ints; longer ones are cut.
const CUT: usize = 1 << 30;

/// The memory of a message. MPI may use it until the message has ended, so that of any other message is leaked.
enum Memory {
    Sent(ManuallyDrop<Arc<Vec<u8>>>),
    Received(ManuallyDrop<Vec<u8>>),
}

/// A message under way, cut into pieces.
struct Message {
    requests: Vec<ffi::MPI_Request>,
    /// Pieces that have ended.
    ended: usize,
    /// Bytes received.
    met: usize,
    memory: Memory,
}

/// The engine of the MPI library that the program was linked with, on a communicator of its own.
///
/// It stays on its thread, and nothing is sent when it is dropped. Every return code of MPI is looked at: an error has the
/// name of the function and MPI's own words.
pub struct Linked {
    comm: ffi::MPI_Comm,
    rank: usize,
    size: usize,
    /// MPI was initialized here.
    is_ours: bool,
    messages: RefCell<Vec<Option<Message>>>,
    free: RefCell<Vec<usize>>,
    /// Neither `Send` nor `Sync`, whatever the handles of the library are.
    stays: PhantomData<*const ()>,
}

impl fmt::Debug for Linked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Linked").field("rank", &self.rank).field("size", &self.size).finish_non_exhaustive()
    }
}

/// Makes an error of a code that MPI returned.
fn check(name: &str, code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    let (mut text, mut length) = ([0u8; 8192], 0);
    // SAFETY: the text has room for the longest words of any library.
    unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast(), &mut length) };
    let words = CStr::from_bytes_until_nul(&text).unwrap_or_default().to_string_lossy();
    Err(Error::new(ErrorKind::Mpi, format!("{name}: {}", words.trim())))
}

/// Returns whether MPI was finalized, after which few of its functions may be called.
fn is_finalized() -> bool {
    let mut finalized = 0;
    // SAFETY: MPI_Finalized may be called at any time, from any thread.
    let code = unsafe { ffi::MPI_Finalized(&mut finalized) };
    code != 0 || finalized != 0
}

/// Ends all ranks of MPI and this process, also if MPI hangs.
fn end_all(code: u8) -> ! {
    // If no thread can be started, MPI must do.
    let _ = thread::Builder::new().spawn(|| {
        thread::sleep(Duration::from_secs(2));
        process::abort();
    });
    if !is_finalized() {
        // SAFETY: an engine has existed, so MPI is initialized; the process ends, from whatever thread.
        unsafe { ffi::MPI_Abort(ffi::RSMPI_COMM_WORLD, code.into()) };
    }
    process::exit(code.into())
}

impl Linked {
    /// Initializes MPI for all ranks of the launcher. [`Engine::finish`] finalizes it.
    ///
    /// # Errors
    /// - [`ErrorKind::Ended`] if MPI has been initialized before: use [`Linked::over`].
    /// - [`ErrorKind::Launcher`] if MPI sees another number of processes than the launcher has started: the program is
    ///   linked with another MPI.
    /// - [`ErrorKind::Mpi`] with MPI's own words.
    pub fn initialize() -> Result<Self> {
        let (mut initialized, mut level) = (0, 0);
        // SAFETY: MPI_Initialized may be called at any time.
        check("MPI_Initialized", unsafe { ffi::MPI_Initialized(&mut initialized) })?;
        if initialized != 0 {
            return Err(Error::new(
                ErrorKind::Ended,
                "MPI has been initialized before; `Linked::over` takes a communicator",
            ));
        }
        // SAFETY: MPI is not initialized; it allows null in place of the arguments of the program.
        let code =
            unsafe { ffi::MPI_Init_thread(ptr::null_mut(), ptr::null_mut(), ffi::RSMPI_THREAD_FUNNELED, &mut level) };
        check("MPI_Init_thread", code)?;
        // SAFETY: the constants of the library are never written.
        let (world, funneled) = unsafe { (ffi::RSMPI_COMM_WORLD, ffi::RSMPI_THREAD_FUNNELED) };
        if level < funneled {
            return Err(Error::new(ErrorKind::Mpi, "MPI_Init_thread: the library allows no threads beside MPI"));
        }
        let linked = Linked { is_ours: true, ..Linked::of(world)? };
        match precast_mpi::launched().filter(|launched| *launched != linked.size) {
            None => Ok(linked),
            Some(launched) => {
                let words = format!(
                    "the launcher has started {launched} processes, and the MPI that this program is linked with sees {}",
                    linked.size
                );
                Err(Error::new(ErrorKind::Launcher, words))
            }
        }
    }

    /// Uses the ranks of a communicator. Messages have a copy of it, which all of its ranks make in this call. Once the
    /// program has finalized MPI, calls of the engine are errors.
    ///
    /// # Errors
    /// [`ErrorKind::Mpi`] with MPI's own words.
    pub fn over<C: Communicator + AsRaw<Raw = ffi::MPI_Comm>>(communicator: &C) -> Result<Self> {
        Linked::of(communicator.as_raw())
    }

    fn of(parent: ffi::MPI_Comm) -> Result<Self> {
        let mut comm = MaybeUninit::uninit();
        // SAFETY: MPI is initialized, and the communicator is valid.
        check("MPI_Comm_dup", unsafe { ffi::MPI_Comm_dup(parent, comm.as_mut_ptr()) })?;
        // SAFETY: MPI has written it.
        let comm = unsafe { comm.assume_init() };
        let (mut rank, mut size) = (0, 0);
        // SAFETY: the communicator is valid until MPI is finalized, here and below.
        check("MPI_Comm_set_errhandler", unsafe { ffi::MPI_Comm_set_errhandler(comm, ffi::RSMPI_ERRORS_RETURN) })?;
        // SAFETY: as above.
        check("MPI_Comm_rank", unsafe { ffi::MPI_Comm_rank(comm, &mut rank) })?;
        // SAFETY: as above.
        check("MPI_Comm_size", unsafe { ffi::MPI_Comm_size(comm, &mut size) })?;
        let (messages, free) = (RefCell::default(), RefCell::default());
        Ok(Linked {
            comm,
            rank: rank as usize,
            size: size as usize,
            is_ours: false,
            messages,
            free,
            stays: PhantomData,
        })
    }

    /// Refuses a rank that MPI does not know, and any rank after the end of MPI.
    fn other(&self, rank: usize) -> Result<c_int> {
        match rank < self.size {
            _ if is_finalized() => Err(Error::new(ErrorKind::Ended, "MPI has been finalized")),
            true => Ok(rank as c_int),
            false => Err(Error::new(ErrorKind::Argument, format!("there is no rank {rank}"))),
        }
    }

    /// Begins a message in pieces. `piece` gets the position and the length of one.
    fn begin(
        &self,
        length: usize,
        memory: Memory,
        mut piece: impl FnMut(usize, c_int, *mut ffi::MPI_Request) -> Result<()>,
    ) -> Result<Pending> {
        let mut message = Message { requests: Vec::new(), ended: 0, met: 0, memory };
        let mut at = 0;
        while at < length || message.requests.is_empty() {
            let bytes = CUT.min(length - at);
            let mut request = MaybeUninit::uninit();
            piece(at, bytes as c_int, request.as_mut_ptr())?;
            // SAFETY: MPI has written the request of a piece without an error.
            message.requests.push(unsafe { request.assume_init() });
            at += bytes;
        }
        let mut messages = self.messages.borrow_mut();
        let place = self.free.borrow_mut().pop().unwrap_or(messages.len());
        if place == messages.len() {
            messages.push(None);
        }
        messages[place] = Some(message);
        Ok(Pending(place))
    }
}

impl Engine for Linked {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn send(&self, to: usize, tag: u16, bytes: Arc<Vec<u8>>) -> Result<Pending> {
        let to = self.other(to)?;
        let (from, length) = (bytes.as_ptr(), bytes.len());
        self.begin(length, Memory::Sent(ManuallyDrop::new(bytes)), |at, bytes, request| {
            // SAFETY: the piece is within the bytes, which are neither changed nor freed until the message has ended.
            let code = unsafe {
                ffi::MPI_Isend(from.add(at).cast(), bytes, ffi::RSMPI_UINT8_T, to, tag.into(), self.comm, request)
            };
            check("MPI_Isend", code)
        })
    }

    fn receive(&self, from: usize, tag: u16, memory: Vec<u8>) -> Result<Pending> {
        let from = self.other(from)?;
        let mut memory = ManuallyDrop::new(memory);
        let (to, length) = (memory.as_mut_ptr(), memory.len());
        self.begin(length, Memory::Received(memory), |at, bytes, request| {
            // SAFETY: the piece is within the memory, which nothing else uses and which is not freed until the message has
            // ended.
            let code = unsafe {
                ffi::MPI_Irecv(to.add(at).cast(), bytes, ffi::RSMPI_UINT8_T, from, tag.into(), self.comm, request)
            };
            check("MPI_Irecv", code)
        })
    }

    fn poll(&self, pending: &Pending) -> Result<Option<Vec<u8>>> {
        self.other(self.rank)?;
        let mut messages = self.messages.borrow_mut();
        let Some(message) = messages.get_mut(pending.0).and_then(Option::as_mut) else {
            return Err(Error::new(ErrorKind::Argument, format!("message {} has ended", pending.0)));
        };
        while let Some(request) = message.requests.get_mut(message.ended) {
            let (mut flag, mut status) = (0, MaybeUninit::uninit());
            // SAFETY: the request is of a message that has not ended, whose memory is kept.
            check("MPI_Test", unsafe { ffi::MPI_Test(request, &mut flag, status.as_mut_ptr()) })?;
            if flag == 0 {
                return Ok(None);
            }
            if let Memory::Received(_) = message.memory {
                let mut count = 0;
                // SAFETY: MPI has written the status of a message that was received.
                let code = unsafe { ffi::MPI_Get_count(status.as_ptr(), ffi::RSMPI_UINT8_T, &mut count) };
                check("MPI_Get_count", code)?;
                message.met += usize::try_from(count).unwrap_or(0);
            }
            message.ended += 1;
        }
        let Some(message) = messages[pending.0].take() else { return Ok(None) };
        self.free.borrow_mut().push(pending.0);
        Ok(Some(match message.memory {
            Memory::Sent(bytes) => {
                drop(ManuallyDrop::into_inner(bytes));
                Vec::new()
            }
            Memory::Received(memory) => {
                let mut memory = ManuallyDrop::into_inner(memory);
                memory.truncate(message.met);
                memory
            }
        }))
    }

    fn abort(&self, code: u8) {
        end_all(code);
    }

    fn aborter(&self) -> Option<fn(u8)> {
        Some(|code| end_all(code))
    }

    fn finish(&self) -> Result<()> {
        if !self.is_ours || is_finalized() {
            return Ok(());
        }
        // SAFETY: MPI was initialized by this engine, on this thread.
        check("MPI_Finalize", unsafe { ffi::MPI_Finalize() })
    }
}
