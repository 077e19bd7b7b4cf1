//! Recurrent layers. The gates of the weights are sorted into the order of ONNX.

use super::super::{
    call::{Call, Emit},
    message::{Attr, Val},
    nodes::rounded,
    writer::Writer,
};
use crate::Dim;
use precast::{DType, Op, error::Result};

pub(super) fn find(op: Op) -> Option<Emit> {
    match op {
        Op::FusedRnn => Some(layer),
        _ => None,
    }
}

/// A layer with its sizes.
struct Layer {
    gating: String,
    reverse: bool,
    hidden: usize,
    time: Dim,
    batch: Dim,
    h: Val,
    c: Option<Val>,
    biases: Option<[Val; 2]>,
}

impl Layer {
    fn read(c: &Call<'_>) -> Result<Layer> {
        let gating = c.attr_text("gating")?;
        let is_lstm = gating == "lstm";
        let first = if is_lstm { 5 } else { 4 };
        Ok(Layer {
            reverse: c.attr("reverse")?,
            hidden: c.fixed(2)?[1],
            time: c.shape(0)[1],
            batch: c.shape(0)[0],
            h: c.input(3)?,
            c: if is_lstm { Some(c.input(4)?) } else { None },
            biases: if c.x.len() > first { Some([c.input(first)?, c.input(first + 1)?]) } else { None },
            gating,
        })
    }

    /// Returns the place of each of ONNX's gates among those of torch.
    fn gates(&self) -> &'static [usize] {
        match &self.gating[..] {
            "lstm" => &[0, 3, 1, 2],
            "gru" => &[1, 0, 2],
            _ => &[0],
        }
    }

    /// Returns `[1, rows, ...]` of a weight or a bias, with its gates in ONNX's order.
    fn sorted(&self, c: &mut Call<'_>, x: &Val) -> Result<Val> {
        let gates = self.gates();
        if gates.len() == 1 {
            return Ok(x.clone());
        }
        let parts = c.split(x, 0, &vec![self.hidden; gates.len()])?;
        c.concat(&gates.iter().map(|&gate| &parts[gate]).collect::<Vec<_>>(), 0)
    }

    /// Returns an initial state; none where it is 0.
    fn state(&self, c: &mut Call<'_>, x: &Val, place: usize) -> Result<Val> {
        if c.zero[place] { Ok(Val::none()) } else { c.unsqueeze(x, &[0]) }
    }
}

fn layer(c: &mut Call<'_>) -> Result<Vec<Val>> {
    let layer = Layer::read(c)?;
    let (y, last) = match c.rounds_to {
        Some(low) => by_steps(c, &layer, low)?,
        None => whole(c, &layer)?,
    };
    let Some(last) = last else { return Ok(vec![y]) };
    // All outputs, then the last state.
    let flat = |c: &mut Call<'_>, x: &Val, time: i64| {
        let each = time * layer.hidden as i64;
        c.reshape(x, &[Dim { each: layer.batch.each * each, plus: layer.batch.plus * each }])
    };
    let parts = [flat(c, &y, layer.time.plus)?, flat(c, &last, 1)?];
    let both = c.concat(&[&parts[0], &parts[1]], 0)?;
    Ok(vec![both, y, last])
}

/// Returns the outputs `[batch, time, hidden]` of one node for all steps, and the last cell state.
fn whole(c: &mut Call<'_>, layer: &Layer) -> Result<(Val, Option<Val>)> {
    let (x, ih, hh) = (c.input(0)?, c.input(1)?, c.input(2)?);
    let x = c.transpose(&x, &[1, 0, 2])?;
    let weight = |c: &mut Call<'_>, x: &Val| -> Result<Val> {
        let sorted = layer.sorted(c, x)?;
        c.unsqueeze(&sorted, &[0])
    };
    let (w, r) = (weight(c, &ih)?, weight(c, &hh)?);
    let b = match &layer.biases {
        Some([of_input, of_state]) => {
            let (of_input, of_state) = (layer.sorted(c, of_input)?, layer.sorted(c, of_state)?);
            let both = c.concat(&[&of_input, &of_state], 0)?;
            c.unsqueeze(&both, &[0])?
        }
        None => Val::none(),
    };
    let h = layer.state(c, &layer.h, 3)?;
    let mut inputs = vec![x, w, r, b, Val::none(), h];
    let mut attributes = vec![("hidden_size", Attr::Int(layer.hidden as i64))];
    if layer.reverse {
        attributes.push(("direction", Attr::Text("reverse")));
    }
    let (op, outputs) = match &layer.gating[..] {
        "lstm" => {
            let of = layer.c.clone().unwrap_or_else(Val::none);
            inputs.push(layer.state(c, &of, 4)?);
            ("LSTM", 3)
        }
        "gru" => {
            attributes.push(("linear_before_reset", Attr::Int(1)));
            ("GRU", 1)
        }
        gating => {
            attributes.push(("activations", Attr::Texts(vec![if gating == "relu" { "Relu" } else { "Tanh" }])));
            ("RNN", 1)
        }
    };
    let dtype = c.dtype;
    let made = c.writer.nodes_of(op, &vec![dtype; outputs], &inputs.iter().collect::<Vec<_>>(), &attributes)?;
    let y = c.squeeze(&made[0], &[1])?;
    let y = c.transpose(&y, &[1, 0, 2])?;
    let last = made.get(2).map(|last| c.squeeze(last, &[0])).transpose()?;
    Ok((y, last))
}

