//! Recording a call as a [`Graph`].

use std::collections::HashMap;

use serde_json::Value;

use super::graph::{Dim, Graph, Kind, Names, Node, Output, Port, Update, dim_value};
use precast::{
    Param, Tensor,
    catalogue::Attributes,
    cell::{AsCell, Child, Params},
    enable_grad,
    error::{Error, Result},
    precision::{self, Frame},
    recording::{self, Recorded, method_of},
};

impl Graph {
    /// Records one call of a network, with adapters and casting regions recorded as casts.
    ///
    /// The network is called twice, the second time with one example more, a copy of the first one. Side effects of the
    /// calls, such as updated running statistics of a batch norm, are reverted. If the second call fails or differs,
    /// the graph only runs batches of the traced size, and [`only_batch`](Graph::only_batch) gives the reason.
    ///
    /// # Errors
    /// Those of the network; [`ErrorKind::Unsupported`](precast::ErrorKind::Unsupported) when it reads the value of a
    /// tensor, as data-dependent control flow does, with the op that produced it and the cell that reads it.
    pub fn trace<C: ?Sized + AsCell>(net: &Child<C>, inputs: &[Tensor]) -> Result<Graph> {
        Graph::trace_with(net, inputs, |net, inputs| net.call_many(inputs))
    }

    /// Records a function that calls the network, for example with its loss.
    ///
    /// # Errors
    /// As [`trace`](Graph::trace).
    pub fn trace_with<C: ?Sized + AsCell>(
        net: &Child<C>,
        inputs: &[Tensor],
        f: impl Fn(&Child<C>, &[Tensor]) -> Result<Vec<Tensor>>,
    ) -> Result<Graph> {
        let mut paths = HashMap::new();
        net.walk(&mut |entry| _ = paths.insert(entry.slot.id, entry.path.to_string()));
        traced(&net.named_params(), &paths, inputs, |inputs| f(net, inputs))
    }

    /// Records a function of tensors and parameters.
    ///
    /// # Errors
    /// As [`trace`](Graph::trace).
    ///
    /// ```
    /// use precast::prelude::*;
    /// use precast_graph::Graph;
    /// let graph = Graph::trace_fn(&Default::default(), &[Tensor::ones(&[2, 3], DType::F32)], |x| {
    ///     Ok(vec![x[0].relu()?.sum(&[-1], false)?])
    /// })?;
    /// assert_eq!(graph.nodes().len(), 3);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn trace_fn(params: &Params, inputs: &[Tensor], f: impl Fn(&[Tensor]) -> Result<Vec<Tensor>>) -> Result<Graph> {
        let params: Vec<(String, Param)> = params.iter().map(|(path, param)| (path.into(), param.clone())).collect();
        traced(&params, &HashMap::new(), inputs, f)
    }

    /// Records a formula of inputs with these types. `f` gets the batch size, and tensors of zeros.
    pub(crate) fn trace_formula(
        batch: usize,
        inputs: &[Output],
        f: impl Fn(usize, &[Tensor]) -> Result<Vec<Tensor>>,
    ) -> Result<Graph> {
        let _off = precision::enter(Frame::Off);
        let once = |batch: usize| {
            let length =
                |len: &Dim| usize::try_from(len.at(batch)).map_err(|_| Error::shape(format!("a length of {len}")));
            let zeros =
                |of: &Output| Ok(Tensor::zeros(&of.shape.iter().map(length).collect::<Result<Vec<_>>>()?, of.dtype));
            recorded(&[], &HashMap::new(), &inputs.iter().map(zeros).collect::<Result<Vec<_>>>()?, |x| f(batch, x))
        };
        let graph = Graph { batch, ..once(batch)? };
        match inputs.iter().any(|of| of.shape.iter().any(|len| len.each != 0)) {
            true => with_symbols(&graph, &once(batch + 1)?).map_err(Error::unsupported),
            false => Ok(graph),
        }
    }
}

/// Records one call.
fn recorded(
    params: &[(String, Param)],
    paths: &HashMap<usize, String>,
    inputs: &[Tensor],
    f: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>,
) -> Result<Graph> {
    // An input that is passed twice, or is a parameter, becomes a separate input.
    let inputs: Vec<Tensor> = inputs.iter().map(|x| x.with_own_identity()).collect();
    let builder = Builder::new(params, paths, &inputs);
    let (outputs, recorded) = recording::record(|| enable_grad(|| f(&inputs)));
    builder.graph(&outputs?, recorded)
}

