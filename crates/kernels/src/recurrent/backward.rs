//! Gradients of a sequence, from the last step to the first.

use std::ops::Range;

use super::layer::{Gating, Given, Layer, Saved, each, few, parts, product, put, sum};
use crate::{
    elementwise::math::tanh,
    float::Real,
    gemm::{Added, Gemm, Layout, Packed},
    memory::{Item, Pooled, zeros},
    reduce,
    simd::{Body, vectorized},
    threads,
    threads::Shared,
};

/// Gradients to compute.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// Gradient of the input.
    pub x: bool,
    /// Gradient of the weight of the input.
    pub weight_ih: bool,
    /// Gradient of the weight of the state.
    pub weight_hh: bool,
    /// Gradients of the biases.
    pub biases: bool,
    /// Gradients of the first state.
    pub state: bool,
}

/// Gradients of a layer's inputs; empty where not requested.
#[derive(Default)]
pub struct Gradients<T: Item> {
    pub x: Pooled<T>,
    pub weight_ih: Pooled<T>,
    pub weight_hh: Pooled<T>,
    pub biases: [Pooled<T>; 2],
    pub h: Pooled<T>,
    /// Gradient of c, for an LSTM.
    pub c: Pooled<T>,
}

/// Computes the gradients from those of `y`.
pub fn backward<T: Gemm<Wide: Gemm + Real>>(
    layer: &Layer,
    given: &Given<T>,
    y: &[T],
    saved: &Saved<&[T]>,
    grad: &[T],
    needs: Needs,
) -> Gradients<T> {
    let Layer { gating, batch, time, inputs, hidden, .. } = *layer;
    let (places, width) = (batch * time, layer.width());
    let weight = (time > 1 || needs.state).then(|| Packed::new(Layout::NN, (width, hidden), given.weight_hh));
    let mut to_gates = Pooled::<T>::uninit(places * width);
    // In a GRU, gate n receives its part of the state times r.
    let mut to_state_gates = Pooled::uninit(if gating == Gating::Gru { places * width } else { 0 });
    let mut before = Pooled::uninit(places * hidden);
    let mut h = Pooled::zeros(batch * hidden);
    let mut carried = match gating {
        Gating::Lstm => T::widen_slice(&grad[places * hidden..]).into_buffer(),
        _ => zeros(batch * hidden),
    };
    let steps = StepsBackward {
        layer,
        weight: weight.as_ref(),
        given,
        y,
        saved,
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
    let product = |layout, mkn, a: &[T], b: &[T]| product(layout, mkn, a, b, Added::Nothing);
    let mut grads = Gradients::default();
    if needs.state {
        grads.h = T::narrow_vec(h);
        if gating == Gating::Lstm {
            grads.c = T::narrow_vec(carried);
        }
    }
    if needs.x {
        grads.x = product(Layout::NN, (places, width, inputs), &to_gates, given.weight_ih);
    }
    if needs.weight_ih {
        grads.weight_ih = product(Layout::TN, (width, places, inputs), &to_gates, given.x);
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
struct StepsBackward<'a, T: Gemm> {
    layer: &'a Layer,
    /// Weight of the state; `None` if its gradient goes no further than the only step.
    weight: Option<&'a Packed<'a, T>>,
    given: &'a Given<'a, T>,
    y: &'a [T],
    saved: &'a Saved<&'a [T]>,
    grad: &'a [T],
    /// `true` when the state before the first step needs a gradient.
    to_the_start: bool,
    to_gates: Shared<'a, T>,
    to_state_gates: Shared<'a, T>,
    /// State h before each step.
    before: Shared<'a, T>,
    h: Shared<'a, T::Wide>,
    /// Values passed to the previous step without a product: the gradient of c, and z times that of h in a GRU.
    carried: Shared<'a, T::Wide>,
}

impl<T: Gemm<Wide: Gemm + Real>> StepsBackward<'_, T> {
    fn run(&self, rows: Range<usize>) {
        let Layer { gating, time, hidden, .. } = *self.layer;
        let width = self.layer.width();
        let (lstm, gru) = (gating == Gating::Lstm, gating == Gating::Gru);
        let gru_width = if gru { width } else { 0 };
        // SAFETY: the slices have this many numbers for each place or row, and these rows belong to this thread.
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
        let [mut gates, mut to_gate, mut to_state_gate] = [width, width, gru_width].map(Pooled::uninit);
        let [mut cell, mut dy, mut before_step] = [hidden; 3].map(Pooled::uninit);
        for step in (0..time).rev() {
            let t = self.layer.at(step);
            for i in 0..rows.len() {
                let place = (rows.start + i) * time + t;
                let here = i * time + t;
                T::widen_into(&self.grad[place * hidden..][..hidden], &mut dy);
                if gating.is_plain() {
                    T::widen_into(&self.y[place * hidden..][..hidden], &mut gates);
                } else {
                    T::widen_into(&self.saved.gates[place * width..][..width], &mut gates);
                    T::widen_into(&self.saved.cells[place * hidden..][..hidden], &mut cell);
                }
                if lstm {
                    let from = match step.checked_sub(1) {
                        None => &self.given.c[(rows.start + i) * hidden..],
                        Some(step) => &self.saved.cells[((rows.start + i) * time + self.layer.at(step)) * hidden..],
                    };
                    T::widen_into(&from[..hidden], &mut before_step);
                } else if gru {
                    T::widen_into(&before[here * hidden..][..hidden], &mut before_step);
                }
                vectorized(GatesBackward {
                    gating,
                    gates: &gates,
                    cell: &cell,
                    before: &before_step,
                    dy: &dy,
                    dh: &h[i * hidden..][..hidden],
                    carried: &mut carried[i * hidden..][..hidden],
                    to_gates: &mut to_gate,
                    to_state_gates: &mut to_state_gate,
                });
                T::narrow_into(&to_gate, &mut to_gates[here * width..][..width]);
                T::narrow_into(&to_state_gate, &mut to_state_gates[here * gru_width..][..gru_width]);
            }
            if let Some(weight) = self.weight
                && (step > 0 || self.to_the_start)
            {
                let from = if gru { &*to_state_gates } else { &*to_gates };
                weight.multiply(&from[t * width..], time * width, None, h);
            }
        }
        if gru {
            h.iter_mut().zip(carried).for_each(|(h, &mut carried)| *h += carried);
        }
    }

    /// Fills in the output of the previous step, and the given state before the first.
    fn states_before(&self, rows: &Range<usize>, before: &mut [T]) {
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
            first.copy_from_slice(&self.given.h[row * hidden..][..hidden]);
            others.copy_from_slice(y);
        }
    }
}

/// One step of one row, backward.
pub(super) struct GatesBackward<'a, R> {
    pub gating: Gating,
    /// Gates; for an RNN, the output.
    pub gates: &'a [R],
    pub cell: &'a [R],
    /// State before the step: c of an LSTM, h of a GRU.
    pub before: &'a [R],
    /// Gradient of h from outside, and that from the following step.
    pub dy: &'a [R],
    pub dh: &'a [R],
    pub carried: &'a mut [R],
    pub to_gates: &'a mut [R],
    pub to_state_gates: &'a mut [R],
}

impl<R: Real> Body for GatesBackward<'_, R> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let GatesBackward { gating, gates, cell, before, dy, dh, carried, to_gates, to_state_gates } = self;
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
