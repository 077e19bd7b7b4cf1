//! Recurrent layers and cells, and attention.

use precast::{DType, Op, RecurrentWeights, Result, Tensor};

use crate::gradients::{
    inputs::Draw,
    reference::{
        self,
        Kind::{self, Gru, Lstm, Relu, Tanh},
        Layer, State,
    },
    row::{Case, ONCE, Row, check_all},
};

fn gates(kind: Kind) -> usize {
    match kind {
        Tanh | Relu => 1,
        Gru => 3,
        Lstm => 4,
    }
}

fn states(kind: Kind) -> usize {
    if kind == Lstm { 2 } else { 1 }
}

/// Draws both weights, the states, and in most cases biases, after an x of such a shape; `batch` is that of the states.
fn inputs(d: &mut Draw, kind: Kind, x: &[usize], batch: &[usize], with_states: bool) -> Vec<Tensor> {
    let (width, hidden) = (x[x.len() - 1], d.size(1..=4));
    let rows = gates(kind) * hidden;
    let mut shapes = vec![x.to_vec(), vec![rows, width], vec![rows, hidden]];
    if with_states {
        shapes.extend(vec![[batch, &[hidden]].concat(); states(kind)]);
    }
    if d.number(0..=2) > 0 {
        shapes.extend(vec![vec![rows]; 2]);
    }
    // Positive sums stay away from the kink of a rectifier.
    let low = if kind == Relu { 0.1 } else { -1.0 };
    shapes.iter().map(|shape| d.tensor(shape, low..1.0)).collect()
}

fn weights(x: &[Tensor], states: usize) -> RecurrentWeights<'_> {
    let biases = x.get(3 + states).zip(x.get(4 + states));
    RecurrentWeights { ih: &x[1], hh: &x[2], biases }
}

fn layer_of(kind: Kind, x: &[Tensor], states: usize, low: DType) -> Layer<'_> {
    let w = weights(x, states);
    Layer { kind, ih: w.ih, hh: w.hh, biases: w.biases, low }
}

/// Returns the given state, whose c is exact in 16 bit.
fn state_of(kind: Kind, given: &[Tensor]) -> State {
    State { h: given[0].clone(), c: (kind == Lstm).then(|| (given[1].clone(), given[1].detach())) }
}

/// Compares with the formula that rounds where the op rounds. A number on the border of two roundings may be rounded
/// the other way: an epsilon of one of the kept numbers.
fn rounded(case: Case, formula: impl Fn(&[Tensor], DType) -> Result<Tensor> + 'static) -> Case {
    case.low(ONCE + 1.0).reference(formula)
}

fn cell(op: Op, kind: Kind) -> Row {
    Row::new(op, move |d| {
        let (batch, width) = (d.shape(0..=3), d.size(1..=4));
        let inputs = inputs(d, kind, &[&batch[..], &[width]].concat(), &batch, true);
        let case = Case::new(inputs, move |x| {
            let w = weights(x, states(kind));
            match kind {
                Tanh => x[0].rnn_cell(&w, &x[3], false),
                Relu => x[0].rnn_cell(&w, &x[3], true),
                Gru => x[0].gru_cell(&w, &x[3]),
                Lstm => {
                    let (h, c) = x[0].lstm_cell(&w, (&x[3], &x[4]))?;
                    Tensor::concat(&[&h, &c], -1)
                }
            }
        });
        rounded(case, move |x, low| {
            let next = layer_of(kind, x, states(kind), low).step(&x[0], &state_of(kind, &x[3..]))?;
            match next.c {
                None => Ok(next.h),
                Some((c, _)) => Tensor::concat(&[&next.h, &c], -1),
            }
        })
    })
}

/// Makes a row for a whole sequence: all outputs and the last c, or only the last state. With both the outputs and the
/// last h, the gradient would be a sum that is rounded before the op sees it.
fn layer(kind: Kind) -> Row {
    Row::new(Op::FusedRnn, move |d| {
        let (batch, time, width) = (d.samples(3), d.size(1..=4), d.size(1..=4));
        let (with_states, reverse, last) = (d.flag(), d.flag(), d.number(0..=2) == 0);
        let inputs = inputs(d, kind, &[batch, time, width], &[batch], with_states);
        let states = if with_states { states(kind) } else { 0 };
        let case = Case::new(inputs, move |x| {
            let (w, h) = (weights(x, states), with_states.then(|| &x[3]));
            let (y, h) = match kind {
                Tanh => x[0].rnn(&w, h, false, reverse)?,
                Relu => x[0].rnn(&w, h, true, reverse)?,
                Gru => x[0].gru(&w, h, reverse)?,
                Lstm => {
                    let (y, (h, c)) = x[0].lstm(&w, h.map(|h| (h, &x[4])), reverse)?;
                    (Tensor::concat(&[&y, &c.unsqueeze(1)?], 1)?, h)
                }
            };
            Ok(if last { h } else { y })
        });
        rounded(case, move |x, low| {
            let zeros = Tensor::zeros(&[batch, x[2].shape()[1]], DType::F64);
            let first = match with_states {
                true => state_of(kind, &x[3..]),
                false => state_of(kind, &[zeros.clone(), zeros]),
            };
            let (y, end) = layer_of(kind, x, states, low).sequence(&x[0], first, reverse)?;
            match end.c {
                _ if last => Ok(end.h),
                None => Ok(y),
                Some((c, _)) => Tensor::concat(&[&y, &c.unsqueeze(1)?], 1),
            }
        })
    })
}

/// Draws queries, keys and values with leading axes, a mask, and the keys visible to each query.
fn attention(d: &mut Draw) -> Case {
    let [l, s, width, out] = [(); 4].map(|()| d.size(1..=4));
    let [a, b] = [d.size(1..=2), d.samples(3)];
    let leading: [&[usize]; 3] = match d.number(0..=2) {
        0 => [&[b], &[b], &[b]],
        1 => [&[a, 1], &[b], &[]],
        _ => [&[], &[a, b], &[b]],
    };
    let shapes = [[l, width], [s, width], [s, out]];
    let shapes: Vec<Vec<usize>> = leading.iter().zip(shapes).map(|(lead, last)| [lead, &last[..]].concat()).collect();
    let mut inputs: Vec<Tensor> = shapes.iter().map(|shape| d.tensor(shape, -2.0..2.0)).collect();
    match d.pick(&["no mask", "a mask", "a bias"]) {
        "a mask" => inputs.push(d.mask(&[l, s])),
        "a bias" => inputs.push(d.tensor(&[l, s], -1.0..1.0)),
        _ => {}
    }
    let (causal, scale) = (d.flag(), d.flag().then_some(0.4));
    let case = Case::new(inputs, move |x| x[0].scaled_dot_product_attention(&x[1], &x[2], x.get(3), causal, scale));
    // A weight on the border of two roundings may be rounded the other way in the formula.
    case.low(ONCE + 1.0).reference_of_gradients(move |x, low| {
        reference::attention(x, causal, scale.unwrap_or(1.0 / (width as f64).sqrt()), low)
    })
}

pub fn rows() -> Vec<Row> {
    vec![
        cell(Op::RnnCell, Tanh).named("tanh"),
        cell(Op::RnnCell, Relu).named("relu"),
        cell(Op::GruCell, Gru),
        cell(Op::LstmCell, Lstm),
        layer(Tanh).named("rnn"),
        layer(Relu).named("rnn relu"),
        layer(Gru).named("gru"),
        layer(Lstm).named("lstm"),
        Row::new(Op::ScaledDotProductAttention, attention),
    ]
}

#[test]
fn gradients() {
    check_all(rows());
}
