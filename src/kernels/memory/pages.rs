//! Large pages: one of 2 MiB in place of 512 of 4 KiB, each of which the processor would have to look up.

use std::collections::TryReserveError;

/// Asks the system for large pages behind memory that is not touched yet. Untouched pages take no memory, as before; a system
/// without large pages ignores it.
pub(super) fn prefer_large<T>(memory: &mut [T]) {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        use std::ffi::{c_int, c_void};

        const LARGE: c_int = 14;
        const PAGE: usize = 4096;
        unsafe extern "C" {
            fn madvise(start: *mut c_void, bytes: usize, advice: c_int) -> c_int;
        }
        let (start, bytes) = (memory.as_mut_ptr(), size_of_val(memory));
        let skipped = start.addr().next_multiple_of(PAGE) - start.addr();
        if skipped < bytes {
            // SAFETY: the advice does not change what the memory holds, and is refused where the system has none.
            unsafe { madvise(start.wrapping_byte_add(skipped).cast(), bytes - skipped, LARGE) };
        }
    }
    let _ = memory;
}

/// Allocates room for `len` elements, in large pages where there is much.
///
/// # Errors
/// When the memory does not suffice.
pub(crate) fn reserved<T>(len: usize) -> Result<Vec<T>, TryReserveError> {
    let mut elements = Vec::new();
    elements.try_reserve_exact(len)?;
    prefer_large(elements.spare_capacity_mut());
    Ok(elements)
}

/// Creates a vector of equal numbers with [`reserved`].
///
/// # Panics
/// When the memory does not suffice.
pub(crate) fn constant<T: Copy>(value: T, len: usize) -> Vec<T> {
    let mut numbers = reserved(len).expect("memory for the numbers");
    numbers.resize(len, value);
    numbers
}