fn traced(
    params: &[(String, Param)],
    paths: &HashMap<usize, String>,
    inputs: &[Tensor],
    f: impl Fn(&[Tensor]) -> Result<Vec<Tensor>>,
) -> Result<Graph> {
    let once = |inputs: &[Tensor]| recorded(params, paths, inputs, &f);
    let mut graph = once(inputs)?;
    let Some(batch) = inputs.iter().find_map(|x| x.shape().first().copied()) else {
        return Ok(graph);
    };
    graph.batch = batch;
    let more = || {
        if batch == 0 {
            return Err("the traced batch is empty".to_string());
        }
        let larger: Result<Vec<Tensor>> = inputs.iter().map(|x| one_more(x, batch)).collect();
        let larger = larger.and_then(|inputs| once(&inputs)).map_err(|e| e.to_string())?;
        with_symbols(&graph, &larger)
    };
    match more() {
        Ok(symbolic) => Ok(symbolic),
        Err(why) => Ok(Graph { only_batch: Some(why), ..graph }),
    }
}

/// Returns the input with one example more, if it has `batch` examples.
fn one_more(x: &Tensor, batch: usize) -> Result<Tensor> {
    if x.shape().first() != Some(&batch) {
        return Ok(x.clone());
    }
    let _off = precision::enter(Frame::Off);
    let longer = Tensor::concat(&[x, &x.slice(0, 0..1)?], 0)?.detach();
    Ok(if x.is_tracked() { longer.requires_grad() } else { longer })
}

struct Builder<'a> {
    params: HashMap<usize, (&'a str, &'a Param)>,
    /// Values of parameters, kept alive so that no other tensor takes their identity.
    values: Vec<Tensor>,
    paths: &'a HashMap<usize, String>,
    nodes: Vec<Node>,
    names: Names,
    /// The origin of each tensor, by its identity.
    from: HashMap<usize, Port>,
    /// `true` for an output that gradients reach when the whole graph is on the tape.
    tracked: HashMap<Port, bool>,
    /// Nodes that stop gradients, by input.
    stopped: HashMap<Port, Port>,
    inputs: Vec<usize>,
    /// `true` when a trained tensor was read that is neither an input nor a parameter.
    unknown_leaf: bool,
}

impl<'a> Builder<'a> {
    fn new(params: &'a [(String, Param)], paths: &'a HashMap<usize, String>, inputs: &[Tensor]) -> Self {
        let values: Vec<Tensor> = params.iter().map(|(_, param)| param.tensor()).collect();
        let mut by_value = HashMap::new();
        for (value, (path, param)) in values.iter().zip(params) {
            // A tied parameter is listed under its first path.
            by_value.entry(value.identity()).or_insert((&path[..], param));
        }
        let mut builder = Builder {
            params: by_value,
            values,
            paths,
            nodes: vec![],
            names: Names::default(),
            from: HashMap::new(),
            tracked: HashMap::new(),
            stopped: HashMap::new(),
            inputs: vec![],
            unknown_leaf: false,
        };
        for x in inputs {
            let name = match inputs.len() {
                1 => builder.names.unique("input"),
                _ => builder.names.numbered("input"),
            };
            let port = builder.add(name, Kind::Input, "", std::slice::from_ref(x));
            builder.tracked.insert(port, x.is_tracked());
            builder.inputs.push(port.node);
        }
        builder
    }

    /// Adds a node without inputs, and returns its first output.
    fn add(&mut self, name: String, kind: Kind, cell: &str, outputs: &[Tensor]) -> Port {
        let node = self.nodes.len();
        for (port, x) in outputs.iter().enumerate() {
            self.from.insert(x.identity(), Port { node, port });
        }
        let known = |x: &Tensor| Output {
            dtype: x.dtype(),
            shape: x.shape().iter().map(|&length| Dim::fixed(length)).collect(),
        };
        self.nodes.push(Node {
            name,
            kind,
            attributes: Attributes::default(),
            cell: cell.into(),
            inputs: vec![],
            outputs: outputs.iter().map(known).collect(),
            draws: 0,
            again: None,
        });
        Port { node, port: 0 }
    }

    fn cell(&self, slot: Option<usize>) -> String {
        slot.and_then(|slot| self.paths.get(&slot)).cloned().unwrap_or_default()
    }

