//! Recurrent layers over a sequence, forward and backward.
//!
//! What the input brings to the gates of all steps is one product; then a step is one product with the state, whose weight
//! is packed once, and one pass over the gates. Backward it is the same the other way round, and the gradients of weights
//! and inputs are one product each, over all steps. Gates, the cell state c and all their gradients are in f32 (f64 for
//! f64) from the first step to the last. Rounded are, once, the state h after each step, which is the step's output and
//! what the next step reads, the last c, and what is kept for the way back.
//!
//! The rows of a batch know nothing of each other, so they are what threads share.

mod backward;
mod forward;

pub(crate) use backward::{Needs, backward};
pub(crate) use forward::forward;

use super::{
    buffers::take,
    gemm::{Added, Gemm, Layout, Products, products},
};
use crate::dtype::Real;

/// How the next state follows from the gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gating {
    /// `h' = tanh(i + s)`, with i from the input and s from the state, each with its bias.
    Tanh,
    /// `h' = max(i + s, 0)`.
    Relu,
    /// `r, z = sigmoid(i + s)`, `n = tanh(i + r * s)`, `h' = n + z * (h - n)`.
    Gru,
    /// `i, f, o = sigmoid(i + s)`, `g = tanh(i + s)`, `c' = f * c + i * g`, `h' = o * tanh(c')`; gates in the order i, f, g, o.
    Lstm,
}

impl Gating {
    pub fn gates(self) -> usize {
        match self {
            Gating::Tanh | Gating::Relu => 1,
            Gating::Gru => 3,
            Gating::Lstm => 4,
        }
    }

    fn is_plain(self) -> bool {
        self.gates() == 1
    }
}

/// The sizes of a layer and its input `[batch, time, inputs]`; none but `batch` and `inputs` is 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layer {
    pub gating: Gating,
    pub batch: usize,
    pub time: usize,
    pub inputs: usize,
    pub hidden: usize,
    /// From the last time to the first.
    pub reverse: bool,
}

impl Layer {
    /// All gates of one row at one time.
    fn width(&self) -> usize {
        self.gating.gates() * self.hidden
    }

    /// Multiplications and additions with the state.
    fn work(&self) -> usize {
        self.batch * self.time * self.hidden * self.width()
    }

    /// The time of a step.
    fn at(&self, step: usize) -> usize {
        if self.reverse { self.time - 1 - step } else { step }
    }
}

/// What a layer reads.
pub(crate) struct Given<'a, T> {
    pub x: &'a [T],
    /// `[gates * hidden, inputs]`.
    pub weight_ih: &'a [T],
    /// `[gates * hidden, hidden]`.
    pub weight_hh: &'a [T],
    /// Of the input and of the state, each `[gates * hidden]`.
    pub biases: Option<[&'a [T]; 2]>,
    /// `[batch, hidden]`.
    pub h: &'a [T],
    /// As `h`; empty but for an LSTM.
    pub c: &'a [T],
}

/// What is kept beside the output.
pub(crate) struct Kept<S> {
    /// The gates `[batch, time, gates * hidden]`; of an RNN nothing, since the output is the gate.
    pub gates: S,
    /// `[batch, time, hidden]`: c of an LSTM, and what the state brings to the gate n of a GRU.
    pub cells: S,
}

/// One product of the whole sequence.
fn product<R: Gemm>(layout: Layout, mkn: (usize, usize, usize), a: &[R], b: &[R], added: Added<R>) -> Vec<R> {
    let mut out = take(mkn.0 * mkn.2);
    products(&Products { layout, mkn, a, b, terms: &[vec![(0, 0)]], added }, &mut out);
    out
}

/// Numbers that are computed together: memory of their own, so that the compiler sees that nothing overlaps.
const SIDE_BY_SIDE: usize = 64;

type Few<R> = [R; SIDE_BY_SIDE];

/// The start and the length of each part of `0..len`.
#[inline(always)]
fn parts(len: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..len).step_by(SIDE_BY_SIDE).map(move |at| (at, SIDE_BY_SIDE.min(len - at)))
}

#[inline(always)]
fn few<R: Real>(from: &[R], at: usize, n: usize) -> Few<R> {
    let mut few = [R::zero(); SIDE_BY_SIDE];
    few[..n].copy_from_slice(&from[at..at + n]);
    few
}

/// The sum of two slices from `at` on.
#[inline(always)]
fn sum<R: Real>(a: &[R], b: &[R], at: usize, n: usize) -> Few<R> {
    let mut sum = few(a, at, n);
    for (sum, &b) in sum[..n].iter_mut().zip(&b[at..at + n]) {
        *sum += b;
    }
    sum
}

#[inline(always)]
fn put<R: Real>(few: &Few<R>, to: &mut [R], at: usize, n: usize) {
    to[at..at + n].copy_from_slice(&few[..n]);
}

