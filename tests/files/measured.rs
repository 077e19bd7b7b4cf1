//! The largest block of memory that a thread allocates.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

struct Measuring;

// SAFETY: it is the system's allocator, called with unchanged arguments.
unsafe impl GlobalAlloc for Measuring {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(layout.size())));
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Measuring = Measuring;

/// Returns the result of `f`, and the largest block of memory that this thread allocated meanwhile.
pub(super) fn largest_block<R>(f: impl FnOnce() -> R) -> (R, usize) {
    LARGEST.set(0);
    let answer = f();
    (answer, LARGEST.get())
}
