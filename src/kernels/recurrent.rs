//! Recurrent layers over a sequence, forward and backward.
//!
//! What the input brings to the gates of all steps is one product; then a step is one product with the state, whose weight
//! is packed once, and one pass over the gates. Backward it is the same the other way round, and the gradients of weights
//! and inputs are one product each, over all steps. Gates, the cell state c and all their gradients are in f32 (f64 for
//! f64) from the first step to the last. Rounded are, once, the state h after each step, which is the step's output and
//! what the next step reads, the last c, and what is kept for the way back.
//!
//! The rows of a batch know nothing of each other, so they are what threads share.

use std::ops::Range;

use super::{
    buffers::{Lent, lend, take, zeros},
    gemm::{Added, Gemm, Layout, Packed, Products, products},
    math::{sigmoid, tanh},
    reduce,
    simd::{Body, vectorized},
    threads::{self, Shared},
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

/// The layer over its input: the output `[batch, time, hidden]`, with the last c of an LSTM behind it, and what is kept.
pub(crate) fn forward<T: Gemm<Wide: Gemm + Real>>(layer: &Layer, given: &Given<T>) -> (Vec<T>, Kept<Vec<T>>) {
    let Layer { gating, batch, time, inputs, hidden, .. } = *layer;
    let (places, width) = (batch * time, layer.width());
    // The two biases are added at once where nothing comes between them.
    let mut own = Lent::from(zeros(hidden));
    let bias = given.biases.map(|[of_input, of_state]| {
        let (mut bias, of_state) = (Lent::from(T::widen_slice(of_input).into_vec()), T::widen_slice(of_state));
        let together = if gating == Gating::Gru { 2 * hidden } else { width };
        bias.iter_mut().zip(&of_state[..together]).for_each(|(bias, &other)| *bias += other);
        own[..width - together].copy_from_slice(&of_state[together..]);
        bias
    });
    let (x, weight) = (T::widen_slice(given.x), T::widen_slice(given.weight_ih));
    let added = bias.as_deref().map_or(Added::Nothing, Added::ToColumns);
    let mut gates = Lent::from(product(Layout::NT, (places, inputs, width), &x, &weight, added));
    // The first step by itself: of one step there is nothing to be packed for.
    let (h, weight) = (T::widen_slice(given.h), T::widen_slice(given.weight_hh));
    let from_first = Lent::from(product(Layout::NT, (batch, hidden, width), &h, &weight, Added::Nothing));
    let weight = (time > 1).then(|| Packed::<T>::new(Layout::NT, (hidden, width), given.weight_hh));
    let mut states = take(places * hidden + given.c.len());
    let mut cells = take(if gating.is_plain() { 0 } else { places * hidden });
    let steps = Steps {
        layer,
        weight: weight.as_ref(),
        own: &own,
        from_first: &from_first,
        h: &h,
        c: &T::widen_slice(given.c),
        gates: Shared::new(&mut gates),
        states: Shared::new(&mut states),
        cells: Shared::new(&mut cells),
    };
    threads::split(batch, 1, layer.work(), |rows| steps.run(rows));
    for (row, c) in states[places * hidden..].chunks_exact_mut(hidden).enumerate() {
        c.copy_from_slice(&cells[(row * time + layer.at(time - 1)) * hidden..][..hidden]);
    }
    let gates = if gating.is_plain() { Vec::new() } else { T::narrow_vec(gates.into_vec()) };
    (T::narrow_vec(states), Kept { gates, cells: T::narrow_vec(cells) })
}

/// All steps of some rows of the batch.
struct Steps<'a, T: Gemm> {
    layer: &'a Layer,
    /// Of the state, where there is more than one step.
    weight: Option<&'a Packed<T>>,
    own: &'a [T::Wide],
    /// What the first state brings.
    from_first: &'a [T::Wide],
    h: &'a [T::Wide],
    c: &'a [T::Wide],
    /// What the input brings; then the gates.
    gates: Shared<'a, T::Wide>,
    states: Shared<'a, T::Wide>,
    cells: Shared<'a, T::Wide>,
}

