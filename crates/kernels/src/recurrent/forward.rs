//! States of a sequence, from the first step to the last.

use std::ops::Range;

use super::layer::{Gating, Given, Layer, Saved, each, few, parts, product, put, sum};
use crate::{
    elementwise::math::{sigmoid, tanh},
    float::Real,
    gemm::{Added, Gemm, Layout, Packed},
    memory::{Pooled, uninit_vec},
    simd::{Body, vectorized},
    threads,
    threads::Shared,
};

/// Runs the layer over its input. Returns the output `[batch, time, hidden]`, followed by the last c of an LSTM, and
/// the values saved for the backward pass.
pub fn forward<T: Gemm<Wide: Gemm + Real>>(layer: &Layer, given: &Given<T>) -> (Pooled<T>, Saved<Pooled<T>>) {
    let Layer { gating, batch, time, inputs, hidden, .. } = *layer;
    let (places, width) = (batch * time, layer.width());
    // The two biases are added together unless something separates them.
    let mut own = Pooled::zeros(hidden);
    let bias = given.biases.map(|[of_input, of_state]| {
        let (mut bias, of_state) = (T::widen_slice(of_input).into_buffer(), T::widen_slice(of_state));
        let together = if gating == Gating::Gru { 2 * hidden } else { width };
        bias.iter_mut().zip(&of_state[..together]).for_each(|(bias, &other)| *bias += other);
        own[..width - together].copy_from_slice(&of_state[together..]);
        bias
    });
    // The weights of a single step are not worth packing.
    let several = time > 1;
    let weights = several.then(|| {
        let packed = |k: usize, weight| Packed::new(Layout::NT, (k, width), weight);
        [packed(inputs, given.weight_ih), packed(hidden, given.weight_hh)]
    });
    let in_place = |a: &[T], k: usize, weight: &[T], added| {
        product(Layout::NT, (batch, k, width), &T::widen_slice(a), &T::widen_slice(weight), added)
    };
    let [mut gates, mut from_state] = if several {
        [Pooled::uninit(places * width), Pooled::default()]
    } else {
        let added = bias.as_deref().map_or(Added::Nothing, Added::ToColumns);
        [in_place(given.x, inputs, given.weight_ih, added), in_place(given.h, hidden, given.weight_hh, Added::Nothing)]
    };
    let mut states = uninit_vec(places * hidden + given.c.len());
    let mut cells = uninit_vec(if gating.is_plain() { 0 } else { places * hidden });
    let steps = Steps {
        layer,
        given,
        weights: weights.as_ref(),
        bias: bias.as_deref(),
        own: &own,
        gates: Shared::new(&mut gates),
        from_state: Shared::new(&mut from_state),
        states: Shared::new(&mut states),
        cells: Shared::new(&mut cells),
    };
    threads::split(batch, 1, layer.work(), |rows| steps.run(rows));
    for (row, c) in states[places * hidden..].chunks_exact_mut(hidden).enumerate() {
        T::narrow_into(&cells[(row * time + layer.at(time - 1)) * hidden..][..hidden], c);
    }
    let gates = if gating.is_plain() { Pooled::default() } else { T::narrow_vec(gates) };
    (states, Saved { gates, cells: T::narrow_vec(cells) })
}

/// All steps of some rows of the batch.
struct Steps<'a, T: Gemm> {
    layer: &'a Layer,
    given: &'a Given<'a, T>,
    /// Weights of the input and of the state, if there is more than one step.
    weights: Option<&'a [Packed<'a, T>; 2]>,
    bias: Option<&'a [T::Wide]>,
    own: &'a [T::Wide],
    /// Contribution of the input, then the gates. For a single step, it is already computed.
    gates: Shared<'a, T::Wide>,
    /// Contribution of the state to a single step.
    from_state: Shared<'a, T::Wide>,
    states: Shared<'a, T>,
    cells: Shared<'a, T::Wide>,
}

impl<T: Gemm<Wide: Gemm + Real>> Steps<'_, T> {
    fn run(&self, rows: Range<usize>) {
        let Layer { gating, time, inputs, hidden, .. } = *self.layer;
        let width = self.layer.width();
        let own_cells = if gating.is_plain() { 0 } else { hidden };
        // SAFETY: the slices have this many numbers for each place of each row, and these rows belong to this thread.
        let (gates, states, cells) = unsafe {
            (
                self.gates.part(rows.start * time * width, rows.len() * time * width),
                self.states.part(rows.start * time * hidden, rows.len() * time * hidden),
                self.cells.part(rows.start * time * own_cells, rows.len() * time * own_cells),
            )
        };
        let mut space = Pooled::uninit(if self.weights.is_some() { rows.len() * width } else { 0 });
        let from_state = match self.weights {
            Some([of_input, _]) => {
                of_input.multiply(&self.given.x[rows.start * time * inputs..], inputs, self.bias, gates);
                &mut space[..]
            }
            // SAFETY: as above.
            None => unsafe { self.from_state.part(rows.start * width, rows.len() * width) },
        };
        let first_h = &self.given.h[rows.start * hidden..];
        let (mut before, mut h) = (Pooled::uninit(hidden), Pooled::uninit(hidden));
        // The state of a GRU is a sum over the steps: rounded, it would not change in steps below half of its
        // last place.
        let mut exact = Pooled::uninit(if gating == Gating::Gru { rows.len() * hidden } else { 0 });
        T::widen_into(&first_h[..exact.len()], &mut exact);
        for step in 0..time {
            let (t, previous) = (self.layer.at(step), step.checked_sub(1).map(|step| self.layer.at(step)));
            if let Some([_, of_state]) = self.weights {
                match previous {
                    None => of_state.multiply(first_h, hidden, None, from_state),
                    Some(t) => of_state.multiply(&states[t * hidden..], time * hidden, None, from_state),
                }
            }
            for (row, from_state) in from_state.chunks_exact(width).enumerate() {
                let place = row * time + t;
                match (gating, previous) {
                    (Gating::Tanh | Gating::Relu, _) => {}
                    (Gating::Gru, _) => before.copy_from_slice(&exact[row * hidden..][..hidden]),
                    (Gating::Lstm, None) => {
                        T::widen_into(&self.given.c[(rows.start + row) * hidden..][..hidden], &mut before);
                    }
                    (Gating::Lstm, Some(t)) => before.copy_from_slice(&cells[(row * time + t) * hidden..][..hidden]),
                }
                vectorized(Gates {
                    gating,
                    from_state,
                    own: self.own,
                    before: &before,
                    gates: &mut gates[place * width..][..width],
                    cell: &mut cells[place * own_cells..][..own_cells],
                    h: &mut h,
                });
                if gating == Gating::Gru {
                    exact[row * hidden..][..hidden].copy_from_slice(&h);
                }
                T::narrow_into(&h, &mut states[place * hidden..][..hidden]);
            }
        }
    }
}

/// One step of one row.
pub(super) struct Gates<'a, R> {
    pub gating: Gating,
    pub from_state: &'a [R],
    /// Bias added to the state's part of gate n only.
    pub own: &'a [R],
    /// Previous state: c of an LSTM, h of a GRU.
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
