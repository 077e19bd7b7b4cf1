//! Recurrent layers. The gates of the weights are sorted into the order of torch.

use super::{
    super::{
        call::lengths,
        data::filled,
        step::Call,
        value::{Item, Value},
    },
    Table,
};
use precast::{
    RecurrentWeights, Tensor,
    error::{Error, Result},
};

pub(super) const OPS: Table = &[
    ("LSTM", |call| layer(call, &Layer { gates: &[0, 2, 3, 1], functions: &["Sigmoid", "Tanh", "Tanh"] })),
    ("GRU", |call| layer(call, &Layer { gates: &[1, 0, 2], functions: &["Sigmoid", "Tanh"] })),
    ("RNN", |call| layer(call, &Layer { gates: &[0], functions: &["Tanh"] })),
];

/// A kind of layer.
struct Layer {
    /// The place in the model of each gate of torch.
    gates: &'static [usize],
    /// The usual functions of one direction.
    functions: &'static [&'static str],
}

/// The tensors of one direction.
struct Direction {
    ih: Tensor,
    hh: Tensor,
    biases: Option<(Tensor, Tensor)>,
    h: Option<Tensor>,
    c: Option<Tensor>,
}

/// Returns the rows of a weight with the gates in the order of torch.
fn sorted(x: &Tensor, hidden: usize, gates: &[usize]) -> Result<Tensor> {
    if gates.len() == 1 {
        return Ok(x.clone());
    }
    let parts =
        gates.iter().map(|gate| x.slice(0, gate * hidden..(gate + 1) * hidden)).collect::<Result<Vec<Tensor>>>()?;
    Tensor::concat(&parts.iter().collect::<Vec<_>>(), 0)
}

fn layer(call: &Call<'_>, layer: &Layer) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let is_lstm = layer.gates.len() == 4;
    let batch_first = call.flag("layout", false)?;
    // The layers here have the batch first.
    let x = if batch_first { item.x.clone() } else { swapped(&item.x)? };
    let &[batch, time, _] = x.shape() else {
        return Err(Error::shape(format!("needs three axes, got {:?}", item.x.shape())));
    };
    let backward: &[bool] = match call.text("direction")?.unwrap_or("forward") {
        "forward" => &[false],
        "reverse" => &[true],
        "bidirectional" => &[false, true],
        other => {
            return Err(Error::value(format!("`direction` is `{other}`; allowed: forward, reverse, bidirectional")));
        }
    };
    let relu = functions(call, layer, backward.len())?;
    check(call, is_lstm, batch, time)?;
    let hidden = match call.x(2)?.shape() {
        [directions, _, hidden] if *directions == backward.len() => *hidden,
        shape => {
            return Err(Error::shape(format!(
                "its weight of the state is {shape:?}; expected {} directions",
                backward.len()
            )));
        }
    };
    let state = |index: usize, direction: usize| {
        call.maybe_x(index)?.map(|state| state.at(if batch_first { 1 } else { 0 }, direction)).transpose()
    };
    let (mut ys, mut hs, mut cs) = (vec![], vec![], vec![]);
    for (direction, reverse) in backward.iter().enumerate() {
        let gates = |x: &Tensor| sorted(x, hidden, layer.gates);
        let rows = layer.gates.len() * hidden;
        let (w, r) = (call.x(1)?.at(0, direction)?, call.x(2)?.at(0, direction)?);
        if w.shape().first() != Some(&rows) || r.shape() != [rows, hidden] {
            return Err(Error::shape(format!("weights {:?} and {:?} for {hidden} units", w.shape(), r.shape())));
        }
        let biases = match call.maybe_x(3)? {
            Some(b) => {
                let b = b.at(0, direction)?;
                if b.shape() != [2 * rows] {
                    return Err(Error::shape(format!("a bias {:?}; expected [{}]", b.shape(), 2 * rows)));
                }
                Some((gates(&b.slice(0, 0..rows)?)?, gates(&b.slice(0, rows..2 * rows)?)?))
            }
            None => None,
        };
        let c = if is_lstm { state(6, direction)? } else { None };
        let one = Direction { ih: gates(&w)?, hh: gates(&r)?, biases, h: state(5, direction)?, c };
        let (y, h, c) = run(call, layer, &x, &one, *reverse, relu[direction], [batch, hidden])?;
        ys.push(y);
        hs.push(h);
        cs.extend(c);
    }
    // Y: [time, directions, batch, hidden], or [batch, time, directions, hidden].
    let ys: Vec<&Tensor> = ys.iter().collect();
    let y = Tensor::stack(&ys, 2)?;
    let y = if batch_first { y } else { y.permute(&[1, 2, 0, 3])? };
    let states = |parts: &[Tensor]| Tensor::stack(&parts.iter().collect::<Vec<_>>(), if batch_first { 1 } else { 0 });
    let mut made: Vec<Value> =
        vec![Item::computed(y, item.elem).into(), Item::computed(states(&hs)?, item.elem).into()];
    if is_lstm {
        made.push(Item::computed(states(&cs)?, item.elem).into());
    }
    Ok(made)
}

