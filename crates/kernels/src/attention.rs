//! Scaled dot-product attention, one block of queries at a time, so that the full score matrix is never in memory.
//!
//! The results are rounded once: the weights are multiplied with widened values. In the backward pass every product
//! reads numbers of the attention's type, as for gradients of layers: the weights and the scaled gradients of the
//! scores are rounded for it.

use super::{
    float::{Float, Real},
    gemm::{Added, Gemm, Layout, unrounded},
    memory::{Item, Pooled, zeros},
    reduce::{largest, replace, softmax, sum_of},
    simd::Body,
    threads::{self, Shared},
};

/// Number of queries whose scores are computed together.
const QUERIES: usize = 64;

/// Keys to which the queries of a batch attend.
pub enum Mask<'a, R> {
    /// Each query attends to each key.
    All,
    /// `true` for a key that is attended to.
    Keys(BroadcastMatrix<'a, bool>),
    /// Numbers added to the scores.
    Added(BroadcastMatrix<'a, R>),
}

/// Matrices broadcast to `queries x keys`.
pub struct BroadcastMatrix<'a, T> {
    /// All matrices.
    pub data: &'a [T],
    /// Start of the matrix of each item.
    pub starts: Vec<usize>,
    /// Strides of rows and columns; 0 where the matrix is broadcast.
    pub steps: [usize; 2],
}

/// A batch of independent attentions: `softmax(q · kᵀ * scale + mask) · v`.
pub struct Attention<'a, T: Float> {
    /// Numbers of queries and keys, and lengths of a key and a value.
    pub lengths: [usize; 4],
    /// Matrices `l x d`, `s x d` and `s x e`.
    pub q: &'a [T],
    /// Keys, `s x d` each.
    pub k: &'a [T],
    /// Values, `s x e` each.
    pub v: &'a [T],
    /// Matrices of q, k and v that belong to each item.
    pub places: Vec<[usize; 3]>,
    /// Keys that are attended to.
    pub mask: Mask<'a, T::Wide>,
    /// `true` when query i attends only to keys 0 to i.
    pub causal: bool,
    /// Factor of the scores.
    pub scale: f64,
}

/// Gradients of each item, not yet summed over items that share a matrix, and not yet rounded.
pub struct Gradients<R: Item> {
    /// Gradient of the queries.
    pub q: Pooled<R>,
    /// Gradient of the keys.
    pub k: Pooled<R>,
    /// Gradient of the values.
    pub v: Pooled<R>,
    /// Gradient of the scores, which is that of an added mask; empty unless requested.
    pub scores: Pooled<R>,
}

impl<T: Gemm<Wide: Gemm>> Attention<'_, T> {
    /// Returns the multiply-adds of one item.
    fn work(&self) -> usize {
        let [l, s, d, e] = self.lengths;
        l * s * (d + e + 16)
    }

    /// Computes all results, `l x e` each.
    pub fn forward(&self) -> Pooled<T> {
        let [l, s, _, e] = self.lengths;
        let items = self.places.len();
        let mut out = zeros(items * l * e);
        if out.is_empty() || s == 0 {
            return out;
        }
        let shared = Shared::new(&mut out);
        threads::split(items, 1, items * self.work(), |items| {
            let rows = QUERIES.min(l);
            let [mut weights, mut out, mut wide] = [rows * s, rows * e, s * e].map(Pooled::uninit);
            for item in items {
                let [_, _, v] = self.operands(item);
                let v = T::widened(v, &mut wide);
                for start in (0..l).step_by(QUERIES) {
                    let (rows, keys) = self.weights(item, start, &mut weights);
                    unrounded(Layout::NN, (rows, keys, e), (&weights, v), Added::Nothing, &mut out[..rows * e]);
                    // SAFETY: no other thread writes these queries of this item.
                    let to = unsafe { shared.part((item * l + start) * e, rows * e) };
                    T::narrow_into(&out[..rows * e], to);
                }
            }
        });
        out
    }

    /// Computes the gradients from that of the results.
    pub fn backward(&self, grad: &[T], of_scores: bool) -> Gradients<T::Wide> {
        let [l, s, d, e] = self.lengths;
        let items = self.places.len();
        let mut all = Gradients {
            q: zeros(items * l * d),
            k: zeros(items * s * d),
            v: zeros(items * s * e),
            scores: zeros(if of_scores { items * l * s } else { 0 }),
        };
        if s == 0 || l == 0 {
            return all;
        }
        let scale = T::Wide::of(self.scale);
        let [q, k, v, scores] =
            [&mut all.q, &mut all.k, &mut all.v, &mut all.scores].map(|x: &mut Pooled<T::Wide>| Shared::new(x));
        threads::split(items, 1, 3 * items * self.work(), |items| {
            let [mut weights, mut dscores] = [(); 2].map(|()| Pooled::uninit(QUERIES.min(l) * s));
            let mut narrow = Pooled::uninit(QUERIES.min(l) * s);
            let [mut dk, mut dv] =
                [s * d, s * e].map(|len| Sums { now: Pooled::uninit(len), next: Pooled::uninit(len) });
            for item in items {
                let [q_item, k_item, v_item] = self.operands(item);
                [&mut dk, &mut dv].into_iter().for_each(Sums::clear);
                for start in (0..l).step_by(QUERIES) {
                    let (rows, keys) = self.weights(item, start, &mut weights);
                    let from = (item * l + start) * e;
                    let (dout, weights) = (&grad[from..from + rows * e], &weights[..rows * keys]);
                    let dscores = &mut dscores[..rows * keys];
                    unrounded(Layout::NT, (rows, e, keys), (dout, v_item), Added::Nothing, dscores);
                    dv.add((keys, rows, e), T::narrowed(weights, &mut narrow), dout);
                    T::Wide::vectorized(SoftmaxBackward { weights, grad: dscores, keys });
                    // SAFETY: no other thread writes these queries of this item.
                    unsafe {
                        for row in 0..if of_scores { rows } else { 0 } {
                            let to = scores.part((item * l + start + row) * s, keys);
                            to.copy_from_slice(&dscores[row * keys..(row + 1) * keys]);
                        }
                        // Before rounding, which may exceed the range of f16.
                        scaled(dscores, scale);
                        let dscores = T::narrowed(dscores, &mut narrow);
                        let dq = q.part((item * l + start) * d, rows * d);
                        unrounded(Layout::NN, (rows, keys, d), (dscores, k_item), Added::Nothing, dq);
                        dk.add((keys, rows, d), dscores, &q_item[start * d..]);
                    }
                }
                // SAFETY: no other thread writes the keys and values of this item.
                unsafe {
                    k.part(item * s * d, s * d).copy_from_slice(&dk.now);
                    v.part(item * s * e, s * e).copy_from_slice(&dv.now);
                }
            }
        });
        all
    }

    /// Returns the queries, keys and values of an item.
    fn operands(&self, item: usize) -> [&[T]; 3] {
        let [l, s, d, e] = self.lengths;
        let [q, k, v] = self.places[item];
        [&self.q[q * l * d..(q + 1) * l * d], &self.k[k * s * d..(k + 1) * s * d], &self.v[v * s * e..(v + 1) * s * e]]
    }

    /// Computes the softmax weights of a block of queries from `start`. Returns the number of queries, and the number
    /// of leading keys to which these queries attend.
    fn weights(&self, item: usize, start: usize, scores: &mut [T::Wide]) -> (usize, usize) {
        let [l, s, d, _] = self.lengths;
        let [q, k, _] = self.operands(item);
        let rows = QUERIES.min(l - start);
        let keys = if self.causal { s.min(start + rows) } else { s };
        let scores = &mut scores[..rows * keys];
        unrounded(Layout::NT, (rows, d, keys), (&q[start * d..], k), Added::Nothing, scores);
        scaled(scores, T::Wide::of(self.scale));
        let minus_infinity = T::Wide::of(f64::NEG_INFINITY);
        for (row, scores) in scores.chunks_exact_mut(keys).enumerate() {
            match &self.mask {
                Mask::All => {}
                Mask::Keys(mask) => {
                    let mask = mask.row(item, start + row);
                    scores
                        .iter_mut()
                        .zip(mask)
                        .filter(|(_, attended)| !attended)
                        .for_each(|(score, _)| *score = minus_infinity);
                }
                Mask::Added(mask) => {
                    let mask = mask.row(item, start + row);
                    scores.iter_mut().zip(mask).for_each(|(score, added)| *score += added);
                }
            }
        }
        T::Wide::vectorized(Weights {
            scores,
            keys,
            first: if self.causal { start + 1 } else { keys },
            causal: self.causal,
        });
        (rows, keys)
    }
}

