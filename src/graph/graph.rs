//! A recorded call: nodes in the order in which they ran, joined by edges.

use std::{collections::HashMap, fmt};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Port;
use crate::{
    DType, Op, Param, Tensor,
    catalogue::Attributes,
    cell::Params,
    error::{Error, Result, did_you_mean},
    tensor::recording::Again,
};

/// A length, or any whole number that follows from the number of examples: `each * batch + plus`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Dim {
    /// How much each example of the batch adds.
    pub each: i64,
    /// What does not depend on the batch.
    pub plus: i64,
}

impl Dim {
    /// A length that is the same for every batch.
    pub fn fixed(length: usize) -> Dim {
        Dim { each: 0, plus: length as i64 }
    }

    /// The number for a batch of so many examples.
    pub fn at(self, batch: usize) -> i64 {
        self.each.saturating_mul(batch as i64).saturating_add(self.plus)
    }

    /// The dimension that has two lengths for two batches of which the second has one example more.
    pub(super) fn between(batch: usize, first: i64, second: i64) -> Dim {
        let each = second - first;
        Dim { each, plus: first - each * batch as i64 }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.each, self.plus) {
            (0, plus) => write!(f, "{plus}"),
            (1, 0) => f.write_str("b"),
            (each, 0) => write!(f, "{each}b"),
            (1, plus) => write!(f, "b{plus:+}"),
            (each, plus) => write!(f, "{each}b{plus:+}"),
        }
    }
}

impl fmt::Debug for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What is known of an output before the graph runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// The dtype.
    pub dtype: DType,
    /// The lengths of the axes.
    pub shape: Vec<Dim>,
}

/// What a node is.
#[derive(Clone)]
#[non_exhaustive]
pub enum Kind {
    /// A tensor that the caller hands in.
    Input,
    /// A parameter or a buffer of the traced network, under the path it has there. The handle is the network's own.
    Parameter(Param),
    /// A tensor that is the same in every run. One element stands for all where the shape depends on the batch.
    Constant(Tensor),
    /// The value of its input, through which no gradient flows.
    StopGradient,
    /// An op.
    Op(Op),
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Input => f.write_str("Input"),
            Kind::Parameter(param) => param.fmt(f),
            Kind::Constant(value) => write!(f, "Constant({} {:?})", value.dtype(), value.shape()),
            Kind::StopGradient => f.write_str("StopGradient"),
            Kind::Op(op) => f.write_str(op.name()),
        }
    }
}

/// A node.
#[derive(Clone)]
#[non_exhaustive]
pub struct Node {
    /// Its name: that of its op with a number, the path of a parameter. No two nodes have one name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// What its op is told besides tensors. A whole number that depends on the batch is `{"each": ..., "plus": ...}`.
    pub attributes: Attributes,
    /// Path of the cell in which it ran; empty for the root, and for what ran in no cell.
    pub cell: String,
    /// The outputs that it reads.
    pub inputs: Vec<Port>,
    /// What it gives.
    pub outputs: Vec<Output>,
    /// Of a dropout: how many numbers a run takes from its seed, so that the next run drops other elements.
    pub draws: u64,
    /// How a custom op runs.
    pub(super) again: Option<Again>,
}

impl Node {
    /// The name of its op, or of what it is: `Conv2d`, `Input`.
    pub fn op_name(&self) -> &'static str {
        match &self.kind {
            Kind::Input => "Input",
            Kind::Parameter(_) => "Parameter",
            Kind::Constant(_) => "Constant",
            Kind::StopGradient => "StopGradient",
            Kind::Op(op) => op.name(),
        }
    }

    /// Whether it is an op.
    pub fn is_op(&self) -> bool {
        matches!(self.kind, Kind::Op(_))
    }

    /// Whether it casts.
    pub fn is_cast(&self) -> bool {
        matches!(self.kind, Kind::Op(Op::Cast))
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {:?}({}) <- {:?}", self.name, self.kind, self.attributes, self.inputs)
    }
}

