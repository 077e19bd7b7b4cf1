//! Untyped memory: runs of cache lines, taken from large chunks of system memory.
//!
//! A request receives the smallest free run that is large enough, and the rest of the run stays free. Adjacent free
//! runs are merged. Memory can thus be reused for another size and another element type. Untouched parts of a chunk do
//! not use physical memory yet, so of equal runs, that in the oldest chunk is taken. Unused chunks are returned to the
//! system, up to a limit that rises by what is needed again: the next step of a large network needs all of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    ptr::NonNull,
};

use super::{line::Line, pages, shortage::Shortage};

/// The start of lines, and their number.
type Run = (NonNull<Line>, usize);

/// Bytes of a chunk. It is larger than anything glibc takes from its own heap, so a chunk is a mapping, and returns to
/// the system as soon as it is freed.
const CHUNK: usize = if cfg!(miri) { 1 << 20 } else { 64 << 20 };

/// Least number of lines that are split off from a run.
const LEAST: usize = 16;

struct Chunk {
    memory: Vec<u64>,
    lines: usize,
    /// Number of chunks before it.
    age: usize,
}

/// All chunks. Runs are counted in lines.
pub(super) struct Arena {
    /// Free runs by size, then age of the chunk, then address.
    by_size: BTreeSet<(usize, usize, NonNull<Line>)>,
    by_address: BTreeMap<NonNull<Line>, usize>,
    /// The chunks by their first lines.
    chunks: BTreeMap<NonNull<Line>, Chunk>,
    /// Number of chunks so far.
    grown: usize,
    /// Lines of all free runs.
    free: usize,
    /// Lines that were returned to the system, and not needed since.
    returned: usize,
    /// Lines that were returned and needed again. As many more stay free from then on.
    missed: usize,
}

// SAFETY: the pointers refer to memory owned by the arena.
unsafe impl Send for Arena {}

impl Arena {
    pub const fn new() -> Self {
        Arena {
            by_size: BTreeSet::new(),
            by_address: BTreeMap::new(),
            chunks: BTreeMap::new(),
            grown: 0,
            free: 0,
            returned: 0,
            missed: 0,
        }
    }

    /// Takes a run of at least `lines` lines, and returns it with its number of lines. The lines keep their contents
    /// from earlier use. If no run is large enough, a new chunk takes the place of those without any run in use: they are
    /// too small, and are returned for the caller to drop, also when the system does not have the new one.
    pub fn take(&mut self, lines: usize) -> (Result<Run, Shortage>, Vec<Vec<u64>>) {
        let fits = self.by_size.range((lines, 0, NonNull::dangling())..).next().map(|&(has, _, start)| (has, start));
        let unused = if fits.is_none() { self.unused(0) } else { Vec::new() };
        let (has, start) = match fits.map_or_else(|| self.grow(lines), Ok) {
            Ok(run) => run,
            Err(shortage) => return (Err(shortage), unused),
        };
        self.remove(start, has);
        if has - lines < LEAST {
            return (Ok((start, has)), unused);
        }
        // SAFETY: the run has more lines than these.
        self.insert(unsafe { start.add(lines) }, has - lines);
        (Ok((start, lines)), unused)
    }

    /// Frees a run that was taken. If more than `limit` bytes are free, in addition to those that were returned before and
    /// needed again, chunks without any run in use are returned for the caller to drop, the largest first.
    pub fn give_back(&mut self, mut start: NonNull<Line>, mut lines: usize, limit: usize) -> Vec<Vec<u64>> {
        let before = self.by_address.range(..start).next_back().map(|(&at, &has)| (at, has));
        if let Some((at, has)) = before
            && self.end(at, has) == start
            && !self.chunks.contains_key(&start)
        {
            self.remove(at, has);
            (start, lines) = (at, lines + has);
        }
        let end = self.end(start, lines);
        if let Some(&has) = self.by_address.get(&end)
            && !self.chunks.contains_key(&end)
        {
            self.remove(end, has);
            lines += has;
        }
        self.insert(start, lines);
        let before = self.free;
        let unused = self.unused(limit.saturating_add(self.missed * size_of::<Line>()));
        self.returned += before - self.free;
        unused
    }

