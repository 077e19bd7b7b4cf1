//! The engine of a loaded MPI library.
#![allow(unsafe_code)]

use std::{
    cell::RefCell,
    ffi::{CStr, c_int, c_void},
    fmt,
    mem::{ManuallyDrop, MaybeUninit},
    ptr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use libloading::os::unix::Library;

use super::{
    ABORT,
    functions::{Address, Constants, Functions, Status},
};
use crate::{
    engine::{Engine, Pending},
    error::{Error, ErrorKind, Result},
};

/// Memory for the texts of MPI: the longest are those of versions.
const TEXT: usize = 8192;

/// MPI was finalized, after which none of its functions may be called.
static FINALIZED: AtomicBool = AtomicBool::new(false);

/// A handle that can be handed to another thread.
#[derive(Clone, Copy)]
struct Handle<H>(H);

// SAFETY: a handle is a number or an address that only MPI reads.
unsafe impl<H> Send for Handle<H> {}
// SAFETY: as above.
unsafe impl<H> Sync for Handle<H> {}

/// The memory of a message. MPI may use it until the message has ended, so that of any other message is leaked.
enum Memory {
    Sent(ManuallyDrop<Arc<Vec<u8>>>),
    Received(ManuallyDrop<Vec<u8>>),
}

/// A message under way, cut into pieces.
struct Message<H> {
    requests: Vec<H>,
    /// Pieces that have ended.
    ended: usize,
    /// Bytes received.
    met: usize,
    memory: Memory,
}

/// The engine of a library whose handles have the type `H`.
struct Loaded<H> {
    functions: Functions<H>,
    constants: Constants<H>,
    /// The communicator of this engine.
    comm: H,
    rank: usize,
    size: usize,
    version: String,
    /// MPI was initialized here.
    is_ours: bool,
    cut: usize,
    messages: RefCell<Vec<Option<Message<H>>>>,
    free: RefCell<Vec<usize>>,
}

impl<H> fmt::Debug for Loaded<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Loaded { rank, size, version, .. } = self;
        f.debug_struct("Loaded")
            .field("rank", rank)
            .field("size", size)
            .field("version", version)
            .finish_non_exhaustive()
    }
}

/// Starts a library whose handles are addresses.
pub(super) fn address(
    library: &'static Library,
    constants: impl Fn(&Library) -> Result<Constants<Address>>,
) -> Result<Box<dyn super::MpiEngine>> {
    // SAFETY: the handles of Open MPI and of the ABI of MPI 5 are pointers.
    let functions = unsafe { Functions::<Address>::load(library) }?;
    Ok(Box::new(Loaded::start(functions, constants(library)?)?))
}

/// Starts a library whose handles are ints.
pub(super) fn int(library: &'static Library) -> Result<Box<dyn super::MpiEngine>> {
    // SAFETY: the handles of the ABI of MPICH are ints.
    let functions = unsafe { Functions::<c_int>::load(library) }?;
    Ok(Box::new(Loaded::start(functions, Constants::mpich())?))
}

/// Makes an error of a code that MPI returned.
fn check<H>(functions: &Functions<H>, name: &str, code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    let words = text(|text, length| {
        // SAFETY: the text has room for the longest words of any library.
        unsafe { (functions.error_string)(code, text.as_mut_ptr().cast(), length) }
    });
    Err(Error::new(ErrorKind::Mpi, format!("{name}: {words}")))
}

/// Returns a text that MPI writes.
fn text(write: impl FnOnce(&mut [u8; TEXT], &mut c_int) -> c_int) -> String {
    let (mut text, mut length) = ([0u8; TEXT], 0);
    write(&mut text, &mut length);
    // The length counts the terminator in some libraries.
    let text = CStr::from_bytes_until_nul(&text).map(CStr::to_bytes).unwrap_or(&text);
    String::from_utf8_lossy(text).trim().to_string()
}

