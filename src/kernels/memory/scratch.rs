//! Aligned memory that each thread keeps for its matrix products and convolutions.

use std::cell::RefCell;

/// Byte value of unwritten memory with debug assertions, which each floating type reads as NaN: an element that a
/// kernel leaves out shows in its result. Without debug assertions, memory keeps its contents from earlier use.
pub(super) const UNWRITTEN: Option<u8> = if cfg!(debug_assertions) { Some(0xff) } else { None };

/// Cache line of sixteen f32.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
pub(crate) struct Line([f32; 16]);

impl Line {
    /// Returns the number of lines that `len` numbers fill.
    pub fn count(len: usize) -> usize {
        len.div_ceil(16)
    }

    /// Returns all numbers of some lines.
    pub fn numbers(lines: &[Line]) -> &[f32] {
        // SAFETY: a line is sixteen f32 without gaps.
        unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), lines.len() * 16) }
    }

    /// Returns all numbers as [`numbers`](Line::numbers) does, mutable.
    pub fn numbers_mut(lines: &mut [Line]) -> &mut [f32] {
        // SAFETY: a line is sixteen f32 without gaps.
        unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), lines.len() * 16) }
    }
}

/// f32 numbers aligned to a cache line. Their values are left over from the last use.
#[derive(Default)]
pub(crate) struct Scratch(Vec<Line>);

impl Scratch {
    /// Returns memory for `len` arbitrary numbers.
    pub fn uninit(&mut self, len: usize) -> &mut [f32] {
        let lines = Line::count(len);
        if self.0.len() < lines {
            self.0.clear();
            self.0.resize(lines, Line::default());
        }
        let numbers = &mut Line::numbers_mut(&mut self.0)[..len];
        if let Some(byte) = UNWRITTEN {
            numbers.fill(f32::from_ne_bytes([byte; 4]));
        }
        numbers
    }
}

/// Number of lines of scratch memory above which it is freed after use: 16 MiB.
const KEPT_LINES: usize = 1 << 18;

/// Calls `f` with `N` of this thread's scratch memories.
pub(crate) fn with_scratch<const N: usize, R>(f: impl FnOnce([&mut Scratch; N]) -> R) -> R {
    thread_local! { static FREE: RefCell<Vec<Scratch>> = const { RefCell::new(Vec::new()) }; }
    let mut used: Vec<Scratch> = FREE.with_borrow_mut(|free| {
        let from = free.len().saturating_sub(N);
        free.drain(from..).collect()
    });
    used.resize_with(N, Scratch::default);
    let mut parts = used.iter_mut();
    let result = f(std::array::from_fn(|_| parts.next().expect("as many as N")));
    used.iter_mut().filter(|scratch| scratch.0.len() > KEPT_LINES).for_each(|scratch| *scratch = Scratch::default());
    FREE.with_borrow_mut(|free| free.append(&mut used));
    result
}