/// A buffer that a run in training moves, as a batch norm moves its running statistics.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Update {
    /// The node of the buffer.
    pub buffer: usize,
    /// The statistics of the batch.
    pub by: Port,
    pub momentum: f64,
    /// Over how many numbers a variance was taken.
    pub count: Option<Dim>,
}

/// One recorded call of a network or a function, which can be run again, drawn, written to a file, painted and rewritten.
///
/// [`trace`](Graph::trace) makes one. Every node reads only nodes before it. The parameters are handles of those of the
/// traced network: training the graph trains the network.
///
/// The number of examples is a symbol where it can be: a second call with one example more tells which lengths depend on it.
///
/// ```
/// use precast::{graph::Graph, layers::{Dense, Rng}, prelude::*};
/// let net = Child::new(Dense::new(3, 2, &mut Rng::seed(1)));
/// let x = Tensor::ones(&[4, 3], DType::F32);
/// let graph = Graph::trace(&net, &[x.clone()])?;
/// assert_eq!(graph.run(&[x.clone()])?[0].to_f64(), net.call(&x)?.to_f64());
/// assert_eq!(graph.run(&[Tensor::ones(&[7, 3], DType::F32)])?[0].shape(), [7, 2]);
/// println!("{graph}");
/// # Ok::<(), precast::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Graph {
    pub(super) nodes: Vec<Node>,
    pub(super) inputs: Vec<usize>,
    pub(super) outputs: Vec<Port>,
    pub(super) updates: Vec<Update>,
    /// The number of examples when it was traced.
    pub(super) batch: usize,
    /// Why no other number of examples can run; `None` where any can.
    pub(super) only_batch: Option<String>,
}

impl Graph {
    /// The nodes; each reads only those before it.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The nodes of the inputs, in the order in which [`run`](Graph::run) takes them.
    pub fn inputs(&self) -> &[usize] {
        &self.inputs
    }

    /// The outputs of nodes that a run returns.
    pub fn outputs(&self) -> &[Port] {
        &self.outputs
    }

    /// Why only a batch of the traced size can run; `None` where any can.
    pub fn only_batch(&self) -> Option<&str> {
        self.only_batch.as_deref()
    }

    /// How many nodes cast.
    pub fn casts(&self) -> usize {
        self.nodes.iter().filter(|node| node.is_cast()).count()
    }

    /// The parameters and buffers with their paths, in the order in which they are read first.
    pub fn named_params(&self) -> Vec<(String, Param)> {
        let param = |node: &Node| match &node.kind {
            Kind::Parameter(param) => Some((node.name.clone(), param.clone())),
            _ => None,
        };
        self.nodes.iter().filter_map(param).collect()
    }

    /// The parameters that are trained, with their paths.
    pub fn params(&self) -> Params {
        self.named_params().into_iter().collect()
    }

    /// The place of a node in [`nodes`](Graph::nodes).
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when no node has that name, with the nearest one.
    pub fn node(&self, name: &str) -> Result<usize> {
        self.nodes.iter().position(|node| node.name == name).ok_or_else(|| {
            let near = did_you_mean(name, self.nodes.iter().map(|node| &node.name[..]));
            Error::value(format!("no node is called `{name}`{near}"))
        })
    }

    /// What is known of an output.
    pub fn output(&self, port: Port) -> &Output {
        &self.nodes[port.node].outputs[port.port]
    }

    /// `relu_1`, and of a node with several outputs `topk_1:1`.
    pub(super) fn port_name(&self, port: Port) -> String {
        let node = &self.nodes[port.node];
        match node.outputs.len() {
            1 => node.name.clone(),
            _ => format!("{}:{}", node.name, port.port),
        }
    }
}

/// `f32 [b, 3]`
pub(super) fn described(output: &Output) -> String {
    format!("{} {:?}", output.dtype, output.shape)
}