impl<T: Gemm<Wide: Gemm + Real>> Steps<'_, T> {
    fn run(&self, rows: Range<usize>) {
        let Layer { gating, time, hidden, .. } = *self.layer;
        let width = self.layer.width();
        let own_cells = if gating.is_plain() { 0 } else { hidden };
        // SAFETY: the slices have so many numbers for each place of each row, and these rows are this thread's.
        let (gates, states, cells) = unsafe {
            (
                self.gates.part(rows.start * time * width, rows.len() * time * width),
                self.states.part(rows.start * time * hidden, rows.len() * time * hidden),
                self.cells.part(rows.start * time * own_cells, rows.len() * time * own_cells),
            )
        };
        let first = rows.start * hidden;
        let mut from_state = lend(rows.len() * width);
        let (mut before, mut rounded) = (lend(hidden), lend(hidden));
        for step in 0..time {
            let (t, previous) = (self.layer.at(step), step.checked_sub(1).map(|step| self.layer.at(step)));
            match previous.zip(self.weight) {
                None => from_state.copy_from_slice(&self.from_first[rows.start * width..rows.end * width]),
                Some((t, weight)) => weight.multiply(&states[t * hidden..], time * hidden, &mut from_state),
            }
            for (row, from_state) in from_state.chunks_exact(width).enumerate() {
                let place = row * time + t;
                match (gating, previous) {
                    (Gating::Tanh | Gating::Relu, _) => {}
                    (Gating::Gru, None) => before.copy_from_slice(&self.h[first + row * hidden..][..hidden]),
                    (Gating::Gru, Some(t)) => before.copy_from_slice(&states[(row * time + t) * hidden..][..hidden]),
                    (Gating::Lstm, None) => before.copy_from_slice(&self.c[first + row * hidden..][..hidden]),
                    (Gating::Lstm, Some(t)) => before.copy_from_slice(&cells[(row * time + t) * hidden..][..hidden]),
                }
                let h = &mut states[place * hidden..][..hidden];
                vectorized(Gates {
                    gating,
                    from_state,
                    own: self.own,
                    before: &before,
                    gates: &mut gates[place * width..][..width],
                    cell: &mut cells[place * own_cells..][..own_cells],
                    h,
                });
                T::narrow_into(h, &mut rounded);
                T::widen_into(&rounded, h);
            }
        }
    }
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

/// One step of one row.
struct Gates<'a, R> {
    gating: Gating,
    from_state: &'a [R],
    /// A bias that is added to the state's part of gate n alone.
    own: &'a [R],
    /// The state before: c of an LSTM, h of a GRU.
    before: &'a [R],
    gates: &'a mut [R],
    cell: &'a mut [R],
    h: &'a mut [R],
}

impl<R: Real> Body for Gates<'_, R> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Gates { gating, from_state, own, before, gates, cell, h } = self;
        let hidden = h.len();
        match gating {
            Gating::Tanh => {
                for (at, n) in parts(hidden) {
                    let mut y = sum(gates, from_state, at, n);
                    each(&mut y, n, tanh);
                    put(&y, h, at, n);
                }
            }
            Gating::Relu => {
                for (at, n) in parts(hidden) {
                    let mut y = sum(gates, from_state, at, n);
                    each(&mut y, n, |x| if x < R::zero() { R::zero() } else { x });
                    put(&y, h, at, n);
                }
            }
            Gating::Gru => {
                for (at, n) in parts(hidden) {
                    let [mut r, mut z] = [sum(gates, from_state, at, n), sum(gates, from_state, hidden + at, n)];
                    each(&mut r, n, sigmoid);
                    each(&mut z, n, sigmoid);
                    let (mut new, mut s) = (few(gates, 2 * hidden + at, n), few(from_state, 2 * hidden + at, n));
                    let (own, mut y) = (few(own, at, n), few(before, at, n));
                    for l in 0..n {
                        s[l] += own[l];
                        new[l] += r[l] * s[l];
                    }
                    each(&mut new, n, tanh);
                    for l in 0..n {
                        y[l] = new[l] + z[l] * (y[l] - new[l]);
                    }
                    put(&r, gates, at, n);
                    put(&z, gates, hidden + at, n);
                    put(&new, gates, 2 * hidden + at, n);
                    put(&s, cell, at, n);
                    put(&y, h, at, n);
                }
            }
            Gating::Lstm => {
                for (at, n) in parts(hidden) {
                    let (mut i, mut f) = (sum(gates, from_state, at, n), sum(gates, from_state, hidden + at, n));
                    let mut g = sum(gates, from_state, 2 * hidden + at, n);
                    let mut o = sum(gates, from_state, 3 * hidden + at, n);
                    each(&mut i, n, sigmoid);
                    each(&mut f, n, sigmoid);
                    each(&mut g, n, tanh);
                    each(&mut o, n, sigmoid);
                    let mut c = few(before, at, n);
                    for l in 0..n {
                        c[l] = f[l] * c[l] + i[l] * g[l];
                    }
                    let mut y = c;
                    each(&mut y, n, tanh);
                    for l in 0..n {
                        y[l] = o[l] * y[l];
                    }
                    for (gate, few) in [&i, &f, &g, &o].into_iter().enumerate() {
                        put(few, gates, gate * hidden + at, n);
                    }
                    put(&c, cell, at, n);
                    put(&y, h, at, n);
                }
            }
        }
    }
}

