//! The states of a sequence, from the first step to the last.

use std::ops::Range;

use super::layer::{Gating, Given, Layer, Saved, each, few, parts, product, put, sum};
use crate::kernels::{
    elementwise::math::{sigmoid, tanh},
    float::Real,
    gemm::{Added, Gemm, Layout, Packed},
    memory::{Pooled, uninit_vec},
    simd::{Body, vectorized},
    threads::{self, Shared},
};

/// The layer over its input: the output `[batch, time, hidden]`, followed by the last c of an LSTM; and what the backward pass
/// needs.
pub(crate) fn forward<T: Gemm<Wide: Gemm + Real>>(layer: &Layer, given: &Given<T>) -> (Vec<T>, Saved<Vec<T>>) {
    let Layer { gating, batch, time, inputs, hidden, .. } = *layer;
    let (places, width) = (batch * time, layer.width());
    // The two biases are added at once where nothing comes between them.
    let mut own = Pooled::zeros(hidden);
    let bias = given.biases.map(|[of_input, of_state]| {
        let (mut bias, of_state) = (Pooled::from(T::widen_slice(of_input).into_vec()), T::widen_slice(of_state));
        let together = if gating == Gating::Gru { 2 * hidden } else { width };
        bias.iter_mut().zip(&of_state[..together]).for_each(|(bias, &other)| *bias += other);
        own[..width - together].copy_from_slice(&of_state[together..]);
        bias
    });
    let (x, weight) = (T::widen_slice(given.x), T::widen_slice(given.weight_ih));
    let added = bias.as_deref().map_or(Added::Nothing, Added::ToColumns);
    let mut gates = Pooled::from(product(Layout::NT, (places, inputs, width), &x, &weight, added));
    // The first step by itself: of one step there is nothing to be packed for.
    let (h, weight) = (T::widen_slice(given.h), T::widen_slice(given.weight_hh));
    let from_first = Pooled::from(product(Layout::NT, (batch, hidden, width), &h, &weight, Added::Nothing));
    let weight = (time > 1).then(|| Packed::<T>::new(Layout::NT, (hidden, width), given.weight_hh));
    let mut states = uninit_vec(places * hidden + given.c.len());
    let mut cells = uninit_vec(if gating.is_plain() { 0 } else { places * hidden });
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
    (T::narrow_vec(states), Saved { gates, cells: T::narrow_vec(cells) })
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
        let mut from_state = Pooled::uninit(rows.len() * width);
        let (mut before, mut rounded) = (Pooled::uninit(hidden), Pooled::uninit(hidden));
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

/// One step of one row.
pub(super) struct Gates<'a, R> {
    pub gating: Gating,
    pub from_state: &'a [R],
    /// A bias that is added to the state's part of gate n alone.
    pub own: &'a [R],
    /// The state before: c of an LSTM, h of a GRU.
    pub before: &'a [R],
    pub gates: &'a mut [R],
    pub cell: &'a mut [R],
    pub h: &'a mut [R],
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