    /// Returns the port of a tensor; a parameter or a constant is added when it first occurs.
    fn port_of(&mut self, x: &Tensor, cell: &str) -> Port {
        let port = match (self.from.get(&x.identity()), self.params.get(&x.identity())) {
            (Some(port), _) => *port,
            (None, Some(&(path, param))) => {
                let name = self.names.unique(path);
                let holder = path.rsplit_once('.').map_or("", |(holder, _)| holder);
                let port = self.add(name, Kind::Parameter(param.clone()), holder, std::slice::from_ref(x));
                self.tracked.insert(port, param.is_trained());
                port
            }
            (None, None) => {
                self.unknown_leaf |= x.is_tracked();
                let name = self.names.numbered("constant");
                let port = self.add(name, Kind::Constant(x.detach()), cell, std::slice::from_ref(x));
                self.tracked.insert(port, false);
                port
            }
        };
        if self.tracked[&port] && !x.is_tracked() { self.stop(port, cell) } else { port }
    }

    /// Returns the port of a buffer whose value the call has changed.
    fn buffer(&mut self, buffer: &Param) -> Port {
        let known = self.params.iter().find(|(_, (_, param))| param.is_same(buffer));
        let before = known.and_then(|(identity, _)| self.values.iter().find(|value| value.identity() == *identity));
        let value = before.cloned().unwrap_or_else(|| buffer.tensor());
        self.port_of(&value, "")
    }

    /// Returns a port with the same value and gradients stopped.
    fn stop(&mut self, port: Port, cell: &str) -> Port {
        if let Some(stopped) = self.stopped.get(&port) {
            return *stopped;
        }
        let name = self.names.numbered("stop_gradient");
        let output = self.nodes[port.node].outputs[port.port].clone();
        let stopped = self.add(name, Kind::StopGradient, cell, &[]);
        let node = &mut self.nodes[stopped.node];
        (node.inputs, node.outputs) = (vec![port], vec![output]);
        self.tracked.insert(stopped, false);
        self.stopped.insert(port, stopped);
        stopped
    }

    fn graph(mut self, outputs: &[Tensor], recorded: Recorded) -> Result<Graph> {
        let mut streams: HashMap<usize, u64> = HashMap::new();
        let drawing = recorded.calls.iter().filter_map(|call| call.stream);
        drawing.for_each(|stream| *streams.entry(stream).or_default() += 1);
        for call in &recorded.calls {
            let cell = self.cell(call.slot);
            if call.operands.is_some() {
                return Err(Error::unsupported(format!(
                    "the operands of {} in cell `{cell}` are quantized, and a graph has no such products; undo the plan, or set \
                     `operands: none`",
                    call.op
                )));
            }
            let inputs: Vec<Port> = call.inputs.iter().map(|x| self.port_of(x, &cell)).collect();
            let name = self.names.numbered(&method_of(call.op).to_lowercase());
            let tracked = inputs.iter().any(|port| self.tracked[port]);
            let port = self.add(name, Kind::Op(call.op), &cell, &call.outputs);
            let node = &mut self.nodes[port.node];
            (node.inputs, node.attributes) = (inputs, call.attributes.clone());
            node.draws = call.stream.map_or(0, |stream| streams[&stream]);
            node.again = call.again.clone();
            for (i, output) in call.outputs.iter().enumerate() {
                // Further outputs, such as statistics, are not on the tape.
                let tracked = tracked && i == 0 && output.dtype().is_float();
                self.tracked.insert(Port { node: port.node, port: i }, tracked);
            }
        }
        if let Some((x, slot)) = recorded.read.iter().find(|(x, _)| self.depends_on_inputs(x)) {
            let made = self.nodes[self.from[&x.identity()].node].name.clone();
            let cell = self.cell(*slot);
            let place = if cell.is_empty() { String::new() } else { format!(" in cell `{cell}`") };
            return Err(Error::unsupported(format!(
                "the code{place} reads the value of `{made}`, and a graph has none before it runs; choose with ops such as \
                 `select`, or leave this part out of the graph"
            )));
        }
        let updates = recorded.blends.iter().map(|blend| {
            let buffer = self.buffer(&blend.buffer).node;
            let count = blend.count.map(Dim::fixed);
            Update { buffer, by: self.from[&blend.batch.identity()], momentum: blend.momentum, count }
        });
        let updates = updates.collect();
        let outputs = outputs.iter().map(|x| self.port_of(x, "")).collect();
        if self.unknown_leaf {
            return Err(Error::value(
                "the code reads a parameter, or a tensor that requires a gradient, which the graph does not know; hand it in \
                 as an input, or among the parameters",
            ));
        }
        let (nodes, inputs) = (self.nodes, self.inputs);
        Ok(Graph { nodes, inputs, outputs, updates, batch: 0, only_batch: None })
    }

