//! Elements at an index along an axis, for each position along the others: picked, and added to.

use std::{
    ops::Range,
    sync::atomic::{AtomicUsize, Ordering},
};

use super::scatter::FEW;
use crate::{
    float::{Float, Real},
    memory::Pooled,
    threads::{PASSED, Shared, chunks, split},
};

/// Places of the elements that an index names along an axis.
pub struct Indexed<'a> {
    indices: &'a [i64],
    /// Offsets of the positions in front of the axis, which count slices of it, and of those behind it.
    before: Vec<usize>,
    after: Vec<usize>,
    /// Length of the axis in the index, and in the tensor.
    rows: usize,
    len: usize,
    /// Number of elements of the tensor behind an index.
    behind: usize,
    /// Number of elements of the tensor.
    all: usize,
}

/// Number of elements that are picked together.
const PART: usize = 4096;

impl<'a> Indexed<'a> {
    /// Creates the places in a tensor of shape `from` of an index of shape `to`, which has as many axes, and is no longer
    /// along the others than `axis`.
    pub fn new(from: &[usize], axis: usize, indices: &'a [i64], to: &[usize]) -> Self {
        assert!(from.len() == to.len() && (0..to.len()).all(|i| i == axis || to[i] <= from[i]), "an index that fits");
        assert_eq!(indices.len(), to.iter().product::<usize>());
        Indexed {
            indices,
            before: positions(&to[..axis], &from[..axis]),
            after: positions(&to[axis + 1..], &from[axis + 1..]),
            rows: to[axis],
            len: from[axis],
            behind: from[axis + 1..].iter().product(),
            all: from.iter().product(),
        }
    }

    /// Copies each element that the index names.
    ///
    /// # Errors
    /// Position of the first index beyond the axis.
    pub fn pick<T: Copy + Send + Sync>(&self, x: &[T], out: &mut [T]) -> Result<(), usize> {
        assert!(x.len() == self.all && out.len() == self.indices.len());
        let each = self.after.len();
        if out.is_empty() {
            return Ok(());
        }
        let size = PART.div_ceil(each) * each;
        let beyond = AtomicUsize::new(usize::MAX);
        chunks(out, size, self.indices.len() * PASSED, |part, out| {
            let indices = &self.indices[part * size..][..out.len()];
            if let Some(place) = indices.iter().position(|&i| i as u64 >= self.len as u64) {
                beyond.fetch_min(part * size + place, Ordering::Relaxed);
                return;
            }
            let first = part * (size / each);
            let (mut block, mut row) = (first / self.rows, first % self.rows);
            for (out, indices) in out.chunks_exact_mut(each).zip(indices.chunks_exact(each)) {
                let slice = &x[self.before[block] * self.len * self.behind..][..self.len * self.behind];
                for ((out, &i), place) in out.iter_mut().zip(indices).zip(&self.after) {
                    *out = slice[i as usize * self.behind + place];
                }
                row += 1;
                if row == self.rows {
                    (block, row) = (block + 1, 0);
                }
            }
        });
        found(beyond)
    }

    /// Adds each of `values` to the element that the index names, in their order. If an element receives more than [`FEW`],
    /// its sum is kept in f64 and rounded at the end.
    ///
    /// # Errors
    /// As [`pick`](Indexed::pick). The sums are arbitrary then.
    pub fn add<T: Float>(&self, sums: &mut [T::Wide], values: &[T]) -> Result<(), usize> {
        assert!(sums.len() == self.all && values.len() == self.indices.len());
        let (each, sums, beyond) = (self.after.len(), Shared::new(sums), AtomicUsize::new(usize::MAX));
        // Elements of different positions along the other axes are different ones, so threads share the positions.
        split(self.before.len() * each, 16, self.indices.len() * PASSED, |positions| {
            let mut start = positions.start;
            while start < positions.end {
                let block = start / each;
                let end = positions.end.min((block + 1) * each);
                self.add_block(block, start - block * each..end - block * each, sums, values, &beyond);
                start = end;
            }
        });
        found(beyond)
    }