fn swapped(x: &Tensor) -> Result<Tensor> {
    match x.rank() {
        3 => x.permute(&[1, 0, 2]),
        _ => Err(Error::shape(format!("needs three axes, got {:?}", x.shape()))),
    }
}

/// Refuses settings that the layers here do not have.
fn check(call: &Call<'_>, is_lstm: bool, batch: usize, time: usize) -> Result<()> {
    if call.maybe(4)?.is_some() {
        let lens = lengths(&call.numbers(4)?)?;
        if lens.len() != batch || lens.iter().any(|len| *len != time) {
            return Err(call.refuse("its sequences have lengths of their own"));
        }
    }
    if is_lstm && call.maybe(7)?.is_some() && call.reals(7)?.iter().any(|number| *number != 0.0) {
        return Err(call.refuse("it has peepholes"));
    }
    if is_lstm && call.flag("input_forget", false)? {
        return Err(call.refuse("its input gate and its forget gate are one"));
    }
    if call.has("clip") {
        return Err(call.refuse("it clips its gates"));
    }
    if time == 0 {
        return Err(Error::shape("its sequence is empty"));
    }
    Ok(())
}

/// Checks the functions of each direction; returns whether an RNN has a rectifier.
fn functions(call: &Call<'_>, layer: &Layer, directions: usize) -> Result<Vec<bool>> {
    let Some(given) = call.texts("activations")? else { return Ok(vec![false; directions]) };
    let each = layer.functions.len();
    if given.len() != each * directions {
        return Err(Error::value(format!("{} functions; expected {}", given.len(), each * directions)));
    }
    given
        .chunks(each)
        .map(|given| match given {
            [only] if each == 1 && only.eq_ignore_ascii_case("Relu") => Ok(true),
            given if given.iter().zip(layer.functions).all(|(a, b)| a.eq_ignore_ascii_case(b)) => Ok(false),
            given => Err(call.refuse(&format!("its functions are {given:?}; allowed: {:?}", layer.functions))),
        })
        .collect()
}

fn run(
    call: &Call<'_>,
    layer: &Layer,
    x: &Tensor,
    one: &Direction,
    reverse: bool,
    relu: bool,
    [batch, hidden]: [usize; 2],
) -> Result<(Tensor, Tensor, Option<Tensor>)> {
    let biases = one.biases.as_ref().map(|(a, b)| (a, b));
    let weights = RecurrentWeights { ih: &one.ih, hh: &one.hh, biases };
    match layer.gates.len() {
        4 => {
            let zeros = filled(&[batch, hidden], 0.0, x.dtype())?;
            let state = match (&one.h, &one.c) {
                (None, None) => None,
                (h, c) => Some((h.as_ref().unwrap_or(&zeros), c.as_ref().unwrap_or(&zeros))),
            };
            let (y, (h, c)) = x.lstm(&weights, state, reverse)?;
            Ok((y, h, Some(c)))
        }
        3 if !call.flag("linear_before_reset", false)? => unrolled(x, one, reverse, [batch, hidden]),
        3 => x.gru(&weights, one.h.as_ref(), reverse).map(|(y, h)| (y, h, None)),
        _ => x.rnn(&weights, one.h.as_ref(), relu, reverse).map(|(y, h)| (y, h, None)),
    }
}

/// Runs a GRU step by step in which the reset gate multiplies the state before the product, as in Keras:
/// `n = tanh(W_n x + b_n + R_n (r * h))`.
fn unrolled(
    x: &Tensor,
    one: &Direction,
    reverse: bool,
    [batch, hidden]: [usize; 2],
) -> Result<(Tensor, Tensor, Option<Tensor>)> {
    let time = x.shape()[1];
    let of_x = x.linear(&one.ih, one.biases.as_ref().map(|(of_x, _)| of_x))?;
    let gates = one.hh.slice(0, 0..2 * hidden)?;
    let new = one.hh.slice(0, 2 * hidden..3 * hidden)?;
    let biases = match &one.biases {
        Some((_, b)) => Some((b.slice(0, 0..2 * hidden)?, b.slice(0, 2 * hidden..3 * hidden)?)),
        None => None,
    };
    let of_gates = biases.as_ref().map(|(gates, _)| gates);
    let of_new = biases.as_ref().map(|(_, new)| new);
    let mut h = match &one.h {
        Some(h) => h.clone(),
        None => filled(&[batch, hidden], 0.0, x.dtype())?,
    };
    let mut ys = Vec::new();
    for step in 0..time {
        let now = of_x.at(1, if reverse { time - 1 - step } else { step })?;
        let both = now.slice(1, 0..2 * hidden)?.add(&h.linear(&gates, of_gates)?)?.sigmoid()?;
        let (r, z) = (both.slice(1, 0..hidden)?, both.slice(1, hidden..2 * hidden)?);
        let n = now.slice(1, 2 * hidden..3 * hidden)?.add(&r.mul(&h)?.linear(&new, of_new)?)?.tanh()?;
        h = n.add(&z.mul(&h.sub(&n)?)?)?;
        ys.push(h.clone());
    }
    if reverse {
        ys.reverse();
    }
    let y = Tensor::stack(&ys.iter().collect::<Vec<_>>(), 1)?;
    Ok((y, h, None))
}
