//! The nodes of a graph, written one after another, each in the precision that it has in the graph.

use super::{call::Call, message::Val, ops, writer::Writer};
use crate::{Dim, Graph, Kind, Node, Port};
use precast::{
    DType, Op, Tensor,
    error::{Error, Result},
    recording::written_with_others,
};

/// The values of the outputs of each node, as the model carries them.
pub(super) type Values = Vec<Vec<Val>>;

/// A graph that is written.
pub(super) struct Nodes<'a> {
    pub graph: &'a Graph,
    /// `true` to carry low values in float32, rounded by casts.
    pub explicit: bool,
    pub values: Values,
}

/// Puts the node, its cell and its op before an error.
pub(super) fn at(node: &Node, error: Error) -> Error {
    let cell = if node.cell.is_empty() { String::new() } else { format!(" of cell `{}`", node.cell) };
    error.context(format!("node `{}`{cell} ({})", node.name, node.op_name()))
}

/// Returns the dtype in which a model carries values of a dtype.
pub(super) fn carried(dtype: DType, explicit: bool) -> DType {
    if explicit { wide(dtype) } else { dtype }
}

/// Returns the dtype in which a low op is computed.
fn wide(dtype: DType) -> DType {
    if dtype.is_low() { DType::F32 } else { dtype }
}

impl Nodes<'_> {
    pub fn value(&self, port: Port) -> &Val {
        &self.values[port.node][port.port]
    }

    /// Writes an op, and returns its outputs as the model carries them.
    pub fn op(&self, writer: &mut Writer, node: &Node, op: Op) -> Result<Vec<Val>> {
        refuse(node, op)?;
        let read: Vec<Val> = node.inputs.iter().map(|&port| self.value(port).clone()).collect();
        if op == Op::Cast {
            return self.cast(writer, node, &read[0]).map(|x| vec![x]);
        }
        if let Some(x) = self.of_lstm(node, op) {
            return Ok(vec![x.clone()]);
        }
        let of_graph = |dtype: &DType| dtype.is_float();
        let inputs: Vec<DType> =
            node.inputs.iter().map(|&port| self.graph.output(port).dtype).filter(of_graph).collect();
        let first = node.outputs[0].dtype;
        let widest = || inputs.iter().copied().max_by_key(|dtype| (wide(*dtype) == DType::F64, !dtype.is_low()));
        let own = if first.is_float() { first } else { widest().unwrap_or(first) };
        writer.low = own.is_low().then_some(own);
        let mark = writer.mark();
        // One rounding is that of the op itself; a sequence of them would be another result.
        let alike = inputs.iter().all(|dtype| *dtype == own) || op == Op::BatchNorm;
        if own.is_low() && alike && !self.explicit {
            writer.roundings = 0;
            match self.emit(writer, node, op, read.clone(), own) {
                Ok(outputs) if writer.roundings <= 1 => return Ok(outputs),
                _ => writer.back_to(&mark),
            }
        }
        let dtype = inputs.iter().chain([&own]).map(|dtype| wide(*dtype));
        let dtype = dtype.reduce(|a, b| if a == DType::F64 { a } else { b }).unwrap_or(own);
        let read = read.iter().map(|x| if x.dtype.is_float() { writer.cast(x, dtype) } else { Ok(x.clone()) });
        let read = read.collect::<Result<Vec<Val>>>()?;
        writer.roundings = 0;
        let outputs = self.emit(writer, node, op, read, dtype)?;
        let rounds = writer.roundings > 0;
        let round = |(place, x): (usize, Val)| match node.outputs.get(place).unwrap_or(&node.outputs[0]).dtype {
            to if !to.is_float() || !x.dtype.is_float() => Ok(x),
            to if self.explicit && to.is_low() => rounded(writer, &x, to, rounds),
            to if x.dtype == to => Ok(x),
            to => writer.cast_anew(&x, to),
        };
        outputs.into_iter().enumerate().map(round).collect()
    }

    /// Writes the nodes of an op that computes in a dtype.
    fn emit(&self, writer: &mut Writer, node: &Node, op: Op, x: Vec<Val>, dtype: DType) -> Result<Vec<Val>> {
        let types = node.inputs.iter().map(|&port| self.graph.output(port)).collect();
        let is_zero = |port: &Port| op == Op::FusedRnn && is_zero(&self.graph.nodes()[port.node].kind);
        let zero = node.inputs.iter().map(is_zero).collect();
        let rounds_to = self.explicit.then_some(node.outputs[0].dtype).filter(|dtype| dtype.is_low());
        if let Some(emit) = ops::find(op) {
            let outputs = emit(&mut Call { writer, node, x: x.clone(), types, dtype, zero, rounds_to })?;
            if !outputs.is_empty() {
                return Ok(outputs);
            }
        }
        if dtype.is_low() {
            return Err(Error::unsupported("it is composed of several ops"));
        }
        self.written(writer, node, op, x, dtype)
    }

    /// Writes an op with the ops of which it is composed.
    fn written(&self, writer: &mut Writer, node: &Node, op: Op, x: Vec<Val>, dtype: DType) -> Result<Vec<Val>> {
        let wide = |port: &Port| {
            let mut of = self.graph.output(*port).clone();
            if of.dtype.is_float() {
                of.dtype = dtype;
            }
            of
        };
        let inputs: Vec<_> = node.inputs.iter().map(wide).collect();
        let formula = |batch: usize, x: &[Tensor]| match written_with_others(op, &node.attributes_at(batch), x) {
            Some(y) => y.map(|y| vec![y]),
            None => Err(Error::unsupported("ONNX has no counterpart of this op")),
        };
        let inner = Graph::trace_formula(self.graph.traced_batch(), &inputs, formula)?;
        let mut nodes = Nodes { graph: &inner, explicit: false, values: Vec::new() };
        let mut given = x.into_iter();
        for node in inner.nodes() {
            let values = match &node.kind {
                Kind::Input => vec![given.next().ok_or_else(|| Error::value("an input is missing"))?],
                Kind::Constant(x) => vec![constant(writer, x, &node.outputs[0].shape)?],
                Kind::StopGradient => vec![nodes.value(node.inputs[0]).clone()],
                Kind::Op(op) => nodes.op(writer, node, *op).map_err(|e| e.context(format!("its part {op}")))?,
                Kind::Parameter(_) => return Err(Error::value("a formula has no parameters")),
            };
            nodes.values.push(values);
        }
        writer.roundings += 2;
        Ok(inner.outputs().iter().map(|&port| nodes.value(port).clone()).collect())
    }

    /// Returns the outputs or the last state of an LSTM, for a reshaping of its part of the op's result.
    fn of_lstm(&self, node: &Node, op: Op) -> Option<&Val> {
        let before = |node: &Node| Some(&self.graph.nodes()[node.inputs.first()?.node]);
        let slice = before(node).filter(|slice| op == Op::Reshape && matches!(slice.kind, Kind::Op(Op::Slice)))?;
        let lstm = slice.inputs[0].node;
        if !matches!(self.graph.nodes()[lstm].kind, Kind::Op(Op::FusedRnn)) {
            return None;
        }
        // An LSTM has these two beside its result.
        let [_, outputs, last] = &self.values[lstm][..] else { return None };
        let inputs = &self.graph.nodes()[lstm].inputs;
        let (x, hh) = (&self.graph.output(*inputs.first()?).shape, &self.graph.output(*inputs.get(2)?).shape);
        match &node.outputs[0].shape[..] {
            [batch, time, hidden] if (batch, time, hidden) == (&x[0], &x[1], &hh[1]) => Some(outputs),
            [batch, hidden] if (batch, hidden) == (&x[0], &hh[1]) => Some(last),
            _ => None,
        }
    }

    fn cast(&self, writer: &mut Writer, node: &Node, x: &Val) -> Result<Val> {
        let (from, to) = (self.graph.output(node.inputs[0]).dtype, node.outputs[0].dtype);
        if !self.explicit || !(from.is_low() || to.is_low()) {
            return if x.dtype == to { Ok(x.clone()) } else { writer.cast_anew(x, to) };
        }
        match (from, to) {
            (_, to) if to.is_low() => rounded(writer, x, to, true),
            (_, to) => writer.cast(x, to),
        }
    }
}

