//! Recurrent ops composed of ordinary ops, step by step.

use precast_kernels::recurrent::Gating;

use super::{RecurrentWeights, step};
use crate::{Op, Tensor, catalogue::Attributes, error::Result};

/// Computes the op that [`recurrent_of`](super::recurrent_of) runs.
pub(in crate::ops) fn of_steps(op: Op, attributes: &Attributes, inputs: &[Tensor]) -> Result<Tensor> {
    let (gating, reverse): (Gating, bool) = (attributes.get("gating")?, attributes.get("reverse")?);
    let states = if gating == Gating::Lstm { 2 } else { 1 };
    let (x, biases) = (&inputs[0], &inputs[3 + states..]);
    let weights = RecurrentWeights { ih: &inputs[1], hh: &inputs[2], biases: biases.first().zip(biases.get(1)) };
    let next = |x: &Tensor, (h, c): (&Tensor, &Tensor)| -> Result<(Tensor, Tensor)> {
        let h = match gating {
            Gating::Lstm => return step::lstm(x, &weights, (h, c)),
            Gating::Gru => step::gru(x, &weights, h)?,
            Gating::Tanh | Gating::Relu => step::rnn(x, &weights, h, gating == Gating::Relu)?,
        };
        Ok((h.clone(), h))
    };
    // Without a cell state, the state takes its place.
    let (mut h, mut c) = (inputs[3].clone(), inputs[2 + states].clone());
    if op != Op::FusedRnn {
        (h, c) = next(x, (&h, &c))?;
        return if gating == Gating::Lstm { Tensor::stack(&[&h, &c], 0) } else { Ok(h) };
    }
    let time = x.shape()[1];
    let mut outputs = Vec::with_capacity(time);
    for i in 0..time {
        let at = if reverse { time - 1 - i } else { i };
        (h, c) = next(&x.at(1, at)?, (&h, &c))?;
        outputs.push(h.clone());
    }
    if reverse {
        outputs.reverse();
    }
    let y = Tensor::stack(&outputs.iter().collect::<Vec<_>>(), 1)?;
    if gating != Gating::Lstm {
        return Ok(y);
    }
    let flat = |x: &Tensor| x.reshape(&[x.len()]);
    Tensor::concat(&[&flat(&y)?, &flat(&c)?], 0)
}