/// Returns the same, with the output of each step rounded. It is the state that the next step reads.
fn by_steps(c: &mut Call<'_>, layer: &Layer, low: DType) -> Result<(Val, Option<Val>)> {
    let (x, ih, hh) = (c.input(0)?, c.input(1)?, c.input(2)?);
    let (ih, hh) = (c.transpose(&ih, &[1, 0])?, c.transpose(&hh, &[1, 0])?);
    let states = if layer.c.is_some() { 2 } else { 1 };
    // Both biases belong to one sum, unless something separates them.
    let biases = match &layer.biases {
        Some([of_input, of_state]) if layer.gating != "gru" => [Some(c.node("Add", &[of_input, of_state], &[])?), None],
        Some([of_input, of_state]) => [Some(of_input.clone()), Some(of_state.clone())],
        None => [None, None],
    };
    let body = {
        let dtype = c.dtype;
        let cell = Cell { layer, ih: &ih, hh: &hh, biases, low, dtype };
        c.writer.body("step", &vec![dtype; states + 1], |writer, inputs| cell.write(writer, inputs))?
    };
    let direction = Attr::Ints(vec![i64::from(layer.reverse)]);
    let mut inputs = vec![layer.h.clone()];
    inputs.extend(layer.c.clone());
    inputs.push(x);
    let attributes = [
        ("body", body),
        ("num_scan_inputs", Attr::Int(1)),
        ("scan_input_axes", Attr::Ints(vec![1])),
        ("scan_output_axes", Attr::Ints(vec![1])),
        ("scan_input_directions", direction.clone()),
        ("scan_output_directions", direction),
    ];
    let dtypes = vec![c.dtype; states + 1];
    let made = c.writer.nodes_of("Scan", &dtypes, &inputs.iter().collect::<Vec<_>>(), &attributes)?;
    Ok((made[states].clone(), layer.c.as_ref().map(|_| made[1].clone())))
}

/// A step of a layer, computed in float32.
struct Cell<'a> {
    layer: &'a Layer,
    ih: &'a Val,
    hh: &'a Val,
    /// Added to the part of the input, and to that of the state.
    biases: [Option<Val>; 2],
    low: DType,
    dtype: DType,
}

impl Cell<'_> {
    fn node(&self, w: &mut Writer, op: &'static str, inputs: &[&Val]) -> Result<Val> {
        w.node_of(op, self.dtype, inputs, &[])
    }

    fn parts(&self, w: &mut Writer, x: &Val, count: usize) -> Result<Vec<Val>> {
        let lengths = w.ints(&vec![self.layer.hidden as i64; count])?;
        w.nodes_of("Split", &vec![self.dtype; count], &[x, &lengths], &[("axis", Attr::Int(-1))])
    }

    /// Returns the next states, and the output.
    fn write(&self, w: &mut Writer, inputs: &[Val]) -> Result<Vec<Val>> {
        let (h, x) = (&inputs[0], &inputs[inputs.len() - 1]);
        // The state of a GRU is a sum, of which the product alone reads a rounded copy.
        let is_sum = self.layer.gating == "gru";
        let read = if is_sum { &rounded(w, h, self.low, true)? } else { h };
        let mut from_input = self.node(w, "MatMul", &[x, self.ih])?;
        let mut from_state = self.node(w, "MatMul", &[read, self.hh])?;
        for (sum, bias) in [&mut from_input, &mut from_state].into_iter().zip(&self.biases) {
            if let Some(bias) = bias {
                *sum = self.node(w, "Add", &[sum, bias])?;
            }
        }
        let (next, c) = match &self.layer.gating[..] {
            "lstm" => {
                let sum = self.node(w, "Add", &[&from_input, &from_state])?;
                let gates = self.parts(w, &sum, 4)?;
                let [i, f, o] = [0, 1, 3].map(|gate| self.node(w, "Sigmoid", &[&gates[gate]]));
                let g = self.node(w, "Tanh", &[&gates[2]])?;
                let (kept, new) = (self.node(w, "Mul", &[&f?, &inputs[1]])?, self.node(w, "Mul", &[&i?, &g])?);
                let c = self.node(w, "Add", &[&kept, &new])?;
                let tanh = self.node(w, "Tanh", &[&c])?;
                (self.node(w, "Mul", &[&o?, &tanh])?, Some(c))
            }
            "gru" => {
                let (of_input, of_state) = (self.parts(w, &from_input, 3)?, self.parts(w, &from_state, 3)?);
                let [r, z] = [0, 1].map(|gate| {
                    let sum = self.node(w, "Add", &[&of_input[gate], &of_state[gate]])?;
                    self.node(w, "Sigmoid", &[&sum])
                });
                let part = self.node(w, "Mul", &[&r?, &of_state[2]])?;
                let sum = self.node(w, "Add", &[&of_input[2], &part])?;
                let new = self.node(w, "Tanh", &[&sum])?;
                let way = self.node(w, "Sub", &[h, &new])?;
                let part = self.node(w, "Mul", &[&z?, &way])?;
                (self.node(w, "Add", &[&new, &part])?, None)
            }
            gating => {
                let sum = self.node(w, "Add", &[&from_input, &from_state])?;
                (self.node(w, if gating == "relu" { "Relu" } else { "Tanh" }, &[&sum])?, None)
            }
        };
        let low = rounded(w, &next, self.low, true)?;
        // An output of a body has a name of its own.
        let (next, output) = if is_sum { (next, low) } else { (low.clone(), self.node(w, "Identity", &[&low])?) };
        Ok([vec![next], c.into_iter().collect(), vec![output]].concat())
    }
}