impl<H: Copy + 'static> Loaded<H> {
    fn start(functions: Functions<H>, constants: Constants<H>) -> Result<Self> {
        let check = |name: &str, code| check(&functions, name, code);
        let Constants { world, errors_return, funneled, .. } = constants;
        if FINALIZED.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Ended, "MPI has been finalized, and cannot be initialized again"));
        }
        let mut initialized = 0;
        // SAFETY: MPI_Initialized may be called at any time.
        check("MPI_Initialized", unsafe { (functions.initialized)(&mut initialized) })?;
        let is_ours = initialized == 0;
        if is_ours {
            let mut level = 0;
            // SAFETY: MPI allows null in place of the arguments of the program.
            let code = unsafe { (functions.init_thread)(ptr::null_mut(), ptr::null_mut(), funneled, &mut level) };
            check("MPI_Init_thread", code)?;
            if level < funneled {
                return Err(Error::new(ErrorKind::Mpi, "MPI_Init_thread: the library allows no threads beside MPI"));
            }
            // SAFETY: MPI is initialized, and both handles are predefined.
            check("MPI_Comm_set_errhandler", unsafe { (functions.set_errhandler)(world, errors_return) })?;
        }
        let mut comm = MaybeUninit::uninit();
        // SAFETY: MPI is initialized; all ranks load it at the same place of their program.
        check("MPI_Comm_dup", unsafe { (functions.comm_dup)(world, comm.as_mut_ptr()) })?;
        // SAFETY: MPI has written it.
        let comm = unsafe { comm.assume_init() };
        let (mut rank, mut size) = (0, 0);
        // SAFETY: the communicator is valid until MPI is finalized, here and below.
        check("MPI_Comm_set_errhandler", unsafe { (functions.set_errhandler)(comm, errors_return) })?;
        // SAFETY: as above.
        check("MPI_Comm_rank", unsafe { (functions.comm_rank)(comm, &mut rank) })?;
        // SAFETY: as above.
        check("MPI_Comm_size", unsafe { (functions.comm_size)(comm, &mut size) })?;
        let version = text(|text, length| {
            // SAFETY: the text has room for the longest version of any library.
            unsafe { (functions.version)(text.as_mut_ptr().cast(), length) }
        });
        let version = version.lines().next().unwrap_or_default().trim().to_string();
        let (abort, handle) = (functions.abort, Handle(comm));
        let _ = ABORT.set(Box::new(move |code| {
            let handle = handle;
            if FINALIZED.load(Ordering::Relaxed) {
                return;
            }
            // SAFETY: the process ends, from whatever thread; the communicator is valid.
            unsafe { abort(handle.0, code.into()) };
        }));
        Ok(Loaded {
            functions,
            constants,
            comm,
            rank: rank as usize,
            size: size as usize,
            version,
            is_ours,
            cut: 1 << 30,
            messages: RefCell::default(),
            free: RefCell::default(),
        })
    }

    fn check(&self, name: &str, code: c_int) -> Result<()> {
        check(&self.functions, name, code)
    }

    /// Refuses a rank that MPI does not know, and any rank after the end of MPI.
    fn other(&self, rank: usize) -> Result<c_int> {
        match rank < self.size {
            _ if FINALIZED.load(Ordering::Relaxed) => Err(Error::new(ErrorKind::Ended, "MPI has been finalized")),
            true => Ok(rank as c_int),
            false => Err(Error::new(ErrorKind::Argument, format!("there is no rank {rank}"))),
        }
    }

    /// Begins a message in pieces. `piece` gets the position and the length of one.
    fn begin(
        &self,
        length: usize,
        memory: Memory,
        mut piece: impl FnMut(usize, c_int, *mut H) -> Result<()>,
    ) -> Result<Pending> {
        let mut message = Message { requests: Vec::new(), ended: 0, met: 0, memory };
        let mut at = 0;
        while at < length || message.requests.is_empty() {
            let bytes = self.cut.min(length - at);
            let mut request = MaybeUninit::uninit();
            piece(at, bytes as c_int, request.as_mut_ptr())?;
            // SAFETY: MPI has written the request of a piece without an error.
            message.requests.push(unsafe { request.assume_init() });
            at += bytes;
        }
        let mut messages = self.messages.borrow_mut();
        Ok(Pending(match self.free.borrow_mut().pop() {
            Some(free) => {
                messages[free] = Some(message);
                free
            }
            None => {
                messages.push(Some(message));
                messages.len() - 1
            }
        }))
    }
}