    /// Takes out chunks without any run in use, the largest first, until at most `limit` bytes are free.
    fn unused(&mut self, limit: usize) -> Vec<Vec<u64>> {
        let mut unused = Vec::new();
        while self.free * size_of::<Line>() > limit {
            let whole = |(&at, chunk): (&NonNull<Line>, &Chunk)| {
                (self.by_address.get(&at) == Some(&chunk.lines)).then_some((chunk.lines, at))
            };
            let Some((has, at)) = self.chunks.iter().filter_map(whole).max() else { break };
            self.remove(at, has);
            unused.extend(self.chunks.remove(&at).map(|chunk| chunk.memory));
        }
        unused
    }

    /// Allocates a new chunk as a free run of at least `lines` lines.
    fn grow(&mut self, lines: usize) -> Result<(usize, NonNull<Line>), Shortage> {
        let lines = lines.max(CHUNK / size_of::<Line>());
        let mut memory = pages::zeroed((lines + 1).saturating_mul(size_of::<Line>() / size_of::<u64>()))?;
        let start = memory.as_mut_ptr();
        // SAFETY: there is one spare line, and the first aligned address is within it.
        let start = unsafe { start.byte_add(start.align_offset(align_of::<Line>()) * size_of::<u64>()) };
        let start = NonNull::new(start.cast()).expect("no vector begins at 0");
        self.chunks.insert(start, Chunk { memory, lines, age: self.grown });
        self.grown += 1;
        let again = self.returned.min(lines);
        (self.returned, self.missed) = (self.returned - again, self.missed + again);
        self.insert(start, lines);
        Ok((lines, start))
    }

    /// Returns the line after a run.
    fn end(&self, start: NonNull<Line>, lines: usize) -> NonNull<Line> {
        // SAFETY: all lines of a run are within one chunk.
        unsafe { start.add(lines) }
    }

    /// Returns the key of a free run.
    fn key(&self, start: NonNull<Line>, lines: usize) -> (usize, usize, NonNull<Line>) {
        let (_, chunk) = self.chunks.range(..=start).next_back().expect("a run is within a chunk");
        (lines, chunk.age, start)
    }

    fn insert(&mut self, start: NonNull<Line>, lines: usize) {
        self.by_size.insert(self.key(start, lines));
        self.by_address.insert(start, lines);
        self.free += lines;
    }