    /// Adds the values of some positions behind the axis.
    fn add_block<T: Float>(
        &self,
        block: usize,
        columns: Range<usize>,
        sums: Shared<'_, T::Wide>,
        values: &[T],
        beyond: &AtomicUsize,
    ) {
        let (each, width) = (self.after.len(), columns.len());
        let rows = block * self.rows..(block + 1) * self.rows;
        let part = |row: usize| row * each + columns.start..row * each + columns.end;
        // No element receives more than one value of each row.
        let counted = if self.rows > FEW { self.len * width } else { 0 };
        let mut counts = vec![0u8; counted];
        for row in rows.clone() {
            for (column, &i) in self.indices[part(row)].iter().enumerate() {
                if i as u64 >= self.len as u64 {
                    beyond.fetch_min(row * each + columns.start + column, Ordering::Relaxed);
                    return;
                }
                if let Some(count) = counts.get_mut(i as usize * width + column) {
                    *count = count.saturating_add(1);
                }
            }
        }
        let base = self.before[block] * self.len * self.behind;
        let after = &self.after[columns.clone()];
        // SAFETY (of what reads and writes through it): the index was checked above, so the place is one of `sums`, and no other
        // thread has this position.
        let at = |i: usize, column: usize| sums.at(base + i * self.behind + after[column]);
        let is_crowded = |count: &&u8| usize::from(**count) > FEW;
        let mut space = Pooled::uninit(width);
        if !counts.iter().any(|count| is_crowded(&count)) {
            for row in rows {
                let of_row = self.indices[part(row)].iter().zip(T::widened(&values[part(row)], &mut space));
                for (column, (&i, value)) in of_row.enumerate() {
                    // SAFETY: see `at`.
                    unsafe { *at(i as usize, column) += *value };
                }
            }
            return;
        }
        // Places of sums in f64, counted from 1.
        let mut wide: Vec<f64> = Vec::new();
        let mut place = |(n, count): (usize, &u8)| {
            if !is_crowded(&count) {
                return 0;
            }
            // SAFETY: see `at`.
            wide.push(unsafe { *at(n / width, n % width) }.as_f64());
            wide.len()
        };
        let places: Vec<usize> = counts.iter().enumerate().map(&mut place).collect();
        for row in rows {
            let of_row = self.indices[part(row)].iter().zip(T::widened(&values[part(row)], &mut space));
            for (column, (&i, value)) in of_row.enumerate() {
                match places[i as usize * width + column] {
                    // SAFETY: see `at`.
                    0 => unsafe { *at(i as usize, column) += *value },
                    place => wide[place - 1] += value.as_f64(),
                }
            }
        }
        for (n, place) in places.iter().enumerate().filter(|(_, place)| **place > 0) {
            // SAFETY: see `at`.
            unsafe { *at(n / width, n % width) = T::Wide::of(wide[place - 1]) };
        }
    }
}

fn found(beyond: AtomicUsize) -> Result<(), usize> {
    match beyond.into_inner() {
        usize::MAX => Ok(()),
        place => Err(place),
    }
}

/// Returns the offsets of a block's elements, from its start, in a tensor of shape `from`.
fn positions(block: &[usize], from: &[usize]) -> Vec<usize> {
    block.iter().zip(from).fold(vec![0], |starts, (&count, &len)| {
        starts.iter().flat_map(|start| (0..count).map(move |i| start * len + i)).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::alone;

    /// Elements are found one after another. Of values that are added in f64, a sum of ones is exact.
    #[test]
    fn elements_are_picked_and_added_as_one_by_one() {
        for (from, axis, to) in [
            (vec![7, 5, 6], 1, vec![7, 40, 6]),
            (vec![7, 5, 6], 0, vec![300, 4, 5]),
            (vec![9, 300], 1, vec![8, 2]),
            (vec![600, 30], 0, vec![2000, 30]),
            (vec![4], 0, vec![9]),
            (vec![3, 2], 0, vec![0, 2]),
        ] {
            let count = to.iter().product::<usize>();
            let indices: Vec<i64> = (0..count).map(|n| (n * n / 3 % from[axis]) as i64).collect();
            let place = |n: usize| {
                let (mut rest, mut place, mut unit) = (n, 0, 1);
                for i in (0..to.len()).rev() {
                    let at = if i == axis { indices[n] as usize } else { rest % to[i] };
                    (rest, place, unit) = (rest / to[i], place + at * unit, unit * from[i]);
                }
                place
            };
            let x: Vec<f32> = (0..from.iter().product::<usize>()).map(|n| n as f32).collect();
            let indexed = Indexed::new(&from, axis, &indices, &to);
            let picked: Vec<f32> = (0..count).map(|n| place(n) as f32).collect();
            let mut added = x.clone();
            (0..count).for_each(|n| added[place(n)] += 1.0);
            let run = || {
                let (mut out, mut sums) = (vec![0.0; count], x.clone());
                indexed.pick(&x, &mut out).unwrap();
                indexed.add::<f32>(&mut sums, &vec![1.0; count]).unwrap();
                (out, sums)
            };
            assert_eq!(run(), (picked.clone(), added.clone()), "{from:?} {to:?}");
            assert_eq!(alone(run), (picked, added), "{from:?} {to:?}");
        }
    }

    #[test]
    fn the_first_index_beyond_the_axis_is_found() {
        let indices: Vec<i64> = (0..20_000).map(|n| if n == 12_345 || n > 15_000 { -1 } else { n % 4 }).collect();
        let indexed = Indexed::new(&[4, 2], 0, &indices, &[10_000, 2]);
        assert_eq!(indexed.pick(&[0.0; 8], &mut vec![0.0; 20_000]), Err(12_345));
        assert!(indexed.add::<f32>(&mut [0.0; 8], &vec![0.0; 20_000]).is_err());
    }
}