/// Applies `f` to each number.
#[inline(always)]
fn each<R: Real>(x: &mut Few<R>, n: usize, f: impl Fn(R) -> R) {
    for x in &mut x[..n] {
        *x = f(*x);
    }
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::{backward::GatesBack, forward::Gates, *};
    use crate::kernels::{
        simd::{Body, vectorized},
        threads,
    };

    const ALL: [Gating; 4] = [Gating::Tanh, Gating::Relu, Gating::Gru, Gating::Lstm];

    /// Numbers of all sizes, and some that are none.
    fn numbers(len: usize, seed: usize) -> Vec<f32> {
        let odd = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MIN_POSITIVE / 2.0, 1e30, -88.0];
        let number = |i: usize| match (i * 31 + seed * 17) % 101 {
            n if n < odd.len() => odd[n],
            n => (n as f32 - 50.0) / (1 << (i % 7)) as f32,
        };
        (0..len).map(number).collect()
    }

    fn bits(x: &[f32]) -> Vec<u32> {
        x.iter().map(|x| if x.is_nan() { u32::MAX } else { x.to_bits() }).collect()
    }

    #[test]
    fn gates_have_the_same_bits_without_vectors() {
        for (gating, hidden) in ALL.into_iter().flat_map(|gating| [1, 15, 64, 200].map(|hidden| (gating, hidden))) {
            let width = gating.gates() * hidden;
            let run = |with_vectors: bool| {
                let (mut gates, mut cell, mut h) = (numbers(width, 1), vec![0.0; hidden], vec![0.0; hidden]);
                let (from_state, own, before) = (numbers(width, 2), numbers(hidden, 3), numbers(hidden, 4));
                let body = Gates {
                    gating,
                    from_state: &from_state,
                    own: &own,
                    before: &before,
                    gates: &mut gates,
                    cell: &mut cell,
                    h: &mut h,
                };
                if with_vectors {
                    vectorized(body)
                } else {
                    body.run()
                }
                let (mut carried, mut to_gates) = (numbers(hidden, 5), vec![0.0; width]);
                let mut to_state_gates = vec![0.0; width];
                let (dy, dh) = (numbers(hidden, 6), numbers(hidden, 7));
                let back = GatesBack {
                    gating,
                    gates: if gating.is_plain() { &h } else { &gates },
                    cell: &cell,
                    before: &before,
                    dy: &dy,
                    dh: &dh,
                    carried: &mut carried,
                    to_gates: &mut to_gates,
                    to_state_gates: &mut to_state_gates,
                };
                if with_vectors {
                    vectorized(back)
                } else {
                    back.run()
                }
                [gates, cell, h, carried, to_gates, to_state_gates].map(|x| bits(&x))
            };
            assert_eq!(run(true), run(false), "{gating:?} {hidden}");
        }
    }

    /// Forward and backward over a sequence that is worth several threads.
    fn all_bits<T: Gemm<Wide: Gemm + Real> + crate::dtype::Float<Wide = f32>>(gating: Gating) -> Vec<Vec<u32>> {
        let layer = Layer { gating, batch: 7, time: 5, inputs: 9, hidden: 160, reverse: true };
        let width = layer.width();
        let of = |len: usize, seed: usize| -> Vec<T> {
            (0..len).map(|i| T::narrow(((i * (seed + 12) % 257) as f32 - 128.0) / 1024.0)).collect()
        };
        let states = layer.batch * layer.hidden;
        let (x, h) = (of(layer.batch * layer.time * layer.inputs, 1), of(states, 2));
        let c = if gating == Gating::Lstm { of(states, 3) } else { vec![] };
        let (weight_ih, weight_hh) = (of(width * layer.inputs, 4), of(width * layer.hidden, 5));
        let (bias, other) = (of(width, 6), of(width, 7));
        let biases = Some([&bias[..], &other[..]]);
        let given = Given { x: &x, weight_ih: &weight_ih, weight_hh: &weight_hh, biases, h: &h, c: &c };
        let (y, kept) = forward(&layer, &given);
        let kept = Kept { gates: &kept.gates[..], cells: &kept.cells[..] };
        let needs = Needs { x: true, weight_ih: true, weight_hh: true, biases: true, state: true };
        let grads = backward(&layer, &given, &y, &kept, &of(y.len(), 8), needs);
        let [b, d] = grads.biases;
        let all = [y, grads.x, grads.weight_ih, grads.weight_hh, b, d, grads.h, grads.c];
        all.iter().map(|x| bits(&T::widen_slice(x))).collect()
    }

    #[test]
    fn bits_do_not_depend_on_threads() {
        for gating in [Gating::Gru, Gating::Lstm] {
            let run = |count| {
                threads::set_threads(count);
                (all_bits::<f32>(gating), all_bits::<bf16>(gating))
            };
            let alone = run(1);
            assert!([2, 3].map(run).into_iter().all(|several| several == alone), "{gating:?}");
        }
        threads::set_threads(0);
    }
}
