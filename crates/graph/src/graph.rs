//! A recorded call: nodes in execution order, joined by edges.

use std::{collections::HashMap, fmt};

use precast_base::names::did_you_mean;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use precast::{
    DType, Op, Param, Tensor,
    catalogue::Attributes,
    cell::Params,
    error::{Error, Result},
    recording::Again,
};

/// A length, or any integer that depends linearly on the number of examples: `each * batch + plus`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Dim {
    /// The increment per example of the batch.
    pub each: i64,
    /// The part independent of the batch.
    pub plus: i64,
}

impl Dim {
    /// Creates a length that is the same for every batch.
    pub fn fixed(length: usize) -> Dim {
        Dim { each: 0, plus: length as i64 }
    }

    /// Returns the number for a given batch size.
    pub fn at(self, batch: usize) -> i64 {
        self.each.saturating_mul(batch as i64).saturating_add(self.plus)
    }

    /// Returns the dimension with these two lengths, given two batches, the second with one example more.
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

/// The static type of an output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// The dtype.
    pub dtype: DType,
    /// The lengths of the axes.
    pub shape: Vec<Dim>,
}

/// The kind of a node.
#[derive(Clone)]
#[non_exhaustive]
pub enum Kind {
    /// A tensor passed by the caller.
    Input,
    /// A parameter or a buffer of the traced network, under its path there. The handle is shared with the network.
    Parameter(Param),
    /// A tensor that is the same in every run. If its shape depends on the batch, one element represents all.
    Constant(Tensor),
    /// The value of its input, with gradients stopped.
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

/// An output or an input of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Port {
    /// The index of the node in its graph.
    pub node: usize,
    /// The index of the output or input.
    pub port: usize,
}

/// A node.
#[derive(Clone)]
#[non_exhaustive]
pub struct Node {
    /// Its unique name: that of its op with a number, or the path of a parameter.
    pub name: String,
    /// The kind of node.
    pub kind: Kind,
    /// The attributes of its op. An integer that depends on the batch is `{"each": ..., "plus": ...}`.
    pub attributes: Attributes,
    /// Path of the cell in which it ran; empty for the root, and for a node outside every cell.
    pub cell: String,
    /// The outputs that it reads.
    pub inputs: Vec<Port>,
    /// Its outputs.
    pub outputs: Vec<Output>,
    /// For a dropout: the count of numbers that a run draws from its seed, so that the next run drops other elements.
    pub draws: u64,
    /// The code that runs a custom op.
    pub(super) again: Option<Again>,
}

impl Node {
    /// Returns the name of its op, or its kind of node: `Conv2d`, `Input`.
    pub fn op_name(&self) -> &'static str {
        match &self.kind {
            Kind::Input => "Input",
            Kind::Parameter(_) => "Parameter",
            Kind::Constant(_) => "Constant",
            Kind::StopGradient => "StopGradient",
            Kind::Op(op) => op.name(),
        }
    }

    /// Returns whether it is an op.
    pub fn is_op(&self) -> bool {
        matches!(self.kind, Kind::Op(_))
    }

    /// Returns the attributes for a given batch size.
    pub(crate) fn attributes_at(&self, batch: usize) -> Attributes {
        let mut attributes = self.attributes.clone();
        attributes.iter_mut().for_each(|(_, value)| *value = value_at(value, batch));
        attributes
    }

    /// Returns whether it casts.
    pub fn is_cast(&self) -> bool {
        matches!(self.kind, Kind::Op(Op::Cast))
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {:?}({}) <- {:?}", self.name, self.kind, self.attributes, self.inputs)
    }
}

/// A buffer that a run in training updates, such as the running statistics of a batch norm.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Update {
    /// The node of the buffer.
    pub buffer: usize,
    /// The statistics of the batch.
    pub by: Port,
    pub momentum: f64,
    /// The number of elements over which a variance was computed.
    pub count: Option<Dim>,
}

/// One recorded call of a network or a function, which can be run again, drawn, written to a file, painted and
/// rewritten.
///
/// Created by [`trace`](Graph::trace). Every node reads only nodes before it. The parameters are handles to those of
/// the traced network: training the graph trains the network.
///
/// The batch size is symbolic where possible: a second call with one example more shows which lengths depend on it.
///
/// ```
/// use precast::{layers::{Dense, Rng}, prelude::*};
/// use precast_graph::Graph;
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
    /// The batch size with which it was traced.
    pub(super) batch: usize,
    /// The reason why no other batch size can run; `None` if any can.
    pub(super) only_batch: Option<String>,
}

