//! A recurrent step as ordinary ops, each resolved by the lists of the region: the fallback of a fused step where lists
//! decide and do not name it, as in MindSpore's and Paddle's.

use super::RecurrentWeights;
use crate::{
    Op, Tensor,
    error::{Error, Result},
    precision::{Frame, Treatment},
    tensor::context,
};

/// Returns whether a fused step runs as ordinary ops in the innermost frame. If every unlisted op runs low, the step
/// does as well.
pub(super) fn is_split(step: Op) -> bool {
    context::with_current(|frame, _| match frame {
        Some(Frame::Lists(rules)) => !rules.ops.contains_key(&step) && rules.unlisted != Treatment::Low,
        _ => false,
    })
}

/// Runs as [`Tensor::rnn_cell`].
pub(super) fn rnn(x: &Tensor, weights: &RecurrentWeights<'_>, h: &Tensor, relu: bool) -> Result<Tensor> {
    let (from_input, from_state) = gates(x, weights, h)?;
    let sum = from_input.add(&from_state)?;
    if relu { sum.relu() } else { sum.tanh() }
}

/// Runs as [`Tensor::gru_cell`].
pub(super) fn gru(x: &Tensor, weights: &RecurrentWeights<'_>, h: &Tensor) -> Result<Tensor> {
    let (from_input, from_state) = gates(x, weights, h)?;
    let [i_r, i_z, i_n] = parts(&from_input)?;
    let [h_r, h_z, h_n] = parts(&from_state)?;
    let r = i_r.add(&h_r)?.sigmoid()?;
    let z = i_z.add(&h_z)?.sigmoid()?;
    let n = i_n.add(&r.mul(&h_n)?)?.tanh()?;
    // (1 - z) * n + z * h with one product less
    n.add(&z.mul(&h.sub(&n)?)?)
}

/// Runs as [`Tensor::lstm_cell`].
pub(super) fn lstm(x: &Tensor, weights: &RecurrentWeights<'_>, (h, c): (&Tensor, &Tensor)) -> Result<(Tensor, Tensor)> {
    check_state(x, weights, c)?;
    let (from_input, from_state) = gates(x, weights, h)?;
    let [i, f, g, o] = parts(&from_input.add(&from_state)?)?;
    let c = f.sigmoid()?.mul(c)?.add(&i.sigmoid()?.mul(&g.tanh()?)?)?;
    let h = o.sigmoid()?.mul(&c.tanh()?)?;
    Ok((h, c))
}

/// Returns the contributions of the input and the state to the gates, each `[..., gates * hidden]`.
fn gates(x: &Tensor, weights: &RecurrentWeights<'_>, h: &Tensor) -> Result<(Tensor, Tensor)> {
    check_state(x, weights, h)?;
    let from_input = x.linear(weights.ih, weights.biases.map(|(bias, _)| bias))?;
    let from_state = h.linear(weights.hh, weights.biases.map(|(_, bias)| bias))?;
    Ok((from_input, from_state))
}

/// Checks the state: one of another batch would silently broadcast.
fn check_state(x: &Tensor, weights: &RecurrentWeights<'_>, state: &Tensor) -> Result<()> {
    let leading = x.shape().split_last().map_or(&[][..], |(_, leading)| leading);
    let hidden = weights.hh.shape().last().copied().unwrap_or(0);
    if state.shape().split_last() != Some((&hidden, leading)) {
        return Err(Error::shape(format!(
            "an input of shape {:?} goes with a state of shape {:?}, got {:?}",
            x.shape(),
            [leading, &[hidden]].concat(),
            state.shape()
        )));
    }
    Ok(())
}

/// Splits the gates, which are concatenated along the last axis.
fn parts<const GATES: usize>(x: &Tensor) -> Result<[Tensor; GATES]> {
    let parts = x.chunk(GATES, -1)?;
    parts.try_into().map_err(|parts: Vec<_>| Error::shape(format!("{GATES} gates expected, got {}", parts.len())))
}
