//! Recurrent layers over a sequence, forward and backward.
//!
//! The contribution of the input to the gates is one product for all steps. Each step is then one product with the
//! state, whose weight is packed once, and one pass over the gates. The backward pass does the same in reverse order;
//! the gradients of weights and inputs are one product each, over all steps. Gates, the state that steps add to (c of
//! an LSTM, h of a GRU) and the gradients of both states are in f32 (f64 for f64) from the first step to the last.
//! Operands of products have the dtype of the layer, so these are rounded, once each: the state h after each step,
//! which is the step's output and the input of the next step; and, backward, the gradients of the gates. The last c and
//! the values saved for the backward pass are rounded as well.
//!
//! The rows of a batch are independent, so they are split over threads.

mod backward;
mod forward;
mod layer;

pub use backward::{Needs, backward};
pub use forward::forward;
pub use layer::{Gating, Given, Layer, Saved};

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::{backward::GatesBackward, forward::Gates, *};
    use crate::{
        float::{Float, Real},
        gemm::Gemm,
        simd::{Body, vectorized},
        threads,
    };

    const ALL: [Gating; 4] = [Gating::Tanh, Gating::Relu, Gating::Gru, Gating::Lstm];

    /// Returns numbers of all sizes, and special values.
    fn numbers(len: usize, seed: usize) -> Vec<f32> {
        let special = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MIN_POSITIVE / 2.0, 1e30, -88.0];
        let number = |i: usize| match (i * 31 + seed * 17) % 101 {
            n if n < special.len() => special[n],
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
                let back = GatesBackward {
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

    /// Runs forward and backward over a sequence that is worth several threads.
    fn all_bits<T: Gemm<Wide: Gemm + Real> + Float<Wide = f32>>(gating: Gating) -> Vec<Vec<u32>> {
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
        let (y, saved) = forward(&layer, &given);
        let saved = Saved { gates: &saved.gates[..], cells: &saved.cells[..] };
        let needs = Needs { x: true, weight_ih: true, weight_hh: true, biases: true, state: true };
        let grads = backward(&layer, &given, &y, &saved, &of(y.len(), 8), needs);
        let [b, d] = grads.biases;
        let all = [y, grads.x, grads.weight_ih, grads.weight_hh, b, d, grads.h, grads.c];
        all.iter().map(|x| bits(&T::widen_slice(x))).collect()
    }

    #[test]
    #[cfg_attr(miri, ignore = "what is worth two threads takes Miri an hour")]
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