fn scaled<R: Real>(x: &mut [R], scale: R) {
    R::vectorized(|| x.iter_mut().for_each(|x| *x = *x * scale));
}

impl<T: Copy> BroadcastMatrix<'_, T> {
    fn row(&self, item: usize, row: usize) -> impl Iterator<Item = T> {
        let row = &self.data[self.starts[item] + row * self.steps[0]..];
        (0..).map(|column| row[column * self.steps[1]])
    }
}

/// A matrix that accumulates products, double-buffered. Rows without a product so far are zeros in both buffers.
struct Sums<R: Item> {
    now: Pooled<R>,
    next: Pooled<R>,
}

impl<R: Real> Sums<R> {
    fn clear(&mut self) {
        self.now.fill(R::of(0.0));
        self.next.fill(R::of(0.0));
    }

    /// Adds `aᵀ · b` to the first rows, at least as many as in the previous call.
    fn add<T: Gemm<Wide = R>>(&mut self, mkn: (usize, usize, usize), a: &[T], b: &[T]) {
        let len = mkn.0 * mkn.2;
        unrounded(Layout::TN, mkn, (a, b), Added::ToEach(&self.now[..len]), &mut self.next[..len]);
        std::mem::swap(&mut self.now, &mut self.next);
    }
}

/// Softmax of rows of scores, in place.
struct Weights<'a, R> {
    scores: &'a mut [R],
    keys: usize,
    /// Number of keys the first row attends to. With `causal`, each further row attends to one more.
    first: usize,
    causal: bool,
}

impl<R: Real> Body for Weights<'_, R> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        for (i, row) in self.scores.chunks_exact_mut(self.keys).enumerate() {
            let attended = self.keys.min(self.first + if self.causal { i } else { 0 });
            let (row, masked) = row.split_at_mut(attended);
            masked.fill(R::zero());
            let largest = largest(row);
            // A query without keys. (`largest` ignores NaN, so a row of NaN looks the same.)
            if largest == R::neg_infinity() && !row.iter().any(|score| score.is_nan()) {
                row.fill(R::zero());
                continue;
            }
            softmax::weights(None, row, largest);
        }
    }
}

/// Backward pass of softmax, in place: turns rows of gradients of the weights into those of the scores.
struct SoftmaxBackward<'a, R> {
    weights: &'a [R],
    grad: &'a mut [R],
    keys: usize,
}

impl<R: Real> Body for SoftmaxBackward<'_, R> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        for (row, grad) in self.grad.chunks_exact_mut(self.keys).enumerate() {
            let weights = &self.weights[row * self.keys..][..self.keys];
            let mean = sum_of([weights, grad], |[weight, grad]| weight * grad);
            replace(grad, [weights], |grad, [weight]| weight * (grad - mean));
        }
    }
}
