//! Aligned memory that each thread keeps for its matrix products and convolutions.

use std::cell::RefCell;

use super::{
    line::{Line, UNWRITTEN},
    pages::constant,
};

/// f32 numbers aligned to a cache line. Their values are left over from the last use.
#[derive(Default)]
pub struct Scratch(Vec<Line>);

impl Scratch {
    /// Returns memory for `len` arbitrary numbers.
    pub fn uninit(&mut self, len: usize) -> &mut [f32] {
        let lines = Line::count(len);
        if self.0.len() < lines {
            // Freed first, so that it may be part of the new memory.
            self.0 = Vec::new();
            self.0 = constant(Line::default(), lines);
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
pub fn with_scratch<const N: usize, R>(f: impl FnOnce([&mut Scratch; N]) -> R) -> R {
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
