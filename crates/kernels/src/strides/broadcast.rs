//! Iteration over several arrays that are broadcast to one shape.

use crate::{
    arrays::array_of,
    memory::{Item, Pooled, with_capacity},
};

/// Traversal of `N` contiguous arrays that are broadcast to one common shape.
///
/// Adjacent axes that all arrays traverse alike become one axis, so arrays of one shape are a single row.
pub struct Broadcast<const N: usize> {
    len: usize,
    row: (usize, [usize; N]),
    /// Length and steps of the other axes, the outermost first.
    outer: Vec<(usize, [usize; N])>,
}

/// One array in one row: its element `i` is at `start + i * step`; the step is 0 or 1.
#[derive(Clone, Copy)]
pub struct Run {
    pub start: usize,
    pub step: usize,
}

impl<const N: usize> Broadcast<N> {
    /// Creates the traversal. `shapes` must broadcast to `to`.
    pub fn new(to: &[usize], shapes: [&[usize]; N]) -> Self {
        let mut axes: Vec<(usize, [usize; N])> = Vec::new();
        let mut sizes = [1; N];
        for (from_last, &len) in to.iter().rev().enumerate() {
            let steps = std::array::from_fn(|k| {
                let own = shapes[k].iter().rev().nth(from_last).copied().unwrap_or(1);
                let step = if own == 1 { 0 } else { sizes[k] };
                sizes[k] *= own;
                step
            });
            if len == 1 {
                continue;
            }
            match axes.last_mut() {
                Some((inner, inner_steps)) if (0..N).all(|k| steps[k] == inner_steps[k] * *inner) => *inner *= len,
                _ => axes.push((len, steps)),
            }
        }
        let len = to.iter().product();
        let row = if axes.is_empty() { (1, [0; N]) } else { axes.remove(0) };
        axes.reverse();
        Broadcast { len, row, outer: axes }
    }

    /// Returns the number of elements of the common shape.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Calls `f` with the length and the arrays of each row, in row-major order.
    pub fn each_row(&self, mut f: impl FnMut(usize, [Run; N])) {
        if self.len == 0 {
            return;
        }
        let (len, steps) = self.row;
        let mut index = vec![0; self.outer.len()];
        let mut starts = [0; N];
        loop {
            f(len, array_of(|k| Run { start: starts[k], step: steps[k] }));
            let mut axis = self.outer.len();
            loop {
                if axis == 0 {
                    return;
                }
                axis -= 1;
                let (len, steps) = &self.outer[axis];
                index[axis] += 1;
                for k in 0..N {
                    starts[k] += steps[k];
                }
                if index[axis] < *len {
                    break;
                }
                index[axis] = 0;
                for k in 0..N {
                    starts[k] -= steps[k] * len;
                }
            }
        }
    }
}

/// Returns the index of each element of an array of `shape` that is broadcast to `to`.
pub fn broadcast_indices(to: &[usize], shape: &[usize]) -> Vec<usize> {
    let walk = Broadcast::new(to, [shape]);
    let mut indices = Vec::with_capacity(walk.len());
    walk.each_row(|len, [run]| indices.extend((0..len).map(|i| run.start + i * run.step)));
    indices
}

/// Computes `f` of every pair of elements.
pub fn zip<A: Copy, B: Copy, O: Item>(walk: &Broadcast<2>, a: &[A], b: &[B], f: impl Fn(A, B) -> O) -> Pooled<O> {
    let mut out = with_capacity(walk.len());
    walk.each_row(|len, [pa, pb]| {
        let (a, b) = (&a[pa.start..], &b[pb.start..]);
        match (pa.step, pb.step) {
            (1, 1) => out.extend(a[..len].iter().zip(&b[..len]).map(|(&a, &b)| f(a, b))),
            (1, _) => out.extend(a[..len].iter().map(|&a| f(a, b[0]))),
            (_, 1) => out.extend(b[..len].iter().map(|&b| f(a[0], b))),
            _ => out.extend(std::iter::repeat_n(f(a[0], b[0]), len)),
        }
    });
    out
}

/// Computes `f` of every triple of elements.
pub fn zip3<A: Copy, B: Copy, C: Copy, O: Item>(
    walk: &Broadcast<3>,
    a: &[A],
    b: &[B],
    c: &[C],
    f: impl Fn(A, B, C) -> O,
) -> Pooled<O> {
    let mut out = with_capacity(walk.len());
    walk.each_row(|len, runs| {
        let [pa, pb, pc] = runs;
        if runs.iter().all(|run| run.step == 1) {
            let row = a[pa.start..][..len].iter().zip(&b[pb.start..][..len]).zip(&c[pc.start..][..len]);
            out.extend(row.map(|((&a, &b), &c)| f(a, b, c)));
        } else {
            let at = |run: Run, i: usize| run.start + i * run.step;
            out.extend((0..len).map(|i| f(a[at(pa, i)], b[at(pb, i)], c[at(pc, i)])));
        }
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns, by definition, the row-major index of `index`, with axes of length 1 broadcast.
    fn flat(index: &[usize], shape: &[usize]) -> usize {
        let index = &index[index.len() - shape.len()..];
        index.iter().zip(shape).fold(0, |at, (&i, &len)| at * len + if len == 1 { 0 } else { i })
    }

    #[test]
    fn every_broadcast_reads_what_the_definition_says() {
        let to = [2, 3, 1, 2];
        let mut shapes: Vec<Vec<usize>> = vec![vec![], vec![2], vec![1], vec![1, 2], vec![3, 1, 1], vec![1, 1, 1]];
        for mask in 0..16 {
            shapes.push(to.iter().enumerate().map(|(i, &len)| if mask >> i & 1 == 1 { 1 } else { len }).collect());
        }
        let data: Vec<usize> = (0..12).collect();
        for a in &shapes {
            for b in &shapes {
                let walk = Broadcast::new(&to, [a, b]);
                let index = |i: usize| [i / 6, i / 2 % 3, 0, i % 2];
                let want: Vec<_> = (0..12).map(|i| (flat(&index(i), a), flat(&index(i), b))).collect();
                assert_eq!(zip(&walk, &data, &data, |a, b| (a, b))[..], want, "{a:?} {b:?}");
                let walk = Broadcast::new(&to, [a, b, &to]);
                let want: Vec<_> = want.into_iter().enumerate().map(|(i, (a, b))| (a, 100 * b + i)).collect();
                assert_eq!(zip3(&walk, &data, &data, &data, |a, b, c| (a, 100 * b + c))[..], want, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn nothing_is_read_of_an_empty_shape() {
        let walk = Broadcast::new(&[0, 3], [&[0, 3], &[1, 3]]);
        assert!(zip(&walk, &[0.0; 0], &[1.0; 3], |a: f32, b: f32| a + b).is_empty());
    }
}