/// Which gradients are asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    pub x: bool,
    pub weight_ih: bool,
    pub weight_hh: bool,
    pub biases: bool,
    pub state: bool,
}

/// The gradients of what a layer reads; empty where none is asked for.
#[derive(Default)]
pub(crate) struct Gradients<T> {
    pub x: Vec<T>,
    pub weight_ih: Vec<T>,
    pub weight_hh: Vec<T>,
    pub biases: [Vec<T>; 2],
    pub h: Vec<T>,
    /// Of an LSTM.
    pub c: Vec<T>,
}

/// The gradients, given those of `y`.
pub(crate) fn backward<T: Gemm<Wide: Gemm + Real>>(
    layer: &Layer,
    given: &Given<T>,
    y: &[T],
    kept: &Kept<&[T]>,
    grad: &[T],
    needs: Needs,
) -> Gradients<T> {
    let Layer { gating, batch, time, inputs, hidden, .. } = *layer;
    let (places, width) = (batch * time, layer.width());
    let weight = (time > 1 || needs.state).then(|| Packed::<T>::new(Layout::NN, (width, hidden), given.weight_hh));
    let mut to_gates = lend(places * width);
    // Of a GRU, gate n gets its part of the state times r.
    let mut to_state_gates = lend(if gating == Gating::Gru { places * width } else { 0 });
    let mut before = lend(places * hidden);
    let mut h = Lent::from(zeros(batch * hidden));
    let mut carried = Lent::from(match gating {
        Gating::Lstm => T::widen_slice(&grad[places * hidden..]).into_vec(),
        _ => zeros(batch * hidden),
    });
    let steps = StepsBack {
        layer,
        weight: weight.as_ref(),
        given,
        y,
        kept,
        grad,
        to_the_start: needs.state,
        to_gates: Shared::new(&mut to_gates),
        to_state_gates: Shared::new(&mut to_state_gates),
        before: Shared::new(&mut before),
        h: Shared::new(&mut h),
        carried: Shared::new(&mut carried),
    };
    threads::split(batch, 1, layer.work(), |rows| steps.run(rows));
    let to_state_gates = if gating == Gating::Gru { &to_state_gates } else { &to_gates };
    let product = |layout, mkn, a: &[T::Wide], b: &[T::Wide]| T::narrow_vec(product(layout, mkn, a, b, Added::Nothing));
    let mut grads = Gradients::default();
    if needs.state {
        grads.h = T::narrow_vec(h.into_vec());
        if gating == Gating::Lstm {
            grads.c = T::narrow_vec(carried.into_vec());
        }
    }
    if needs.x {
        let weight = T::widen_slice(given.weight_ih);
        grads.x = product(Layout::NN, (places, width, inputs), &to_gates, &weight);
    }
    if needs.weight_ih {
        let x = T::widen_slice(given.x);
        grads.weight_ih = product(Layout::TN, (width, places, inputs), &to_gates, &x);
    }
    if needs.weight_hh {
        grads.weight_hh = product(Layout::TN, (width, places, hidden), to_state_gates, &before);
    }
    if needs.biases {
        grads.biases = [&to_gates, to_state_gates].map(|to| T::narrow_vec(reduce::sum_middle(to, 1, places, width)));
    }
    grads
}

