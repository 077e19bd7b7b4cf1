//! Description of a recurrent layer: its gates, sizes, inputs and saved values; and the loops shared by both passes.

use serde::{Deserialize, Serialize};

use crate::{
    float::Real,
    gemm::{Added, Gemm, Layout, Products, products},
    memory::{Pooled, uninit_vec},
};

/// Computation of the next state from the gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gating {
    /// `h' = tanh(i + s)`, where i comes from the input and s from the state, each with its bias.
    Tanh,
    /// `h' = max(i + s, 0)`.
    Relu,
    /// `r, z = sigmoid(i + s)`, `n = tanh(i + r * s)`, `h' = n + z * (h - n)`.
    Gru,
    /// `i, f, o = sigmoid(i + s)`, `g = tanh(i + s)`, `c' = f * c + i * g`, `h' = o * tanh(c')`; gates in the order i,
    /// f, g, o.
    Lstm,
}

impl Gating {
    /// Returns the number of gates.
    pub fn gates(self) -> usize {
        match self {
            Gating::Tanh | Gating::Relu => 1,
            Gating::Gru => 3,
            Gating::Lstm => 4,
        }
    }

    /// Returns `true` for a layer without gates.
    pub fn is_plain(self) -> bool {
        self.gates() == 1
    }
}

/// Sizes of a layer and its input `[batch, time, inputs]`; only `batch` and `inputs` may be 0.
#[derive(Clone, Copy, Debug)]
pub struct Layer {
    /// Computation of the next state.
    pub gating: Gating,
    /// Number of sequences.
    pub batch: usize,
    /// Length of each sequence.
    pub time: usize,
    /// Numbers of each input.
    pub inputs: usize,
    /// Numbers of the state.
    pub hidden: usize,
    /// `true` to run from the last time to the first.
    pub reverse: bool,
}

impl Layer {
    /// Returns the number of gate values of one row at one time.
    pub fn width(&self) -> usize {
        self.gating.gates() * self.hidden
    }

    /// Returns the multiply-adds with the state.
    pub fn work(&self) -> usize {
        self.batch * self.time * self.hidden * self.width()
    }

    /// Returns the time of a step.
    pub fn at(&self, step: usize) -> usize {
        if self.reverse { self.time - 1 - step } else { step }
    }
}

/// Inputs, weights and first state of a layer.
pub struct Given<'a, T> {
    /// `[batch, time, inputs]`.
    pub x: &'a [T],
    /// `[gates * hidden, inputs]`.
    pub weight_ih: &'a [T],
    /// `[gates * hidden, hidden]`.
    pub weight_hh: &'a [T],
    /// Biases of the input and of the state, each `[gates * hidden]`.
    pub biases: Option<[&'a [T]; 2]>,
    /// `[batch, hidden]`.
    pub h: &'a [T],
    /// Like `h`; empty except for an LSTM.
    pub c: &'a [T],
}

/// Values saved for the backward pass, in addition to the output.
pub struct Saved<S> {
    /// Gates `[batch, time, gates * hidden]`; empty for an RNN, whose output is the gate.
    pub gates: S,
    /// `[batch, time, hidden]`: c of an LSTM; the part of gate n from the state of a GRU.
    pub cells: S,
}

/// Computes one product over the whole sequence.
pub(super) fn product<R: Gemm>(
    layout: Layout,
    mkn: (usize, usize, usize),
    a: &[R],
    b: &[R],
    added: Added<R>,
) -> Pooled<R> {
    let mut out = uninit_vec(mkn.0 * mkn.2);
    products(&Products { layout, mkn, a, b, terms: &[vec![(0, 0)]], added }, &mut out);
    out
}

/// Number of elements computed together. They are copied to local arrays, so that the compiler sees that no memory
/// overlaps.
const SIDE_BY_SIDE: usize = 64;

pub(super) type Few<R> = [R; SIDE_BY_SIDE];

/// Iterates over the start and length of each part of `0..len`.
#[inline(always)]
pub(super) fn parts(len: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..len).step_by(SIDE_BY_SIDE).map(move |at| (at, SIDE_BY_SIDE.min(len - at)))
}

#[inline(always)]
pub(super) fn few<R: Real>(from: &[R], at: usize, n: usize) -> Few<R> {
    let mut few = [R::zero(); SIDE_BY_SIDE];
    few[..n].copy_from_slice(&from[at..at + n]);
    few
}

/// Returns the sum of two slices from `at`.
#[inline(always)]
pub(super) fn sum<R: Real>(a: &[R], b: &[R], at: usize, n: usize) -> Few<R> {
    let mut sum = few(a, at, n);
    for (sum, &b) in sum[..n].iter_mut().zip(&b[at..at + n]) {
        *sum += b;
    }
    sum
}

#[inline(always)]
pub(super) fn put<R: Real>(few: &Few<R>, to: &mut [R], at: usize, n: usize) {
    to[at..at + n].copy_from_slice(&few[..n]);
}

/// Applies `f` to each number.
#[inline(always)]
pub(super) fn each<R: Real>(x: &mut Few<R>, n: usize, f: impl Fn(R) -> R) {
    for x in &mut x[..n] {
        *x = f(*x);
    }
}
