//! The functions and constants of an MPI library.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};

use libloading::os::unix::Library;

use crate::error::{Error, ErrorKind, Result};

/// Memory for an `MPI_Status`, which is opaque here. The largest is 32 bytes long.
#[repr(C, align(16))]
pub(super) struct Status([u8; 128]);

impl Status {
    pub fn new() -> Self {
        Status([0; 128])
    }
}

/// Looks a symbol up.
///
/// # Safety
/// `T` is the type of the symbol: a function pointer for a function, a pointer for an object.
unsafe fn symbol<T: Copy>(library: &Library, name: &str) -> Result<T> {
    // SAFETY: by the contract of this function.
    match unsafe { library.get::<T>(name) } {
        Ok(symbol) => Ok(*symbol),
        Err(error) => Err(Error::new(ErrorKind::Library, format!("the library has no {name}: {error}"))),
    }
}

macro_rules! functions {
    ($($field:ident $name:literal ($($argument:ty),*);)*) => {
        /// Functions, for handles of type `H`.
        #[derive(Clone, Copy)]
        pub(super) struct Functions<H> {
            $(pub $field: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl<H: Copy> Functions<H> {
            /// Looks all functions up.
            ///
            /// # Safety
            /// The library is an MPI library whose handles have the type `H`.
            pub unsafe fn load(library: &Library) -> Result<Self> {
                Ok(Functions {
                    // SAFETY: MPI's standard has these arguments, and the caller knows the type of handles.
                    $($field: unsafe { symbol(library, $name) }?,)*
                })
            }
        }
    };
}

functions! {
    initialized "MPI_Initialized" (*mut c_int);
    init_thread "MPI_Init_thread" (*mut c_int, *mut c_void, c_int, *mut c_int);
    finalize "MPI_Finalize" ();
    abort "MPI_Abort" (H, c_int);
    comm_dup "MPI_Comm_dup" (H, *mut H);
    comm_rank "MPI_Comm_rank" (H, *mut c_int);
    comm_size "MPI_Comm_size" (H, *mut c_int);
    set_errhandler "MPI_Comm_set_errhandler" (H, H);
    error_string "MPI_Error_string" (c_int, *mut c_char, *mut c_int);
    version "MPI_Get_library_version" (*mut c_char, *mut c_int);
    isend "MPI_Isend" (*const c_void, c_int, H, c_int, c_int, H, *mut H);
    irecv "MPI_Irecv" (*mut c_void, c_int, H, c_int, c_int, H, *mut H);
    test "MPI_Test" (*mut H, *mut c_int, *mut Status);
    get_count "MPI_Get_count" (*const Status, H, *mut c_int);
}

/// Handles and numbers that the headers of MPI libraries define.
#[derive(Clone, Copy)]
pub(super) struct Constants<H> {
    pub world: H,
    pub byte: H,
    pub errors_return: H,
    /// `MPI_THREAD_FUNNELED`.
    pub funneled: c_int,
}

/// A handle that is an address.
pub(super) type Address = *mut c_void;

impl Constants<Address> {
    /// Those of Open MPI 4 and 5, whose handles are addresses of objects in the library.
    pub fn open_mpi(library: &Library) -> Result<Self> {
        // SAFETY: these are objects, whose addresses alone are used.
        let object = |name: &str| unsafe { symbol::<Address>(library, name) };
        Ok(Constants {
            world: object("ompi_mpi_comm_world")?,
            byte: object("ompi_mpi_byte")?,
            errors_return: object("ompi_mpi_errors_return")?,
            funneled: 1,
        })
    }

    /// Those of the ABI of MPI 5, whose predefined handles are small numbers.
    pub fn standard() -> Self {
        let handle = std::ptr::without_provenance_mut::<c_void>;
        Constants { world: handle(0x101), byte: handle(0x247), errors_return: handle(0x143), funneled: 1024 }
    }
}

impl Constants<c_int> {
    /// Those of the ABI of MPICH.
    pub fn mpich() -> Self {
        Constants { world: 0x4400_0000, byte: 0x4c00_010d, errors_return: 0x5400_0001, funneled: 1 }
    }
}