    /// Returns whether a tensor is an input, or computed from one or from a parameter.
    fn depends_on_inputs(&self, x: &Tensor) -> bool {
        let Some(port) = self.from.get(&x.identity()) else { return false };
        let mut pending = vec![port.node];
        let mut seen = std::collections::HashSet::new();
        while let Some(node) = pending.pop() {
            if matches!(self.nodes[node].kind, Kind::Input | Kind::Parameter(_)) {
                return true;
            }
            if seen.insert(node) {
                pending.extend(self.nodes[node].inputs.iter().map(|port| port.node));
            }
        }
        false
    }
}

/// Returns the graph of two calls, the second with one example more: numbers that differ depend on the batch size.
fn with_symbols(graph: &Graph, larger: &Graph) -> Result<Graph, String> {
    if graph.nodes.len() != larger.nodes.len() || graph.outputs != larger.outputs {
        return Err(format!(
            "a batch of one example more runs {} nodes, this one {}",
            larger.nodes.len(),
            graph.nodes.len()
        ));
    }
    let mut merged = graph.clone();
    for (node, other) in merged.nodes.iter_mut().zip(&larger.nodes) {
        merge(node, other, graph.batch).map_err(|why| format!("`{}` {why}", node.name))?;
    }
    for (update, other) in merged.updates.iter_mut().zip(&larger.updates) {
        if let (Some(count), Some(other)) = (&mut update.count, other.count) {
            *count = Dim::between(graph.batch, count.plus, other.plus);
        }
    }
    Ok(merged)
}

fn merge(node: &mut Node, other: &Node, batch: usize) -> Result<(), String> {
    let same = node.name == other.name && node.inputs == other.inputs && node.outputs.len() == other.outputs.len();
    if !same {
        return Err(format!("is `{}` in a batch of one example more", other.name));
    }
    for (output, other) in node.outputs.iter_mut().zip(&other.outputs) {
        if output.dtype != other.dtype || output.shape.len() != other.shape.len() {
            return Err("gives another dtype or rank in a batch of one example more".into());
        }
        for (dim, other) in output.shape.iter_mut().zip(&other.shape) {
            *dim = Dim::between(batch, dim.plus, other.plus);
        }
    }
    if let (Kind::Constant(value), Kind::Constant(other)) = (&mut node.kind, &other.kind) {
        let (a, b) = (value.to_f64(), other.to_f64());
        let bits = |x: &f64| x.to_bits();
        if value.shape() == other.shape() {
            if !a.iter().map(bits).eq(b.iter().map(bits)) {
                return Err("is a constant with other numbers in a batch of one example more".into());
            }
        } else {
            let first = a.first().or(b.first()).copied().unwrap_or(0.0);
            if a.iter().chain(&b).any(|x| bits(x) != bits(&first)) {
                return Err("is a constant that grows with the batch and is not the same number everywhere".into());
            }
            *value = Tensor::scalar(first, value.dtype());
        }
    }
    let names: Vec<&str> = other.attributes.iter().map(|(name, _)| name).collect();
    if !node.attributes.iter().map(|(name, _)| name).eq(names) {
        return Err("has other attributes in a batch of one example more".into());
    }
    for ((name, value), (_, other)) in node.attributes.iter_mut().zip(other.attributes.iter()) {
        *value = merged_value(value, other, batch)
            .ok_or_else(|| format!("has the attribute `{name}` {value}, and {other} in a batch of one example more"))?;
    }
    Ok(())
}

fn merged_value(a: &Value, b: &Value, batch: usize) -> Option<Value> {
    match (a, b) {
        (a, b) if a == b => Some(a.clone()),
        (Value::Number(a), Value::Number(b)) => Some(dim_value(Dim::between(batch, a.as_i64()?, b.as_i64()?))),
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).map(|(a, b)| merged_value(a, b, batch)).collect()
        }
        (Value::Object(a), Value::Object(b)) if a.len() == b.len() => {
            a.iter().map(|(name, a)| Some((name.clone(), merged_value(a, b.get(name)?, batch)?))).collect()
        }
        _ => None,
    }
}