impl fmt::Display for Graph {
    /// A line for each node: its name, what it gives, the op with what it reads and is told, and the cell.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows = Vec::new();
        for node in &self.nodes {
            let read = node.inputs.iter().map(|&port| self.port_name(port));
            let told = node.attributes.iter().map(|(name, value)| format!("{name}: {}", shown(value)));
            let arguments: Vec<String> = read.chain(told).collect();
            let outputs: Vec<String> = node.outputs.iter().map(described).collect();
            let call = match node.kind {
                Kind::Input | Kind::Parameter(_) | Kind::Constant(_) => node.op_name().to_lowercase(),
                _ => format!("{}({})", node.op_name(), arguments.join(", ")),
            };
            rows.push([node.name.clone(), outputs.join(", "), call, node.cell.clone()]);
        }
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths = [width(0), width(1), width(2)];
        for [name, outputs, call, cell] in &rows {
            let line = format!(
                "{name:a$}  {outputs:b$}  {call:c$}  {cell}",
                a = widths[0],
                b = widths[1],
                c = if cell.is_empty() { 0 } else { widths[2] }
            );
            writeln!(f, "{}", line.trim_end())?;
        }
        let outputs: Vec<String> = self.outputs.iter().map(|&port| self.port_name(port)).collect();
        writeln!(f, "returns {}", outputs.join(", "))?;
        match &self.only_batch {
            Some(why) => writeln!(f, "runs batches of {} only: {why}", self.batch),
            None => Ok(()),
        }
    }
}

/// A value of an attribute, numbers that depend on the batch as such.
pub(super) fn shown(value: &Value) -> String {
    match (dim_of(value), value) {
        (Some(dim), _) => dim.to_string(),
        (None, Value::Array(items)) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(", ")),
        (None, Value::Object(fields)) => {
            let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}: {}", shown(value))).collect();
            format!("{{{}}}", fields.join(", "))
        }
        (None, Value::String(word)) => word.clone(),
        (None, value) => value.to_string(),
    }
}

/// A number that depends on the batch, as attributes have it.
pub(super) fn dim_value(dim: Dim) -> Value {
    serde_json::json!({"each": dim.each, "plus": dim.plus})
}

/// The other way round.
pub(super) fn dim_of(value: &Value) -> Option<Dim> {
    let fields = value.as_object().filter(|fields| fields.len() == 2)?;
    Some(Dim { each: fields.get("each")?.as_i64()?, plus: fields.get("plus")?.as_i64()? })
}

/// Whether a number in an attribute value depends on the batch.
pub(super) fn depends_on_batch(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(depends_on_batch),
        Value::Object(fields) => dim_of(value).is_some() || fields.values().any(depends_on_batch),
        _ => false,
    }
}

/// An attribute value for a batch of so many examples.
pub(super) fn value_at(value: &Value, batch: usize) -> Value {
    if let Some(dim) = dim_of(value) {
        return dim.at(batch).into();
    }
    match value {
        Value::Array(items) => items.iter().map(|item| value_at(item, batch)).collect(),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(name, value)| (name.clone(), value_at(value, batch))).collect())
        }
        value => value.clone(),
    }
}

/// Gives every node a name that no other has.
#[derive(Default)]
pub(super) struct Names(HashMap<String, usize>);

impl Names {
    /// The name itself, or with the first number that is free.
    pub fn unique(&mut self, name: &str) -> String {
        match self.0.get(name) {
            None => {
                self.0.insert(name.into(), 1);
                name.into()
            }
            Some(_) => self.numbered(name),
        }
    }

    /// The name with the first number that is free: `relu_1`.
    pub fn numbered(&mut self, name: &str) -> String {
        let mut next = self.0.get(name).copied().unwrap_or(1);
        let found = loop {
            let tried = format!("{name}_{next}");
            next += 1;
            if !self.0.contains_key(&tried) {
                break tried;
            }
        };
        self.0.insert(name.into(), next);
        self.0.insert(found.clone(), 1);
        found
    }
}
