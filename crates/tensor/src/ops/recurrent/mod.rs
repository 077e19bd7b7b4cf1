//! Recurrent networks: a single step, and a whole sequence in one op.

pub(in crate::ops) mod formula;
mod step;

use precast_kernels::{
    float::Real,
    gemm::Gemm,
    memory::{Elements, Pooled},
    recurrent,
    recurrent::{Gating, Given, Layer, Needs, Saved},
};

use crate::{
    Op, Tensor,
    catalogue::Attributes,
    error::{Error, Result},
    ops::{
        Call, by_float, call, composed::composed, dispatch, elements, one_float_dtype, spatial::windows::checked_shape,
    },
    tensor::{Array, Backward, Forward, Stored, context},
};

/// Weights of a recurrent layer, with the gates concatenated as in torch and MindSpore.
#[derive(Clone, Copy, Debug)]
pub struct RecurrentWeights<'a> {
    /// Input weights `[gates * hidden, inputs]`.
    pub ih: &'a Tensor,
    /// State weights `[gates * hidden, hidden]`.
    pub hh: &'a Tensor,
    /// Biases added to the contributions of input and state, each `[gates * hidden]`.
    pub biases: Option<(&'a Tensor, &'a Tensor)>,
}

/// Layout of an input.
#[derive(Clone, Copy)]
enum Reading {
    /// `[..., inputs]`: a single step.
    Step,
    /// `[batch, time, inputs]`: a whole sequence.
    Sequence { reverse: bool },
}

/// Positions among the inputs of the op.
const X: usize = 0;
const WEIGHT_IH: usize = 1;
const WEIGHT_HH: usize = 2;
const H: usize = 3;
const C: usize = 4;

/// Returns the sizes implied by the inputs.
fn layer(gating: Gating, reading: Reading, inputs: &[Tensor]) -> Result<Layer> {
    let (x, weight_ih, weight_hh) = (inputs[X].shape(), inputs[WEIGHT_IH].shape(), inputs[WEIGHT_HH].shape());
    let (Some((&features, leading)), &[rows, hidden]) = (x.split_last(), weight_hh) else {
        return Err(Error::shape(format!(
            "needs [..., features] and a weight of the state, got {x:?} and {weight_hh:?}"
        )));
    };
    let (rows_wanted, reverse) =
        (hidden.saturating_mul(gating.gates()), matches!(reading, Reading::Sequence { reverse: true }));
    if rows != rows_wanted || hidden == 0 {
        let gates = gating.gates();
        return Err(Error::shape(format!(
            "the weight of the state is {weight_hh:?}; [{gates} * hidden, hidden] is needed"
        )));
    }
    if weight_ih != [rows, features] {
        return Err(Error::shape(format!("{x:?} needs a weight [{rows}, {features}], got {weight_ih:?}")));
    }
    let (batch, time) = match (reading, leading) {
        (Reading::Step, leading) => (leading, 1),
        (Reading::Sequence { .. }, &[_, time]) if time > 0 => (&leading[..1], time),
        _ => return Err(Error::shape(format!("needs [batch, time, features] with at least one time, got {x:?}"))),
    };
    let states = if gating == Gating::Lstm { &inputs[H..=C] } else { &inputs[H..=H] };
    let wanted = [batch, &[hidden]].concat();
    if let Some(state) = states.iter().find(|state| state.shape() != wanted) {
        let state = state.shape();
        return Err(Error::shape(format!(
            "an input of shape {x:?} goes with a state of shape {wanted:?}, got {state:?}"
        )));
    }
    if let Some(bias) = inputs[H + states.len()..].iter().find(|bias| bias.shape() != [rows]) {
        return Err(Error::shape(format!("the weights need biases of shape [{rows}], got {:?}", bias.shape())));
    }
    checked_shape([leading, &[rows]].concat())?;
    Ok(Layer { gating, batch: batch.iter().product(), time, inputs: features, hidden, reverse })
}

