//! Buffers: memory for the results of kernels, taken from one arena for all element types.
//!
//! Fresh memory costs page faults and clearing, more than an addition or a relu. A training step needs the same
//! allocations as the previous one, and memory of a 16-bit activation can become an f32 gradient. So a dropped buffer
//! returns its memory to the [`Arena`], and the next one reuses it, whatever its type. There is one arena behind a
//! lock, rather than one per thread, because a tensor may be dropped on a thread other than the one that created it.
//! The lock is held for some tens of nanoseconds.
//!
//! "Uninit" in a name means that the elements are left over from earlier use: valid, but arbitrary numbers.

use std::{
    fmt,
    mem::ManuallyDrop,
    ops::{Deref, DerefMut},
    ptr::NonNull,
    sync::{Mutex, PoisonError},
};

use half::{bf16, f16};

use super::{
    arena::Arena,
    line::{Line, UNWRITTEN},
    shortage::Shortage,
};

/// Bytes of unused memory that are kept for future tensors at least: 512 MiB, enough for a step of most networks that are
/// trained on a CPU. Memory is taken from the system in chunks of 64 MiB, or more for a larger tensor. Above this limit,
/// entirely unused chunks are returned to the system; so are those that are too small when a new one is needed. The limit
/// rises by the bytes that were returned and needed again.
pub const KEPT_BYTES: usize = 512 << 20;

/// Size in bytes below which buffers are left to the allocator, which is as fast.
const SMALL: usize = 1024;

static ARENA: Mutex<Arena> = Mutex::new(Arena::new());

/// Possible element type of a buffer.
///
/// # Safety
/// Every bit pattern is a value, unless `ONLY_SOME`, in which case zeros are. The alignment does not exceed that of a
/// [`Line`].
pub unsafe trait Item: Copy + Default + Send + Sync + 'static {
    /// `true` when some bit patterns are not values.
    const ONLY_SOME: bool = false;
}

macro_rules! items {
    ($($t:ty),*) => { $(
        // SAFETY: numbers without gaps, of at most eight bytes each, or a line of them.
        unsafe impl Item for $t {}
    )* };
}
items!(f64, f32, f16, bf16, i64, u32, usize, (usize, usize), Line);

// SAFETY: 0 is false.
unsafe impl Item for bool {
    const ONLY_SOME: bool = true;
}

/// Vector whose memory comes from the arena or from a user's `Vec`. It does not grow beyond its capacity unless it has
/// to.
pub struct Pooled<T: Item> {
    start: NonNull<T>,
    len: usize,
    capacity: usize,
    /// Lines of the arena, with all elements within the capacity being values; 0 for memory from a `Vec`.
    lines: usize,
}

// SAFETY: it owns its elements.
unsafe impl<T: Item> Send for Pooled<T> {}
// SAFETY: as above; nothing is changed through a shared reference.
unsafe impl<T: Item> Sync for Pooled<T> {}

impl<T: Item> Pooled<T> {
    /// Allocates room for `len` elements, all of them values, with length 0. [Unwinds](Shortage::unwind) if there is none.
    fn with_room(len: usize) -> Self {
        let bytes = len.checked_mul(size_of::<T>()).unwrap_or_else(|| Shortage::of::<T>(len).unwind());
        let buffer: Self = if bytes < SMALL {
            let mut vector = vec![T::default(); len];
            vector.clear();
            vector.into()
        } else {
            let lines = bytes.div_ceil(size_of::<Line>());
            let take = || {
                let (run, unused) = ARENA.lock().unwrap_or_else(PoisonError::into_inner).take(lines);
                drop(unused);
                run
            };
            // What was too small has been returned to the system when it is asked again.
            let (start, lines) = take().or_else(|_| take()).unwrap_or_else(|_| Shortage::of::<T>(len).unwind());
            Pooled { start: start.cast(), len: 0, capacity: lines * size_of::<Line>() / size_of::<T>(), lines }
        };
        let fill = if T::ONLY_SOME { Some(0) } else { UNWRITTEN };
        if let Some(byte) = fill {
            // SAFETY: the elements within the capacity belong to this buffer, and the pattern is a value.
            unsafe { buffer.start.as_ptr().write_bytes(byte, buffer.capacity) };
        }
        buffer
    }

