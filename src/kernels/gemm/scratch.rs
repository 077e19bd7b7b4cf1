//! Memory that a thread's products use again and again.

use std::cell::RefCell;

/// Sixteen f32 on a cache line of their own.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// f32s that begin on a cache line. What is in them is left over from the last use.
#[derive(Default)]
pub(crate) struct Scratch(Vec<Line>);

impl Scratch {
    /// Room for `len` numbers.
    pub fn room(&mut self, len: usize) -> &mut [f32] {
        let lines = len.div_ceil(16);
        if self.0.len() < lines {
            self.0.resize(lines, Line([0.0; 16]));
        }
        // SAFETY: a line is sixteen f32 without gaps, and there are enough lines.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), len) }
    }
}

/// Lends this thread's scratch memories to `f`.
pub(crate) fn with_scratch<const N: usize, R>(f: impl FnOnce([&mut Scratch; N]) -> R) -> R {
    thread_local! { static KEPT: RefCell<Vec<Scratch>> = const { RefCell::new(Vec::new()) }; }
    let mut lent: Vec<Scratch> = KEPT.with_borrow_mut(|kept| {
        let from = kept.len().saturating_sub(N);
        kept.drain(from..).collect()
    });
    lent.resize_with(N, Scratch::default);
    let mut parts = lent.iter_mut();
    let result = f(std::array::from_fn(|_| parts.next().expect("as many as N")));
    KEPT.with_borrow_mut(|kept| kept.append(&mut lent));
    result
}
