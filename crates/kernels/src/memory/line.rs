//! Unit of the memory of kernels: a cache line.

/// Byte value of unwritten memory with debug assertions, which each floating type reads as NaN: an element that a
/// kernel leaves out shows in its result. Without debug assertions, memory keeps its contents from earlier use.
pub(super) const UNWRITTEN: Option<u8> = if cfg!(debug_assertions) { Some(0xff) } else { None };

/// Cache line of f32.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
pub struct Line([f32; Line::LEN]);

impl Line {
    /// Numbers in a line.
    pub const LEN: usize = 16;

    /// Returns the number of lines that `len` numbers fill.
    pub fn count(len: usize) -> usize {
        len.div_ceil(Line::LEN)
    }

    /// Returns all numbers of some lines.
    pub fn numbers(lines: &[Line]) -> &[f32] {
        // SAFETY: a line is an array of f32 without gaps.
        unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), lines.len() * Line::LEN) }
    }

    /// Returns all numbers as [`numbers`](Line::numbers) does, mutable.
    pub fn numbers_mut(lines: &mut [Line]) -> &mut [f32] {
        // SAFETY: a line is an array of f32 without gaps.
        unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), lines.len() * Line::LEN) }
    }
}