/// All steps of some rows of the batch, from the last to the first.
struct StepsBack<'a, T: Gemm> {
    layer: &'a Layer,
    /// Of the state; none when its gradient goes no further than the only step.
    weight: Option<&'a Packed<T>>,
    given: &'a Given<'a, T>,
    y: &'a [T],
    kept: &'a Kept<&'a [T]>,
    grad: &'a [T],
    /// Whether the state before the first step wants a gradient.
    to_the_start: bool,
    to_gates: Shared<'a, T::Wide>,
    to_state_gates: Shared<'a, T::Wide>,
    /// The state h before each step.
    before: Shared<'a, T::Wide>,
    h: Shared<'a, T::Wide>,
    /// What goes from a step to the one before it without a product: the gradient of c, and z times that of h in a GRU.
    carried: Shared<'a, T::Wide>,
}

impl<T: Gemm<Wide: Gemm + Real>> StepsBack<'_, T> {
    fn run(&self, rows: Range<usize>) {
        let Layer { gating, time, hidden, .. } = *self.layer;
        let width = self.layer.width();
        let (lstm, gru) = (gating == Gating::Lstm, gating == Gating::Gru);
        let gru_width = if gru { width } else { 0 };
        // SAFETY: the slices have so many numbers for each place or row, and these rows are this thread's.
        let (to_gates, to_state_gates, before, h, carried) = unsafe {
            (
                self.to_gates.part(rows.start * time * width, rows.len() * time * width),
                self.to_state_gates.part(rows.start * time * gru_width, rows.len() * time * gru_width),
                self.before.part(rows.start * time * hidden, rows.len() * time * hidden),
                self.h.part(rows.start * hidden, rows.len() * hidden),
                self.carried.part(rows.start * hidden, rows.len() * hidden),
            )
        };
        self.states_before(&rows, before);
        let (mut gates, mut cell, mut dy, mut cell_before) = (lend(width), lend(hidden), lend(hidden), lend(hidden));
        for step in (0..time).rev() {
            let t = self.layer.at(step);
            for i in 0..rows.len() {
                let place = (rows.start + i) * time + t;
                let here = i * time + t;
                T::widen_into(&self.grad[place * hidden..][..hidden], &mut dy);
                if gating.is_plain() {
                    T::widen_into(&self.y[place * hidden..][..hidden], &mut gates);
                } else {
                    T::widen_into(&self.kept.gates[place * width..][..width], &mut gates);
                    T::widen_into(&self.kept.cells[place * hidden..][..hidden], &mut cell);
                }
                if lstm {
                    let from = match step.checked_sub(1) {
                        None => &self.given.c[(rows.start + i) * hidden..],
                        Some(step) => &self.kept.cells[((rows.start + i) * time + self.layer.at(step)) * hidden..],
                    };
                    T::widen_into(&from[..hidden], &mut cell_before);
                }
                vectorized(GatesBack {
                    gating,
                    gates: &gates,
                    cell: &cell,
                    before: if lstm { &cell_before } else { &before[here * hidden..][..hidden] },
                    dy: &dy,
                    dh: &h[i * hidden..][..hidden],
                    carried: &mut carried[i * hidden..][..hidden],
                    to_gates: &mut to_gates[here * width..][..width],
                    to_state_gates: &mut to_state_gates[here * gru_width..][..gru_width],
                });
            }
            if let Some(weight) = self.weight
                && (step > 0 || self.to_the_start)
            {
                let from = if gru { &*to_state_gates } else { &*to_gates };
                weight.multiply(&from[t * width..], time * width, h);
            }
        }
        if gru {
            h.iter_mut().zip(carried).for_each(|(h, &mut carried)| *h += carried);
        }
    }

    /// The output of the step before, and the given state before the first.
    fn states_before(&self, rows: &Range<usize>, before: &mut [T::Wide]) {
        let Layer { time, hidden, reverse, .. } = *self.layer;
        let rest = (time - 1) * hidden;
        for (row, before) in rows.clone().zip(before.chunks_exact_mut(time * hidden)) {
            let y = &self.y[row * time * hidden..][..time * hidden];
            let (first, others, y) = match reverse {
                false => {
                    let (first, others) = before.split_at_mut(hidden);
                    (first, others, &y[..rest])
                }
                true => {
                    let (others, first) = before.split_at_mut(rest);
                    (first, others, &y[hidden..])
                }
            };
            T::widen_into(&self.given.h[row * hidden..][..hidden], first);
            T::widen_into(y, others);
        }
    }
}