/// Rounds a value to a low dtype by casts, and returns it in float32.
pub(super) fn rounded(writer: &mut Writer, x: &Val, low: DType, rounds: bool) -> Result<Val> {
    if !rounds {
        return writer.cast(x, DType::F32);
    }
    let low = writer.cast_anew(x, low)?;
    writer.cast_anew(&low, DType::F32)
}

/// Writes a constant. One number represents all elements of a constant that grows with the batch.
pub(super) fn constant(writer: &mut Writer, x: &Tensor, shape: &[Dim]) -> Result<Val> {
    let value = writer.constant(x.clone())?;
    if shape.iter().all(|len| len.each == 0) {
        return Ok(value);
    }
    let lengths = writer.lengths(shape)?;
    writer.node_of("Expand", value.dtype, &[&value, &lengths], &[])
}

fn is_zero(kind: &Kind) -> bool {
    matches!(kind, Kind::Constant(x) if x.dtype().is_float() && x.to_f64().iter().all(|x| x.to_bits() == 0))
}

/// Refuses what no file holds, and what belongs to training.
fn refuse(node: &Node, op: Op) -> Result<()> {
    match op {
        Op::Custom(_) => Err(Error::unsupported("it is a custom op, whose code no file holds")),
        Op::Dropout => Err(Error::unsupported(
            "it drops numbers at random, as in training; an export is of a graph in evaluation: call `eval`, and trace again",
        )),
        Op::BatchNorm if node.attributes.has("training") => Err(Error::unsupported(
            "it takes the statistics of its batch, as in training; an export is of a graph in evaluation: call `eval`, and \
             trace again",
        )),
        _ => Ok(()),
    }
}
