//! Aligned memory that each thread keeps for its matrix products and convolutions.

use std::cell::RefCell;

/// What the bytes of unwritten memory are with debug assertions, where each floating type reads NaN: a kernel that leaves out an
/// element shows in its result. Without them, memory holds what an earlier use left.
pub(super) const UNWRITTEN: Option<u8> = if cfg!(debug_assertions) { Some(0xff) } else { None };

/// A cache line of sixteen f32.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
pub(crate) struct Line([f32; 16]);

impl Line {
    /// How many lines so many numbers fill.
    pub fn count(len: usize) -> usize {
        len.div_ceil(16)
    }

    /// All numbers of some lines.
    pub fn numbers(lines: &[Line]) -> &[f32] {
        // SAFETY: a line is sixteen f32 without gaps.
        unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), lines.len() * 16) }
    }

    /// As [`numbers`](Line::numbers), mutable.
    pub fn numbers_mut(lines: &mut [Line]) -> &mut [f32] {
        // SAFETY: a line is sixteen f32 without gaps.
        unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), lines.len() * 16) }
    }
}

/// f32 numbers that begin on a cache line. Their values are left over from the last use.
#[derive(Default)]
pub(crate) struct Scratch(Vec<Line>);

impl Scratch {
    /// Memory of `len` numbers, whatever they are.
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

/// Scratch memory above this is given back after its use: 16 MiB.
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
