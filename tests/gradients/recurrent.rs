//! Recurrent layers and cells, and attention.

use precast::{Op, RecurrentWeights, Tensor};

use crate::{
    draw::Draw,
    row::{Case, Row, check_all},
};

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Tanh,
    Relu,
    Gru,
    Lstm,
}

use Kind::{Gru, Lstm, Relu, Tanh};

impl Kind {
    fn gates(self) -> usize {
        match self {
            Tanh | Relu => 1,
            Gru => 3,
            Lstm => 4,
        }
    }

    fn states(self) -> usize {
        if self == Lstm { 2 } else { 1 }
    }
}

/// Both weights, the states, and in most cases biases, behind an x of such a shape; `batch` is that of the states.
fn inputs(d: &mut Draw, kind: Kind, x: &[usize], batch: &[usize], with_states: bool) -> Vec<Tensor> {
    let (width, hidden) = (x[x.len() - 1], d.size(1..=4));
    let rows = kind.gates() * hidden;
    let mut shapes = vec![x.to_vec(), vec![rows, width], vec![rows, hidden]];
    if with_states {
        shapes.extend(vec![[batch, &[hidden]].concat(); kind.states()]);
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

fn cell(op: Op, kind: Kind) -> Row {
    Row::new(op, move |d| {
        let (batch, width) = (d.shape(0..=3), d.size(1..=4));
        let inputs = inputs(d, kind, &[&batch[..], &[width]].concat(), &batch, true);
        Case::new(inputs, move |x| {
            let w = weights(x, kind.states());
            match kind {
                Tanh => x[0].rnn_cell(&w, &x[3], false),
                Relu => x[0].rnn_cell(&w, &x[3], true),
                Gru => x[0].gru_cell(&w, &x[3]),
                Lstm => {
                    let (h, c) = x[0].lstm_cell(&w, (&x[3], &x[4]))?;
                    Tensor::concat(&[&h, &c], -1)
                }
            }
        })
    })
}

/// A whole sequence. The result is all outputs and the last states, so that gradients come from everywhere.
fn layer(kind: Kind) -> Row {
    Row::new(Op::FusedRnn, move |d| {
        let (batch, time, width) = (d.samples(3), d.size(1..=4), d.size(1..=4));
        let (with_states, reverse) = (d.flag(), d.flag());
        let inputs = inputs(d, kind, &[batch, time, width], &[batch], with_states);
        Case::new(inputs, move |x| {
            let states = if with_states { kind.states() } else { 0 };
            let (w, h) = (weights(x, states), with_states.then(|| &x[3]));
            let (y, last) = match kind {
                Tanh => x[0].rnn(&w, h, false, reverse)?,
                Relu => x[0].rnn(&w, h, true, reverse)?,
                Gru => x[0].gru(&w, h, reverse)?,
                Lstm => {
                    let (y, (_, c)) = x[0].lstm(&w, h.map(|h| (h, &x[4])), reverse)?;
                    (y, c)
                }
            };
            Tensor::concat(&[&y, &last.unsqueeze(1)?], 1)
        })
    })
}

/// Queries, keys and values of some leading axes, a mask, and which keys a query sees.
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
    Case::new(inputs, move |x| x[0].scaled_dot_product_attention(&x[1], &x[2], x.get(3), causal, scale))
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