impl<H: Copy + 'static> Engine for Loaded<H> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn send(&self, to: usize, tag: u16, bytes: Arc<Vec<u8>>) -> Result<Pending> {
        let to = self.other(to)?;
        let (from, length) = (bytes.as_ptr(), bytes.len());
        let Loaded { functions, constants, comm, .. } = self;
        self.begin(length, Memory::Sent(ManuallyDrop::new(bytes)), |at, bytes, request| {
            // SAFETY: the piece is within the bytes, which are neither changed nor freed until the message has ended.
            let code = unsafe {
                let from = from.add(at).cast::<c_void>();
                (functions.isend)(from, bytes, constants.byte, to, tag.into(), *comm, request)
            };
            self.check("MPI_Isend", code)
        })
    }

    fn receive(&self, from: usize, tag: u16, memory: Vec<u8>) -> Result<Pending> {
        let from = self.other(from)?;
        let mut memory = ManuallyDrop::new(memory);
        let (to, length) = (memory.as_mut_ptr(), memory.len());
        let Loaded { functions, constants, comm, .. } = self;
        self.begin(length, Memory::Received(memory), |at, bytes, request| {
            // SAFETY: the piece is within the memory, which nothing else uses and which is not freed until the message has
            // ended.
            let code = unsafe {
                let to = to.add(at).cast::<c_void>();
                (functions.irecv)(to, bytes, constants.byte, from, tag.into(), *comm, request)
            };
            self.check("MPI_Irecv", code)
        })
    }

    fn poll(&self, pending: &Pending) -> Result<Option<Vec<u8>>> {
        self.other(self.rank)?;
        let mut messages = self.messages.borrow_mut();
        let place = messages.get_mut(pending.0);
        let Some((place, message)) = place.and_then(|place| {
            let message = place.take()?;
            Some((place, message))
        }) else {
            return Err(Error::new(ErrorKind::Argument, format!("message {} has ended", pending.0)));
        };
        let message = place.insert(message);
        while let Some(request) = message.requests.get_mut(message.ended) {
            let (mut flag, mut status) = (0, Status::new());
            // SAFETY: the request is of a message that has not ended, whose memory is kept.
            self.check("MPI_Test", unsafe { (self.functions.test)(request, &mut flag, &mut status) })?;
            if flag == 0 {
                return Ok(None);
            }
            if let Memory::Received(_) = message.memory {
                let mut count = 0;
                // SAFETY: MPI has written the status of a message that was received.
                let code = unsafe { (self.functions.get_count)(&status, self.constants.byte, &mut count) };
                self.check("MPI_Get_count", code)?;
                message.met += usize::try_from(count).unwrap_or(0);
            }
            message.ended += 1;
        }
        let Some(message) = place.take() else { return Ok(None) };
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
        super::end_all(code);
    }
}

impl<H: Copy + 'static> super::MpiEngine for Loaded<H> {
    fn version(&self) -> &str {
        &self.version
    }

    fn finalize(&self) -> Result<()> {
        if !self.is_ours || FINALIZED.load(Ordering::Relaxed) {
            return Ok(());
        }
        FINALIZED.store(true, Ordering::Relaxed);
        // SAFETY: MPI was initialized by this engine, on this thread: it is neither `Send` nor `Sync`.
        self.check("MPI_Finalize", unsafe { (self.functions.finalize)() })
    }

    fn cut_at(&mut self, bytes: usize) {
        self.cut = bytes;
    }
}