impl Graph {
    /// Returns the nodes; each reads only nodes before it.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the nodes of the inputs, in the order in which [`run`](Graph::run) takes them.
    pub fn inputs(&self) -> &[usize] {
        &self.inputs
    }

    /// Returns the outputs of nodes that a run returns.
    pub fn outputs(&self) -> &[Port] {
        &self.outputs
    }

    /// Returns the reason why only a batch of the traced size can run; `None` if any can.
    pub fn only_batch(&self) -> Option<&str> {
        self.only_batch.as_deref()
    }

    /// Returns the batch size with which it was traced.
    pub(crate) fn traced_batch(&self) -> usize {
        self.batch
    }

    /// Returns the names of the buffers that a run updates.
    pub(crate) fn updated(&self) -> impl Iterator<Item = &str> {
        self.updates.iter().map(|update| &self.nodes[update.buffer].name[..])
    }

    /// Returns the number of casts.
    pub fn casts(&self) -> usize {
        self.nodes.iter().filter(|node| node.is_cast()).count()
    }

    /// Returns the parameters and buffers with their paths, in the order in which they are first read.
    pub fn named_params(&self) -> Vec<(String, Param)> {
        let param = |node: &Node| match &node.kind {
            Kind::Parameter(param) => Some((node.name.clone(), param.clone())),
            _ => None,
        };
        self.nodes.iter().filter_map(param).collect()
    }

    /// Returns the trained parameters with their paths.
    pub fn params(&self) -> Params {
        self.named_params().into_iter().collect()
    }

    /// Returns the index of a node in [`nodes`](Graph::nodes).
    ///
    /// # Errors
    /// [`ErrorKind::Value`](precast::ErrorKind::Value) when no node has that name, with the nearest one.
    pub fn node(&self, name: &str) -> Result<usize> {
        self.nodes.iter().position(|node| node.name == name).ok_or_else(|| {
            let near = did_you_mean(name, self.nodes.iter().map(|node| &node.name[..]));
            Error::value(format!("no node is called `{name}`{near}"))
        })
    }

    /// Returns the static type of an output.
    pub fn output(&self, port: Port) -> &Output {
        &self.nodes[port.node].outputs[port.port]
    }

    /// Formats a port as `relu_1`, or `topk_1:1` for a node with several outputs.
    pub(super) fn port_name(&self, port: Port) -> String {
        let node = &self.nodes[port.node];
        match node.outputs.len() {
            1 => node.name.clone(),
            _ => format!("{}:{}", node.name, port.port),
        }
    }
}

/// Formats an output as `f32 [b, 3]`.
pub(super) fn described(output: &Output) -> String {
    format!("{} {:?}", output.dtype, output.shape)
}

impl fmt::Display for Graph {
    /// Writes a line per node: its name, its outputs, the op with its inputs and attributes, and the cell.
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

/// Formats an attribute value, showing the dependence of numbers on the batch.
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

/// Encodes a number that depends on the batch as an attribute value.
pub(super) fn dim_value(dim: Dim) -> Value {
    serde_json::json!({"each": dim.each, "plus": dim.plus})
}

/// Decodes [`dim_value`].
pub(crate) fn dim_of(value: &Value) -> Option<Dim> {
    let fields = value.as_object().filter(|fields| fields.len() == 2)?;
    Some(Dim { each: fields.get("each")?.as_i64()?, plus: fields.get("plus")?.as_i64()? })
}

/// Returns whether a number in an attribute value depends on the batch.
pub(super) fn depends_on_batch(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(depends_on_batch),
        Value::Object(fields) => dim_of(value).is_some() || fields.values().any(depends_on_batch),
        _ => false,
    }
}

/// Returns an attribute value for a given batch size.
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

/// A source of unique node names.
#[derive(Default)]
pub(super) struct Names(HashMap<String, usize>);

impl Names {
    /// Returns the name, with the first free number appended if it is taken.
    pub fn unique(&mut self, name: &str) -> String {
        match self.0.get(name) {
            None => {
                self.0.insert(name.into(), 1);
                name.into()
            }
            Some(_) => self.numbered(name),
        }
    }

    /// Returns the name with the first free number: `relu_1`.
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
