//! Memory that a thread's products use again and again.

use std::cell::RefCell;

/// Sixteen f32 on a cache line of their own.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
pub(super) struct Line([f32; 16]);

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

/// f32s that begin on a cache line. What is in them is left over from the last use.
#[derive(Default)]
pub(crate) struct Scratch(Vec<Line>);

impl Scratch {
    /// Room for `len` numbers.
    pub fn room(&mut self, len: usize) -> &mut [f32] {
        let lines = Line::count(len);
        if self.0.len() < lines {
            self.0.resize(lines, Line::default());
        }
        &mut Line::numbers_mut(&mut self.0)[..len]
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