    /// Creates a buffer of `len` arbitrary elements, for callers that write all of them.
    pub fn uninit(len: usize) -> Self {
        let mut buffer = Pooled::with_room(len);
        buffer.len = len;
        buffer
    }

    /// Creates a buffer of `len` zeros.
    pub fn zeros(len: usize) -> Self {
        let mut buffer = Pooled::uninit(len);
        buffer.fill(T::default());
        buffer
    }

    /// Collects the items of an iterator, at most `capacity`.
    pub fn collect(capacity: usize, items: impl Iterator<Item = T>) -> Self {
        let mut buffer = with_capacity(capacity);
        buffer.extend(items);
        buffer
    }

    /// Appends elements.
    pub fn extend(&mut self, items: impl IntoIterator<Item = T>) {
        let items = items.into_iter();
        let count = items.size_hint();
        if self.lines > 0 && count.1 == Some(count.0) && count.0 <= self.capacity - self.len {
            // SAFETY: elements within the capacity are values, and those past the length are not referenced elsewhere.
            let rest = unsafe { std::slice::from_raw_parts_mut(self.start.add(self.len).as_ptr(), count.0) };
            rest.iter_mut().zip(items).for_each(|(place, item)| *place = item);
            self.len += count.0;
        } else {
            items.for_each(|item| self.push(item));
        }
    }

    /// Appends elements.
    pub fn extend_from_slice(&mut self, items: &[T]) {
        self.extend(items.iter().copied());
    }

    /// Appends an element.
    pub fn push(&mut self, item: T) {
        if self.len == self.capacity {
            let mut more = Pooled::with_room((2 * self.len).max(8));
            more.len = self.len;
            more.copy_from_slice(self);
            *self = more;
        }
        // SAFETY: there is room after the last element.
        unsafe { self.start.add(self.len).write(item) };
        self.len += 1;
    }

    /// Returns the address of the elements. The memory is not borrowed, so it may be written to while the pointer is
    /// kept.
    pub(super) fn start(&self) -> NonNull<T> {
        self.start
    }
}

/// Creates a buffer with [`Pooled::uninit`].
pub fn uninit_vec<T: Item>(len: usize) -> Pooled<T> {
    Pooled::uninit(len)
}

/// Creates a buffer with [`Pooled::zeros`].
pub fn zeros<T: Item>(len: usize) -> Pooled<T> {
    Pooled::zeros(len)
}

/// Creates an empty buffer with room for `len` elements.
pub fn with_capacity<T: Item>(len: usize) -> Pooled<T> {
    Pooled::with_room(len)
}

/// Copies a slice.
pub fn copied<T: Item>(from: &[T]) -> Pooled<T> {
    let mut buffer = uninit_vec(from.len());
    buffer.copy_from_slice(from);
    buffer
}

impl<T: Item> FromIterator<T> for Pooled<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let items = items.into_iter();
        Pooled::collect(items.size_hint().0, items)
    }
}

impl<T: Item> From<Vec<T>> for Pooled<T> {
    fn from(vector: Vec<T>) -> Self {
        let mut vector = ManuallyDrop::new(vector);
        let (len, capacity) = (vector.len(), vector.capacity());
        let start = NonNull::new(vector.as_mut_ptr()).expect("no vector begins at 0");
        Pooled { start, len, capacity, lines: 0 }
    }
}

impl<T: Item> Drop for Pooled<T> {
    fn drop(&mut self) {
        if self.lines == 0 {
            // SAFETY: these are the parts of a vector.
            drop(unsafe { Vec::from_raw_parts(self.start.as_ptr(), self.len, self.capacity) });
            return;
        }
        let mut arena = ARENA.lock().unwrap_or_else(PoisonError::into_inner);
        let unused = arena.give_back(self.start.cast(), self.lines, KEPT_BYTES);
        // The system takes its time, and others need the lock.
        drop(arena);
        drop(unused);
    }
}