    fn remove(&mut self, start: NonNull<Line>, lines: usize) {
        self.by_size.remove(&self.key(start, lines));
        self.by_address.remove(&start);
        self.free -= lines;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: usize = CHUNK / size_of::<Line>();

    fn take(arena: &mut Arena, lines: usize) -> (NonNull<Line>, usize) {
        let (run, unused) = arena.take(lines);
        assert!(unused.is_empty());
        run.unwrap()
    }

    fn give_back(arena: &mut Arena, (start, lines): (NonNull<Line>, usize), limit: usize) -> usize {
        arena.give_back(start, lines, limit).len()
    }

    #[test]
    fn the_smallest_run_that_fits_is_taken_and_neighbours_are_joined() {
        let mut arena = Arena::new();
        let runs: Vec<_> = [100, 300, 200, 50].into_iter().map(|lines| take(&mut arena, lines)).collect();
        for (one, next) in runs.iter().zip(&runs[1..]) {
            assert_eq!(arena.end(one.0, one.1), next.0);
        }
        assert_eq!(arena.free, ALL - 650);
        assert_eq!(give_back(&mut arena, runs[1], usize::MAX), 0);
        assert_eq!(give_back(&mut arena, runs[3], usize::MAX), 0);
        let again = take(&mut arena, 290);
        assert_eq!(again, (runs[1].0, 300), "less than the least is left of it");
        give_back(&mut arena, again, usize::MAX);
        let part = take(&mut arena, 120);
        assert_eq!(part, (runs[1].0, 120));
        give_back(&mut arena, runs[2], usize::MAX);
        give_back(&mut arena, part, usize::MAX);
        assert_eq!(arena.by_address.len(), 1, "all behind the first run is one");
        give_back(&mut arena, runs[0], usize::MAX);
        assert_eq!((arena.by_address.len(), arena.by_size.len(), arena.free), (1, 1, ALL));
    }

    #[test]
    fn lines_are_aligned_and_zero_at_first() {
        let mut arena = Arena::new();
        let (start, lines) = take(&mut arena, 3 * ALL);
        assert_eq!((start.as_ptr() as usize % 64, lines), (0, 3 * ALL));
        // SAFETY: the run was just taken.
        let run = unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), lines) };
        assert!(Line::numbers(&run[..2]).iter().chain(Line::numbers(&run[lines - 2..])).all(|&x| x == 0.0));
        Line::numbers_mut(run)[16 * lines - 1] = 1.0;
    }

    #[test]
    fn chunks_without_a_run_in_use_go_back_above_the_limit() {
        let mut arena = Arena::new();
        let runs = [take(&mut arena, ALL), take(&mut arena, 2 * ALL), take(&mut arena, ALL), take(&mut arena, 10)];
        assert_eq!(arena.chunks.len(), 4);
        assert_eq!(give_back(&mut arena, runs[0], 2 * CHUNK), 0);
        assert_eq!(give_back(&mut arena, runs[1], 3 * CHUNK), 1, "the largest");
        assert_eq!(arena.free, 2 * ALL - 10);
        assert_eq!(give_back(&mut arena, runs[2], 0), 2, "the last chunk is in use");
        assert_eq!((arena.chunks.len(), arena.free), (1, ALL - 10));
        assert_eq!(give_back(&mut arena, runs[3], 0), 1);
        assert_eq!((arena.chunks.len(), arena.free, arena.by_size.len()), (0, 0, 0));
    }

    #[test]
    fn as_much_as_was_returned_and_needed_again_stays() {
        let mut arena = Arena::new();
        for returned in [1, 0, 0] {
            let run = take(&mut arena, ALL);
            assert_eq!(give_back(&mut arena, run, 0), returned);
        }
        let runs = [take(&mut arena, ALL), take(&mut arena, ALL)];
        assert_eq!(give_back(&mut arena, runs[0], 0), 0);
        assert_eq!(give_back(&mut arena, runs[1], 0), 1, "the second was never missed");
        assert_eq!((arena.free, arena.missed), (ALL, ALL));
    }

    #[test]
    fn of_equal_runs_that_in_the_oldest_chunk_is_taken() {
        let mut arena = Arena::new();
        for first in 0..2 {
            let runs: Vec<_> = (0..6).map(|_| take(&mut arena, ALL)).collect();
            assert_eq!(arena.chunks.len(), 6);
            // Whatever the addresses that the system returned.
            for &run in runs[first..].iter().rev() {
                give_back(&mut arena, run, usize::MAX);
            }
            for &run in &runs[first..] {
                assert_eq!(take(&mut arena, ALL), run);
            }
            runs.into_iter().for_each(|run| _ = give_back(&mut arena, run, usize::MAX));
        }
    }

    #[test]
    fn a_new_chunk_takes_the_place_of_unused_ones_that_are_left_out() {
        let mut arena = Arena::new();
        let (small, used) = (take(&mut arena, ALL), take(&mut arena, ALL - 1));
        assert_eq!(give_back(&mut arena, small, usize::MAX), 0);
        let (large, unused) = arena.take(2 * ALL);
        assert_eq!((large.unwrap().1, unused.len(), arena.chunks.len()), (2 * ALL, 1, 2));
        assert_eq!(give_back(&mut arena, used, usize::MAX), 0);
        assert_eq!(take(&mut arena, ALL / 2).1, ALL / 2, "a part of the chunk that stayed");
        assert_eq!(arena.chunks.len(), 2);
    }
}
