//! Memory of the system: as much as there is, in large pages, one of 2 MiB in place of 512 of 4 KiB, each of which the
//! processor would have to look up.

use std::alloc::{Layout, alloc_zeroed};

use super::shortage::Shortage;

/// Bytes from which a request is compared with the memory that is left. Linux would grant it, and end the process when it
/// is written to.
const LARGE: usize = 1 << 30;

/// Returns whether the system has so many bytes left, as far as it says.
fn has(bytes: usize) -> bool {
    if bytes < LARGE || cfg!(miri) || !cfg!(target_os = "linux") {
        return true;
    }
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/meminfo");
    let kibibytes =
        |name| info.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok());
    let left = kibibytes("MemAvailable:").map(|left: usize| left + kibibytes("SwapFree:").unwrap_or(0));
    let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let limit = limits.iter().filter_map(|path| read(path).trim().parse().ok()).min();
    left.is_none_or(|left| bytes <= left * 1024) && limit.is_none_or(|limit: usize| bytes <= limit)
}

/// Allocates zeros, which cost nothing until they are touched, in large pages.
pub(super) fn zeroed(len: usize) -> Result<Vec<u64>, Shortage> {
    let shortage = Shortage::of::<u64>(len);
    let layout = Layout::array::<u64>(len).ok().filter(|layout| layout.size() > 0 && has(layout.size()));
    let layout = layout.ok_or(shortage)?;
    // SAFETY: the layout has bytes.
    let start = unsafe { alloc_zeroed(layout) };
    if start.is_null() {
        return Err(shortage);
    }
    // SAFETY: allocated with the layout of so many numbers, all 0.
    let mut memory = unsafe { Vec::from_raw_parts(start.cast(), len, len) };
    prefer_large(&mut memory);
    Ok(memory)
}

/// Asks the system for large pages behind memory that is not touched yet. Untouched pages take no memory, as before; a system
/// without large pages ignores it.
fn prefer_large<T>(memory: &mut [T]) {
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
pub fn reserved<T>(len: usize) -> Result<Vec<T>, Shortage> {
    let mut elements = Vec::new();
    if !has(len.saturating_mul(size_of::<T>())) || elements.try_reserve_exact(len).is_err() {
        return Err(Shortage::of::<T>(len));
    }
    prefer_large(elements.spare_capacity_mut());
    Ok(elements)
}

/// Allocates as [`reserved`] does, and [unwinds](Shortage::unwind) when the memory does not suffice.
pub fn room<T>(len: usize) -> Vec<T> {
    reserved(len).unwrap_or_else(|shortage| shortage.unwind())
}

/// Creates a vector of equal numbers in [`room`].
pub fn constant<T: Copy>(value: T, len: usize) -> Vec<T> {
    let mut numbers = room(len);
    numbers.resize(len, value);
    numbers
}