impl<T: Item> Deref for Pooled<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: `len` elements are values, and borrowed with the buffer.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Item> DerefMut for Pooled<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for `deref`, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T: Item> Default for Pooled<T> {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl<'a, T: Item> IntoIterator for &'a Pooled<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T: Item + PartialEq> PartialEq for Pooled<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Item + fmt::Debug> fmt::Debug for Pooled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Borrowed elements, or a copy of them in another order or format.
#[derive(Debug)]
pub enum Elements<'a, T: Item> {
    /// Elements of a slice.
    Borrowed(&'a [T]),
    /// Elements of their own.
    Pooled(Pooled<T>),
}

impl<T: Item> Elements<'_, T> {
    /// Returns the elements as an owned buffer.
    pub fn into_buffer(self) -> Pooled<T> {
        match self {
            Elements::Borrowed(slice) => copied(slice),
            Elements::Pooled(buffer) => buffer,
        }
    }
}

impl<T: Item> Default for Elements<'_, T> {
    fn default() -> Self {
        Elements::Borrowed(&[])
    }
}

impl<T: Item> Deref for Elements<'_, T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        match self {
            Elements::Borrowed(slice) => slice,
            Elements::Pooled(buffer) => buffer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other tests use the arena at the same time, so the location of a buffer is unpredictable.
    #[test]
    fn buffers_hold_what_was_written_whatever_their_memory_held() {
        // Miri takes a thousand times as long.
        let (rounds, longest) = if cfg!(miri) { (2, 600) } else { (3, 5000) };
        for round in 0..rounds {
            for len in [0, 1, 100, 255, 256, 257, longest] {
                let mut words = uninit_vec::<u32>(len);
                words.iter_mut().zip(round..).for_each(|(word, i)| *word = i);
                let twice = copied(&words);
                drop(words);
                let low = Pooled::collect(len, (0..len).map(|i| bf16::from_bits(i as u16)));
                assert!(twice.iter().zip(round..).all(|(&word, i)| word == i) && twice.len() == len);
                assert!(low.iter().enumerate().all(|(i, x)| x.to_bits() == i as u16) && low.len() == len);
                assert!(zeros::<f64>(len).iter().all(|&x| x == 0.0));
                assert!(uninit_vec::<bool>(len).iter().all(|&x| !x), "other bits are not a bool");
                assert!((low.as_ptr() as usize).is_multiple_of(64) || 2 * len < SMALL);
            }
        }
    }

    #[test]
    fn a_buffer_grows_where_more_comes_than_it_was_made_for() {
        for capacity in [0, 7, 300] {
            let mut buffer = with_capacity(capacity);
            (0..1000i64).for_each(|i| buffer.push(i));
            buffer.extend_from_slice(&[1000, 1001]);
            buffer.extend((1002..2000).filter(|i| i % 2 == 0));
            assert_eq!(buffer[..1002], *(0..1002).collect::<Vec<i64>>());
            assert_eq!(buffer[1002..], *(1002..2000).step_by(2).collect::<Vec<i64>>());
        }
    }

    #[test]
    fn the_memory_of_a_vector_stays_where_it_is() {
        let vector = vec![1f32; 1000];
        let address = vector.as_ptr();
        let buffer = Pooled::from(vector);
        assert_eq!((buffer.as_ptr(), buffer.len(), buffer[999]), (address, 1000, 1.0));
        assert!(Pooled::<f32>::default().is_empty());
    }

    #[test]
    fn buffers_die_on_other_threads() {
        let made: Vec<Pooled<u32>> = (0..8).map(|i| Pooled::collect(4000, std::iter::repeat_n(i, 4000))).collect();
        std::thread::scope(|threads| {
            for (i, buffer) in made.into_iter().enumerate() {
                threads.spawn(move || assert!(buffer.iter().all(|&word| word == i as u32)));
            }
        });
    }
}
