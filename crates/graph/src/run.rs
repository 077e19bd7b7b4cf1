//! Forward runs of a graph; the tape does the rest.

use super::graph::{Graph, Kind, Node, Port, depends_on_batch, described};
use precast::{
    Tensor,
    error::{Error, Result},
    precision::{self, Frame},
    recording::run_recorded,
};

impl Graph {
    /// Runs the graph. Gradients flow back as in the traced code, and every number is bit-identical.
    ///
    /// A graph determines its own casts; regions do not change it.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](precast::ErrorKind::Shape) and [`ErrorKind::DType`](precast::ErrorKind::DType) for inputs that
    /// differ from the traced ones in more than the batch size; those of its ops, with the node and its cell.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        self.run_nth(0, inputs)
    }

    /// Runs the graph for the `n`-th time, as [`run`](Graph::run) does: a dropout drops the same elements as the traced
    /// layer in its `n`-th call after the traced one.
    ///
    /// # Errors
    /// As [`run`](Graph::run).
    pub fn run_nth(&self, n: u64, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let batch = self.check(inputs)?;
        if self.updates.iter().filter_map(|update| update.count).any(|count| count.at(batch) < 2) {
            let words = "a batch norm in training needs at least 2 values for each channel, and this batch has fewer";
            return Err(Error::shape(words));
        }
        let _off = precision::enter(Frame::Off);
        let mut readers = self.readers();
        let mut given = inputs.iter().cloned();
        let mut values: Vec<Vec<Option<Tensor>>> = Vec::with_capacity(self.nodes.len());
        for (place, node) in self.nodes.iter().enumerate() {
            let outputs = match &node.kind {
                Kind::Input => vec![given.next()],
                Kind::Parameter(param) => vec![Some(param.tensor())],
                Kind::Constant(value) => vec![Some(constant(node, value, batch).map_err(|e| at_node(node, e))?)],
                _ => {
                    let read =
                        node.inputs.iter().map(|port| values[port.node][port.port].as_ref().expect("ran before"));
                    let read: Vec<&Tensor> = read.collect();
                    let result = run_node(node, n, batch, &read).map_err(|e| at_node(node, e))?;
                    result.into_iter().map(Some).collect()
                }
            };
            if outputs.len() < node.outputs.len() {
                let words = format!("gives {} outputs, and the graph has {}", outputs.len(), node.outputs.len());
                return Err(at_node(node, Error::value(words)));
            }
            values.push(outputs);
            // Tensors without further readers are freed, as in code.
            for port in &node.inputs {
                readers[port.node][port.port] -= 1;
                if readers[port.node][port.port] == 0 {
                    values[port.node][port.port] = None;
                }
            }
            for (value, &readers) in values[place].iter_mut().zip(&readers[place]) {
                if readers == 0 {
                    *value = None;
                }
            }
        }
        let value = |port: &Port| values[port.node][port.port].clone().expect("it is read at the end");
        for update in &self.updates {
            if let Kind::Parameter(buffer) = &self.nodes[update.buffer].kind {
                let count = update.count.map(|count| count.at(batch) as usize);
                buffer.blend(&value(&update.by), update.momentum, count)?;
            }
        }
        Ok(self.outputs.iter().map(value).collect())
    }

    /// Counts the readers of each output: nodes and the end of the run.
    fn readers(&self) -> Vec<Vec<usize>> {
        let mut readers: Vec<Vec<usize>> = self.nodes.iter().map(|node| vec![0; node.outputs.len()]).collect();
        let of_nodes = self.nodes.iter().flat_map(|node| &node.inputs);
        let at_the_end = self.outputs.iter().chain(self.updates.iter().map(|update| &update.by));
        of_nodes.chain(at_the_end).for_each(|port| readers[port.node][port.port] += 1);
        readers
    }

    /// Checks the inputs and returns the batch size.
    fn check(&self, inputs: &[Tensor]) -> Result<usize> {
        if inputs.len() != self.inputs.len() {
            let (takes, plural) = (self.inputs.len(), if self.inputs.len() == 1 { "" } else { "s" });
            return Err(Error::shape(format!("the graph takes {takes} input{plural}, got {}", inputs.len())));
        }
        let mut batch = self.batch;
        for (&node, x) in self.inputs.iter().zip(inputs) {
            let wanted = &self.nodes[node].outputs[0];
            if let (Some(first), Some(&length)) = (wanted.shape.first(), x.shape().first())
                && first.each == 1
                && first.plus == 0
            {
                batch = length;
                break;
            }
        }
        for (&node, x) in self.inputs.iter().zip(inputs) {
            let (name, wanted) = (&self.nodes[node].name, &self.nodes[node].outputs[0]);
            let fits = x.rank() == wanted.shape.len()
                && wanted.shape.iter().zip(x.shape()).all(|(dim, &length)| dim.at(batch) == length as i64);
            if !fits {
                let only = match &self.only_batch {
                    Some(why) => format!("; it runs batches of {} only: {why}", self.batch),
                    None => String::new(),
                };
                return Err(Error::shape(format!(
                    "`{name}` is {:?}; the graph was traced with {}{only}",
                    x.shape(),
                    described(wanted)
                )));
            }
            if x.dtype() != wanted.dtype {
                return Err(Error::dtype(format!(
                    "`{name}` is {}; the graph was traced with {}",
                    x.dtype(),
                    wanted.dtype
                )));
            }
        }
        Ok(batch)
    }
}

fn constant(node: &Node, value: &Tensor, batch: usize) -> Result<Tensor> {
    let wanted = &node.outputs[0].shape;
    if wanted.len() == value.rank() && wanted.iter().zip(value.shape()).all(|(dim, &len)| dim.at(batch) == len as i64) {
        return Ok(value.clone());
    }
    // One number represents all elements of a constant that grows with the batch.
    let lengths: Vec<usize> = wanted.iter().map(|dim| usize::try_from(dim.at(batch)).unwrap_or(usize::MAX)).collect();
    Tensor::scalar(value.item()?, value.dtype()).broadcast_to(&lengths)
}

fn run_node(node: &Node, n: u64, batch: usize, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
    let op = match &node.kind {
        Kind::Op(op) => *op,
        _ => return Ok(vec![inputs[0].detach()]),
    };
    if let Some(again) = &node.again {
        return Ok(vec![again.run(inputs)?]);
    }
    if node.draws == 0 && !node.attributes.iter().any(|(_, value)| depends_on_batch(value)) {
        return run_recorded(op, &node.attributes, inputs);
    }
    let mut attributes = node.attributes_at(batch);
    if node.draws > 0 {
        let seed: u64 = attributes.get("seed")?;
        attributes.set("seed", &seed.wrapping_add(n.wrapping_mul(node.draws)));
    }
    run_recorded(op, &attributes, inputs)
}

fn at_node(node: &Node, e: Error) -> Error {
    let cell = if node.cell.is_empty() { String::new() } else { format!(" of cell `{}`", node.cell) };
    e.context(format!("node `{}`{cell}", node.name))
}