/// One step of one row, backward.
struct GatesBack<'a, R> {
    gating: Gating,
    /// Of an RNN the output.
    gates: &'a [R],
    cell: &'a [R],
    /// c before the step of an LSTM, h of a GRU.
    before: &'a [R],
    /// The gradient of h from outside, and that from the step after.
    dy: &'a [R],
    dh: &'a [R],
    carried: &'a mut [R],
    to_gates: &'a mut [R],
    to_state_gates: &'a mut [R],
}

impl<R: Real> Body for GatesBack<'_, R> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let GatesBack { gating, gates, cell, before, dy, dh, carried, to_gates, to_state_gates } = self;
        let hidden = dy.len();
        let one = R::one();
        match gating {
            Gating::Tanh => {
                for (at, n) in parts(hidden) {
                    let (mut d, y) = (sum(dy, dh, at, n), few(gates, at, n));
                    for l in 0..n {
                        d[l] = d[l] * (one - y[l] * y[l]);
                    }
                    put(&d, to_gates, at, n);
                }
            }
            Gating::Relu => {
                for (at, n) in parts(hidden) {
                    let (mut d, y) = (sum(dy, dh, at, n), few(gates, at, n));
                    for l in 0..n {
                        d[l] = if y[l] > R::zero() { d[l] } else { R::zero() };
                    }
                    put(&d, to_gates, at, n);
                }
            }
            Gating::Gru => {
                for (at, n) in parts(hidden) {
                    let (mut r, mut z) = (few(gates, at, n), few(gates, hidden + at, n));
                    let mut new = few(gates, 2 * hidden + at, n);
                    let (mut s, h, mut d) = (few(cell, at, n), few(before, at, n), sum(dy, dh, at, n));
                    let mut on = few(carried, at, n);
                    for l in 0..n {
                        d[l] += on[l];
                        on[l] = d[l] * z[l];
                        let to_new = d[l] * (one - z[l]) * (one - new[l] * new[l]);
                        z[l] = d[l] * (h[l] - new[l]) * (z[l] * (one - z[l]));
                        new[l] = to_new;
                        let to_r = to_new * s[l] * (r[l] * (one - r[l]));
                        s[l] = to_new * r[l];
                        r[l] = to_r;
                    }
                    for (gate, few) in [&r, &z, &new].into_iter().enumerate() {
                        put(few, to_gates, gate * hidden + at, n);
                    }
                    for (gate, few) in [&r, &z, &s].into_iter().enumerate() {
                        put(few, to_state_gates, gate * hidden + at, n);
                    }
                    put(&on, carried, at, n);
                }
            }
            Gating::Lstm => {
                for (at, n) in parts(hidden) {
                    let (mut i, mut f) = (few(gates, at, n), few(gates, hidden + at, n));
                    let (mut g, mut o) = (few(gates, 2 * hidden + at, n), few(gates, 3 * hidden + at, n));
                    let mut bent = few(cell, at, n);
                    each(&mut bent, n, tanh);
                    let (c, d, mut on) = (few(before, at, n), sum(dy, dh, at, n), few(carried, at, n));
                    for l in 0..n {
                        let dc = on[l] + d[l] * o[l] * (one - bent[l] * bent[l]);
                        on[l] = dc * f[l];
                        o[l] = d[l] * bent[l] * (o[l] * (one - o[l]));
                        f[l] = dc * c[l] * (f[l] * (one - f[l]));
                        let to_i = dc * g[l] * (i[l] * (one - i[l]));
                        g[l] = dc * i[l] * (one - g[l] * g[l]);
                        i[l] = to_i;
                    }
                    for (gate, few) in [&i, &f, &g, &o].into_iter().enumerate() {
                        put(few, to_gates, gate * hidden + at, n);
                    }
                    put(&on, carried, at, n);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;

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
