//! Recurrent cells and layers.

use precast::{Op, RecurrentWeights, Result, Tensor};

use crate::draw::{Case, Draw};

pub fn draw(op: Op, d: &mut Draw) -> Result<Option<Case>> {
    let kind = match op {
        Op::RnnCell => d.one_of(&["tanh", "relu"]),
        Op::GruCell => "gru",
        Op::LstmCell => "lstm",
        Op::FusedRnn => d.one_of(&["tanh", "relu", "gru", "lstm"]),
        _ => return Ok(None),
    };
    let gates = match kind {
        "gru" => 3,
        "lstm" => 4,
        _ => 1,
    };
    let [batch, time, input, hidden] = [d.size(1..=4), d.size(1..=5), d.size(1..=9), d.size(1..=9)];
    let (whole, reverse, biased) = (op == Op::FusedRnn, op == Op::FusedRnn && d.flag(), d.flag());
    let x = if whole { d.float(&[batch, time, input])? } else { d.float(&[batch, input])? };
    let rows = gates * hidden;
    let mut inputs = vec![x, d.between(&[batch, hidden], -1.0..1.0)?];
    if kind == "lstm" {
        inputs.push(d.between(&[batch, hidden], -1.0..1.0)?);
    }
    let states = inputs.len() - 1;
    inputs.extend([d.between(&[rows, input], -1.0..1.0)?, d.between(&[rows, hidden], -1.0..1.0)?]);
    if biased {
        inputs.extend([d.between(&[rows], -1.0..1.0)?, d.between(&[rows], -1.0..1.0)?]);
    }
    let call = move |x: &[Tensor]| {
        let weights = &x[states + 1..];
        let biases = (weights.len() > 2).then(|| (&weights[2], &weights[3]));
        let weights = RecurrentWeights { ih: &weights[0], hh: &weights[1], biases };
        let relu = kind == "relu";
        Ok(match (whole, kind) {
            (true, "lstm") => {
                let (y, (h, c)) = x[0].lstm(&weights, Some((&x[1], &x[2])), reverse)?;
                vec![y, h, c]
            }
            (true, "gru") => <[Tensor; 2]>::from(x[0].gru(&weights, Some(&x[1]), reverse)?).into(),
            (true, _) => <[Tensor; 2]>::from(x[0].rnn(&weights, Some(&x[1]), relu, reverse)?).into(),
            (false, "lstm") => <[Tensor; 2]>::from(x[0].lstm_cell(&weights, (&x[1], &x[2]))?).into(),
            (false, "gru") => vec![x[0].gru_cell(&weights, &x[1])?],
            (false, _) => vec![x[0].rnn_cell(&weights, &x[1], relu)?],
        })
    };
    Ok(Some(Case::many(inputs, call).option("kind", kind).option("whole", whole).option("reverse", reverse)))
}