/// Borrows the tensors read by a layer from the first inputs of the op and its biases, if any.
macro_rules! given {
    ($t:ident, $layer:expr, $inputs:expr, $biases:expr => $given:ident) => {
        let [x, weight_ih, weight_hh, h] = [X, WEIGHT_IH, WEIGHT_HH, H].map(|i| elements::<$t>(&$inputs[i]));
        let c = if $layer.gating == Gating::Lstm { elements::<$t>(&$inputs[C]) } else { Default::default() };
        let biases: Option<[_; 2]> = $biases;
        let biases = biases.as_ref().map(|[a, b]: &[Elements<'_, $t>; 2]| [&a[..], &b[..]]);
        let $given = Given { x: &x, weight_ih: &weight_ih, weight_hh: &weight_hh, biases, h: &h, c: &c };
    };
}

fn forward<T: Stored + Gemm<Wide: Gemm + Real>>(layer: &Layer, inputs: &[Tensor]) -> Result<(Array, Vec<Tensor>)> {
    let states = if layer.gating == Gating::Lstm { C + 1 } else { H + 1 };
    let biases = match &inputs[states..] {
        [of_input, of_state] => Some([elements::<T>(of_input), elements::<T>(of_state)]),
        _ => None,
    };
    given! { T, layer, inputs, biases => given }
    let (y, kept) = recurrent::forward(layer, &given);
    let array = |data: Pooled<T>| {
        let len = data.len();
        Array::from_vec(data, &[len])
    };
    let y = array(y)?;
    let mut saved = vec![Tensor::from_array(y.clone())];
    for kept in [kept.gates, kept.cells] {
        saved.push(Tensor::from_array(array(kept)?));
    }
    Ok((y, saved))
}

/// Computes the gradients of the inputs. Saved are x, the weights and the states, then the result and the kept
/// activations.
fn backward<T: Stored + Gemm<Wide: Gemm + Real>>(
    layer: &Layer,
    b: &Backward<'_>,
    shapes: &[Vec<usize>],
) -> Result<Vec<Option<Tensor>>> {
    given! { T, layer, b.saved, None => given }
    let [y, gates, cells] = [3, 2, 1].map(|back| elements::<T>(&b.saved[b.saved.len() - back]));
    let states = if layer.gating == Gating::Lstm { H..C + 1 } else { H..H + 1 };
    let needs = Needs {
        x: b.needs[X],
        weight_ih: b.needs[WEIGHT_IH],
        weight_hh: b.needs[WEIGHT_HH],
        biases: b.needs[states.end..].contains(&true),
        state: b.needs[states.clone()].contains(&true),
    };
    let kept = Saved { gates: &gates[..], cells: &cells[..] };
    let grads = recurrent::backward(layer, &given, &y, &kept, &elements::<T>(b.grad), needs);
    let mut data = vec![grads.x, grads.weight_ih, grads.weight_hh, grads.h];
    if layer.gating == Gating::Lstm {
        data.push(grads.c);
    }
    data.extend(grads.biases);
    let wanted = data.into_iter().zip(b.needs).zip(shapes);
    wanted
        .map(|((data, need), shape)| need.then(|| Array::from_vec(data, shape).map(Tensor::from_array)).transpose())
        .collect()
}

/// Runs a layer. `shape` maps the sizes to the shape of the result: all outputs, followed by the last c of an LSTM.
fn recurrent(
    op: Op,
    gating: Gating,
    reading: Reading,
    x: &Tensor,
    weights: &RecurrentWeights<'_>,
    states: &[&Tensor],
    shape: impl FnOnce(&Layer) -> Vec<usize>,
) -> Result<Tensor> {
    let reverse = matches!(reading, Reading::Sequence { reverse: true });
    let mut inputs = vec![x, weights.ih, weights.hh];
    inputs.extend(states);
    inputs.extend(weights.biases.into_iter().flat_map(|(of_input, of_state)| [of_input, of_state]));
    let call = call!(op, &inputs; gating, reverse);
    if context::quantizes() {
        return of_quantized(call, gating, reading, shape);
    }
    dispatch(call, |inputs| {
        one_float_dtype(inputs)?;
        let layer = layer(gating, reading, inputs)?;
        let (y, kept) = by_float!(inputs[X], T => forward::<T>(&layer, inputs))?;
        let shapes: Vec<Vec<usize>> = inputs.iter().map(|x| x.shape().to_vec()).collect();
        let saved = inputs[..H + states.len()].iter().cloned().chain(kept).collect();
        let value = crate::ops::index::shape::reshaped(&y, &shape(&layer))?;
        Ok(Forward::new(value, saved, move |b| by_float!(b.grad, T => backward::<T>(&layer, b, &shapes))))
    })
}

/// Runs a layer whose products have quantized operands, composed of ordinary ops.
fn of_quantized(
    call: Call<'_>,
    gating: Gating,
    reading: Reading,
    shape: impl FnOnce(&Layer) -> Vec<usize>,
) -> Result<Tensor> {
    let (op, attributes) = (call.op, (call.attributes)());
    composed(call, |inputs| {
        one_float_dtype(inputs)?;
        // The shape is that of the formula; who asked for it learns the sizes.
        shape(&layer(gating, reading, inputs)?);
        let product = context::next_product();
        Ok(move |inputs: &[Tensor]| {
            let _inside = context::enter_operands(product.clone().map(|product| product.inside()));
            formula::of_steps(op, &attributes, inputs)
        })
    })
}

/// Runs a layer whose inputs are in the order of the op.
///
/// # Errors
/// As for the methods of [`Tensor`]; [`ErrorKind::Shape`](crate::ErrorKind::Shape) for a wrong number of inputs.
pub(in crate::ops) fn recurrent_of(op: Op, attributes: &Attributes, inputs: &[&Tensor]) -> Result<Tensor> {
    let (gating, reverse): (Gating, bool) = (attributes.get("gating")?, attributes.get("reverse")?);
    let count = if gating == Gating::Lstm { 2 } else { 1 };
    let (&[x, ih, hh, ref rest @ ..], true) = (inputs, inputs.len() >= H + count) else {
        return Err(Error::shape(format!("needs an input, two weights and {count} states, got {}", inputs.len())));
    };
    let (states, biases) = rest.split_at(count);
    let biases = match biases {
        [] => None,
        &[of_input, of_state] => Some((of_input, of_state)),
        _ => return Err(Error::shape(format!("takes two biases or none, got {}", biases.len()))),
    };
    let weights = RecurrentWeights { ih, hh, biases };
    let reading = if op == Op::FusedRnn { Reading::Sequence { reverse } } else { Reading::Step };
    recurrent(op, gating, reading, x, &weights, states, |layer| match (op, gating) {
        (Op::FusedRnn, Gating::Lstm) => vec![layer.batch * (layer.time + 1) * layer.hidden],
        (Op::FusedRnn, _) => vec![layer.batch, layer.time, layer.hidden],
        (_, Gating::Lstm) => [&[2], states[0].shape()].concat(),
        _ => states[0].shape().to_vec(),
    })
}

/// Returns the state before the first step. Default: zeros.
fn first_state(x: &Tensor, weights: &RecurrentWeights<'_>, given: Option<&Tensor>) -> Result<Tensor> {
    if let Some(state) = given {
        return Ok(state.clone());
    }
    let shape = [x.shape().first(), weights.hh.shape().last()].map(|len| len.copied().unwrap_or(0));
    let shape = checked_shape(shape.to_vec()).map_err(|e| e.in_op(Op::FusedRnn.name()))?;
    Ok(Tensor::zeros(&shape, x.dtype()))
}

/// Runs a layer whose state is its output.
fn sequence(
    gating: Gating,
    x: &Tensor,
    weights: &RecurrentWeights<'_>,
    h: Option<&Tensor>,
    reverse: bool,
) -> Result<(Tensor, Tensor)> {
    let h = first_state(x, weights, h)?;
    let reading = Reading::Sequence { reverse };
    let y = recurrent(Op::FusedRnn, gating, reading, x, weights, &[&h], |l| vec![l.batch, l.time, l.hidden])?;
    let last = last_of(&y, reverse)?;
    Ok((y, last))
}

fn last_of(y: &Tensor, reverse: bool) -> Result<Tensor> {
    y.at(1, if reverse { 0 } else { y.shape()[1] - 1 })
}

impl Tensor {
    /// Computes one step of a recurrent network: `tanh(W_ih x + b_ih + W_hh h + b_hh)`, or with a rectifier instead of
    /// the tanh.
    ///
    /// Inputs are `[..., inputs]`, states `[..., hidden]`. Both products, the biases and the function are computed in
    /// f32 and rounded once. In a region whose lists do not name the step, it runs as ordinary ops, each resolved by
    /// the lists.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not fit,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when dtypes differ and no policy casts them.
    pub fn rnn_cell(&self, weights: &RecurrentWeights<'_>, h: &Tensor, relu: bool) -> Result<Tensor> {
        if step::is_split(Op::RnnCell) {
            return step::rnn(self, weights, h, relu);
        }
        let gating = if relu { Gating::Relu } else { Gating::Tanh };
        recurrent(Op::RnnCell, gating, Reading::Step, self, weights, &[h], |_| h.shape().to_vec())
    }

    /// Computes one step of a gated recurrent unit (Cho et al. 2014), with gates in the order r, z, n:
    /// `r = sigmoid(i_r + h_r)`, `z = sigmoid(i_z + h_z)`, `n = tanh(i_n + r * h_n)`, `h' = (1 - z) * n + z * h`, where
    /// `i = W_ih x + b_ih` and `h_* = W_hh h + b_hh`. Like [`rnn_cell`](Tensor::rnn_cell), rounded once: a
    /// 16-bit state does not change in steps below half of its last place. [`gru`](Tensor::gru) keeps it in f32 between
    /// its steps.
    ///
    /// # Errors
    /// As for [`rnn_cell`](Tensor::rnn_cell).
    pub fn gru_cell(&self, weights: &RecurrentWeights<'_>, h: &Tensor) -> Result<Tensor> {
        if step::is_split(Op::GruCell) {
            return step::gru(self, weights, h);
        }
        recurrent(Op::GruCell, Gating::Gru, Reading::Step, self, weights, &[h], |_| h.shape().to_vec())
    }

    /// Computes one step of a long short-term memory (Hochreiter, Schmidhuber 1997), with gates in the order i, f, g,
    /// o, all computed from `W_ih x + b_ih + W_hh h + b_hh`: `c' = sigmoid(f) * c + sigmoid(i) * tanh(g)`,
    /// `h' = sigmoid(o) * tanh(c')`. Like [`rnn_cell`](Tensor::rnn_cell), but h and c are each rounded once, h from the
    /// unrounded c.
    ///
    /// # Errors
    /// As for [`rnn_cell`](Tensor::rnn_cell).
    pub fn lstm_cell(&self, weights: &RecurrentWeights<'_>, (h, c): (&Tensor, &Tensor)) -> Result<(Tensor, Tensor)> {
        if step::is_split(Op::LstmCell) {
            return step::lstm(self, weights, (h, c));
        }
        let shape = [&[2], h.shape()].concat();
        let both = recurrent(Op::LstmCell, Gating::Lstm, Reading::Step, self, weights, &[h, c], |_| shape)?;
        Ok((both.at(0, 0)?, both.at(0, 1)?))
    }

    /// Runs a layer of [`rnn_cell`](Tensor::rnn_cell)s over `[batch, time, inputs]`, from the last time to the first
    /// with `reverse`. Returns the outputs `[batch, time, hidden]` of all steps and the last state `[batch, hidden]`.
    /// The first state defaults to 0.
    ///
    /// The whole sequence is one op, computed in f32 except for the state, which is rounded after each step: it is the
    /// output and the input of the next step. The outputs are saved for the backward pass.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not fit or the time axis is empty,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when dtypes differ and no policy casts them.
    pub fn rnn(
        &self,
        weights: &RecurrentWeights<'_>,
        h: Option<&Tensor>,
        relu: bool,
        reverse: bool,
    ) -> Result<(Tensor, Tensor)> {
        sequence(if relu { Gating::Relu } else { Gating::Tanh }, self, weights, h, reverse)
    }

    /// Runs a layer of [`gru_cell`](Tensor::gru_cell)s, like [`rnn`](Tensor::rnn). The outputs and four numbers per
    /// unit and time are saved for the backward pass.
    ///
    /// # Errors
    /// As for [`rnn`](Tensor::rnn).
    pub fn gru(&self, weights: &RecurrentWeights<'_>, h: Option<&Tensor>, reverse: bool) -> Result<(Tensor, Tensor)> {
        sequence(Gating::Gru, self, weights, h, reverse)
    }

    /// Runs a layer of [`lstm_cell`](Tensor::lstm_cell)s, like [`rnn`](Tensor::rnn), with two states, `(h, c)`.
    ///
    /// c stays in f32 from step to step; the last one is rounded. The gates and c are saved for the backward pass,
    /// rounded to the dtype of the inputs: five numbers per unit and time, and the outputs.
    ///
    /// # Errors
    /// As for [`rnn`](Tensor::rnn).
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::{DType, RecurrentWeights, Tensor};
    /// let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32);
    /// let (ih, hh) = (zeros(&[12, 5]), zeros(&[12, 3]));
    /// let weights = RecurrentWeights { ih: &ih, hh: &hh, biases: None };
    /// let (y, (h, c)) = zeros(&[2, 7, 5]).lstm(&weights, None, false)?;
    /// assert_eq!((y.shape(), h.shape(), c.shape()), (&[2, 7, 3][..], &[2, 3][..], &[2, 3][..]));
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn lstm(
        &self,
        weights: &RecurrentWeights<'_>,
        state: Option<(&Tensor, &Tensor)>,
        reverse: bool,
    ) -> Result<(Tensor, (Tensor, Tensor))> {
        let h = first_state(self, weights, state.map(|(h, _)| h))?;
        let c = first_state(self, weights, state.map(|(_, c)| c))?;
        let reading = Reading::Sequence { reverse };
        let mut sizes = [0; 3];
        let all = recurrent(Op::FusedRnn, Gating::Lstm, reading, self, weights, &[&h, &c], |l| {
            sizes = [l.batch, l.time, l.hidden];
            vec![l.batch * (l.time + 1) * l.hidden]
        })?;
        let outputs: usize = sizes.iter().product();
        let [batch, time, hidden] = sizes;
        let y = all.slice(0, 0..outputs)?.reshape(&[batch, time, hidden])?;
        let c = all.slice(0, outputs..all.len())?.reshape(&[batch, hidden])?;
        let h = last_of(&y, reverse)?;
        Ok((y, (h, c)))
    }
}
