//! The nodes of a model as they are written, each checked against the types that its op takes in the opset.

use std::collections::{HashMap, HashSet};

use super::message::{Attr, Declared, Graph, Node, Val};
use crate::{
    Dim,
    onnx::schema::{self, Kind, Schema},
};
use precast::{
    DType, Tensor,
    error::{Error, Result},
};

/// The first letter of provisional names, which no other name has.
pub(super) const PROVISIONAL: char = '\u{1}';

/// The nodes that are written so far. Values have provisional names until the node of the graph is complete to which
/// they belong.
pub(super) struct Writer {
    pub opset: i64,
    pub nodes: Vec<Node>,
    /// Names that other values have.
    pub taken: HashSet<String>,
    /// The input whose axis is the batch, and the axis.
    pub batch_of: Option<(Val, usize)>,
    /// The low dtype of the node that is written, to which results are rounded.
    pub low: Option<DType>,
    /// Numbers of the node that were rounded: more than one cannot be written in a low dtype.
    pub roundings: usize,
    /// The path of the cell of the node that is written.
    pub cell: String,
    next: usize,
    /// Values that later nodes can read: casts, and the length of the batch.
    shared: HashMap<Shared, Val>,
    /// Keys of shared values that the node has made.
    fresh: Vec<Shared>,
    /// Bodies around the current one. Their nodes read shared values, and make none.
    within: Vec<Vec<Node>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Shared {
    Cast(String, DType),
    Batch,
}

/// A state to which a writer can return.
pub(super) struct Mark {
    nodes: usize,
    fresh: usize,
}

/// Returns whether an op moves, chooses or compares numbers, and computes no new ones.
fn is_exact(op: &str) -> bool {
    matches!(
        op,
        "Abs"
            | "Cast"
            | "Clip"
            | "Concat"
            | "Constant"
            | "DepthToSpace"
            | "Expand"
            | "Flatten"
            | "Gather"
            | "GatherElements"
            | "GlobalMaxPool"
            | "Identity"
            | "Max"
            | "MaxPool"
            | "Min"
            | "Neg"
            | "Pad"
            | "ReduceMax"
            | "ReduceMin"
            | "Relu"
            | "Reshape"
            | "ScatterElements"
            | "ScatterND"
            | "Shape"
            | "Slice"
            | "Split"
            | "Squeeze"
            | "TopK"
            | "Transpose"
            | "Unsqueeze"
            | "Where"
    )
}

impl Writer {
    pub fn new(opset: i64, taken: HashSet<String>) -> Self {
        Writer {
            opset,
            nodes: Vec::new(),
            taken,
            batch_of: None,
            low: None,
            roundings: 0,
            cell: String::new(),
            next: 0,
            shared: HashMap::new(),
            fresh: Vec::new(),
            within: Vec::new(),
        }
    }

    pub fn mark(&self) -> Mark {
        Mark { nodes: self.nodes.len(), fresh: self.fresh.len() }
    }

    /// Drops the nodes that were written after a mark.
    pub fn back_to(&mut self, mark: &Mark) {
        self.nodes.truncate(mark.nodes);
        for key in self.fresh.drain(mark.fresh..) {
            self.shared.remove(&key);
        }
    }

    /// Returns whether the opset has an op.
    pub fn has(&self, op: &str) -> bool {
        Schema::of("", op, self.opset).is_some()
    }

    /// Writes a node with one output of a dtype.
    pub fn node_of(
        &mut self,
        op: &'static str,
        dtype: DType,
        inputs: &[&Val],
        attributes: &[(&'static str, Attr)],
    ) -> Result<Val> {
        Ok(self.nodes_of(op, &[dtype], inputs, attributes)?.swap_remove(0))
    }

    /// Writes a node with several outputs.
    pub fn nodes_of(
        &mut self,
        op: &'static str,
        dtypes: &[DType],
        inputs: &[&Val],
        attributes: &[(&'static str, Attr)],
    ) -> Result<Vec<Val>> {
        self.check(op, inputs, dtypes)?;
        if dtypes[0].is_float() && !is_exact(op) {
            self.roundings += 1;
        }
        let outputs: Vec<Val> = dtypes.iter().map(|&dtype| self.value(dtype)).collect();
        let mut inputs: Vec<String> = inputs.iter().map(|x| x.name.clone()).collect();
        while inputs.last().is_some_and(String::is_empty) {
            inputs.pop();
        }
        self.nodes.push(Node {
            name: String::new(),
            op,
            inputs,
            outputs: outputs.iter().map(|x| x.name.clone()).collect(),
            attributes: attributes.to_vec(),
            cell: self.cell.clone(),
        });
        Ok(outputs)
    }

    /// Returns a value with a provisional name.
    pub fn value(&mut self, dtype: DType) -> Val {
        self.next += 1;
        Val { name: format!("{PROVISIONAL}{}", self.next), dtype }
    }

    /// Checks that an op exists in the opset, and takes the dtypes there.
    fn check(&self, op: &str, inputs: &[&Val], outputs: &[DType]) -> Result<()> {
        let opset = self.opset;
        let Some(schema) = Schema::of("", op, opset) else {
            let since = Schema::first(op).map_or(String::new(), |first| format!(", which has it from {first} on"));
            return Err(Error::unsupported(format!("ONNX's `{op}` is not in opset {opset}{since}")));
        };
        let given = inputs.iter().enumerate().map(|(place, x)| (schema.input(place), x.dtype));
        let made = outputs.iter().enumerate().map(|(place, dtype)| (schema.output(place), *dtype));
        // The ports of one variable have one type.
        let mut met: HashMap<&str, DType> = HashMap::new();
        for (port, dtype) in given.chain(made).filter(|(_, dtype)| dtype.is_float()) {
            let takes = match port.map(|port| (port.kind, port.mixed)) {
                Some((Kind::Variable(variable), mixed)) => {
                    schema.allows(variable, dtype) && (mixed || *met.entry(variable).or_insert(dtype) == dtype)
                }
                Some((Kind::Float32, _)) => dtype == DType::F32,
                _ => false,
            };
            if !takes {
                let name = schema::elem(dtype);
                return Err(Error::unsupported(format!("ONNX's `{op}` takes no {name} in opset {opset}")));
            }
        }
        Ok(())
    }

    /// Writes a constant.
    pub fn constant(&mut self, x: Tensor) -> Result<Val> {
        self.node_of("Constant", x.dtype(), &[], &[("value", Attr::Tensor(x))])
    }

    /// Writes a number. One that the low dtype of the node does not have counts as rounded.
    pub fn number(&mut self, number: f64, dtype: DType) -> Result<Val> {
        let x = Tensor::scalar(number, dtype);
        if let Some(low) = self.low
            && dtype.is_float()
            && Tensor::scalar(number, low).to_f64()[0].to_bits() != number.to_bits()
        {
            self.roundings += 1;
        }
        self.constant(x)
    }

    /// Writes a vector of integers.
    pub fn ints(&mut self, numbers: &[i64]) -> Result<Val> {
        self.constant(Tensor::from_vec(numbers.to_vec(), &[numbers.len()])?)
    }

    /// Returns a value in a dtype. The cast is written once for all readers.
    pub fn cast(&mut self, x: &Val, to: DType) -> Result<Val> {
        if x.dtype == to || x.name.is_empty() {
            return Ok(x.clone());
        }
        let key = Shared::Cast(x.name.clone(), to);
        if let Some(known) = self.shared.get(&key) {
            return Ok(known.clone());
        }
        let cast = self.cast_anew(x, to)?;
        self.share(key, &cast);
        Ok(cast)
    }

    /// Writes a cast.
    pub fn cast_anew(&mut self, x: &Val, to: DType) -> Result<Val> {
        self.node_of("Cast", to, &[x], &[("to", Attr::Int(i64::from(schema::elem(to).0)))])
    }

    fn share(&mut self, key: Shared, x: &Val) {
        if self.within.is_empty() {
            self.shared.insert(key.clone(), x.clone());
            self.fresh.push(key);
        }
    }

    /// Returns a vector with these lengths.
    pub fn lengths(&mut self, lengths: &[Dim]) -> Result<Val> {
        if lengths.iter().all(|len| len.each == 0) {
            return self.ints(&lengths.iter().map(|len| len.plus).collect::<Vec<_>>());
        }
        let mut parts = Vec::new();
        for part in lengths.chunk_by(|a, b| a.each == 0 && b.each == 0) {
            parts.push(match part {
                [len] if len.each != 0 => self.length(*len)?,
                fixed => self.ints(&fixed.iter().map(|len| len.plus).collect::<Vec<_>>())?,
            });
        }
        match &parts[..] {
            [only] => Ok(only.clone()),
            parts => {
                let parts: Vec<&Val> = parts.iter().collect();
                self.node_of("Concat", DType::I64, &parts, &[("axis", Attr::Int(0))])
            }
        }
    }

    /// Returns a vector of one length that depends on the batch.
    fn length(&mut self, len: Dim) -> Result<Val> {
        let mut x = self.batch()?;
        if len.each != 1 {
            let each = self.ints(&[len.each])?;
            x = self.node_of("Mul", DType::I64, &[&x, &each], &[])?;
        }
        if len.plus != 0 {
            let plus = self.ints(&[len.plus])?;
            x = self.node_of("Add", DType::I64, &[&x, &plus], &[])?;
        }
        Ok(x)
    }

    /// Returns a vector with the length of the batch.
    fn batch(&mut self) -> Result<Val> {
        if let Some(known) = self.shared.get(&Shared::Batch) {
            return Ok(known.clone());
        }
        let Some((input, axis)) = self.batch_of.clone() else {
            return Err(Error::unsupported("it depends on the batch, which no axis of an input has"));
        };
        let axis = axis as i64;
        let batch = if self.opset >= 15 {
            let range = [("start", Attr::Int(axis)), ("end", Attr::Int(axis + 1))];
            self.node_of("Shape", DType::I64, &[&input], &range)?
        } else {
            let (shape, at) = (self.node_of("Shape", DType::I64, &[&input], &[])?, self.ints(&[axis])?);
            self.node_of("Gather", DType::I64, &[&shape, &at], &[])?
        };
        self.share(Shared::Batch, &batch);
        Ok(batch)
    }

    /// Writes a body: `write` writes its nodes for inputs of these dtypes, and returns its outputs.
    pub fn body(
        &mut self,
        name: &str,
        inputs: &[DType],
        write: impl FnOnce(&mut Self, &[Val]) -> Result<Vec<Val>>,
    ) -> Result<Attr> {
        let inputs: Vec<Val> = inputs.iter().map(|&dtype| self.value(dtype)).collect();
        let around = std::mem::take(&mut self.nodes);
        self.within.push(around);
        let outputs = write(self, &inputs);
        let around = self.within.pop().expect("it was pushed");
        let nodes = std::mem::replace(&mut self.nodes, around);
        let declared = |value: Val| Declared { value, axes: None };
        Ok(Attr::Body(Box::new(Graph {
            name: name.into(),
            nodes,
            initialisers: Vec::new(),
            inputs: inputs.into_iter().map(declared).collect(),
            outputs: outputs?.into_iter().map(declared).collect(),
        })))
    }

    /// Gives the nodes after a mark their names, and the values that they make: `label` for the node that computes, and
    /// `label/Op` for those around it. The values of `results` get the names beside them. Returns all new names.
    pub fn complete(&mut self, mark: &Mark, label: &str, results: &[(Val, String)]) -> HashMap<String, String> {
        let (new, taken) = (&mut self.nodes[mark.nodes..], &self.taken);
        let main = new.iter().rposition(|node| !is_exact(node.op));
        let main = main.or_else(|| new.iter().rposition(|node| node.op != "Cast" && node.op != "Constant"));
        let main = main.or(new.len().checked_sub(1));
        let mut renamed: HashMap<String, String> = HashMap::new();
        let mut counts: HashMap<String, usize> = HashMap::new();
        let mut index = 0;
        let mut name = |node: &mut Node, is_main: bool| {
            let mut path = format!("{label}/{}", node.op);
            while taken.contains(&path) {
                path.push('_');
            }
            let count = counts.entry(path.clone()).or_insert(0);
            *count += 1;
            if *count > 1 {
                path = format!("{path}_{count}");
            }
            for (port, output) in node.outputs.iter().enumerate() {
                let suffix = if port == 0 { String::new() } else { format!(":{port}") };
                renamed.insert(output.clone(), format!("{path}{suffix}"));
            }
            node.name = if is_main { label.to_string() } else { path };
        };
        for node in new.iter_mut() {
            for (_, attribute) in &mut node.attributes {
                if let Attr::Body(body) = attribute {
                    body.nodes.iter_mut().for_each(|inner| name(inner, false));
                }
            }
            name(node, Some(index) == main);
            index += 1;
        }
        // Inputs of bodies.
        for (at, input) in new.iter().flat_map(bodies).flat_map(|body| &body.inputs).enumerate() {
            renamed.insert(input.value.name.clone(), format!("{label}/body/{at}"));
        }
        for (value, wanted) in results {
            renamed.insert(value.name.clone(), wanted.clone());
        }
        new.iter_mut().for_each(|node| rename(node, &renamed));
        for key in self.fresh.drain(..) {
            let Some(mut value) = self.shared.remove(&key) else { continue };
            let key = match key {
                Shared::Cast(of, dtype) => Shared::Cast(renamed.get(&of).cloned().unwrap_or(of), dtype),
                Shared::Batch => Shared::Batch,
            };
            if let Some(name) = renamed.get(&value.name) {
                value.name.clone_from(name);
            }
            self.shared.insert(key, value);
        }
        renamed
    }

    /// Drops nodes whose results nothing reads, and returns the others.
    pub fn read_nodes(self, outputs: &[Declared]) -> Vec<Node> {
        let mut read: HashSet<String> = outputs.iter().map(|output| output.value.name.clone()).collect();
        let mut kept: Vec<Node> = Vec::with_capacity(self.nodes.len());
        for node in self.nodes.into_iter().rev() {
            if node.outputs.iter().any(|name| read.contains(name)) {
                note_inputs(&node, &mut read);
                kept.push(node);
            }
        }
        kept.reverse();
        kept
    }
}

fn note_inputs(node: &Node, read: &mut HashSet<String>) {
    read.extend(node.inputs.iter().cloned());
    bodies(node).flat_map(|body| &body.nodes).for_each(|inner| note_inputs(inner, read));
}

fn bodies(node: &Node) -> impl Iterator<Item = &Graph> {
    node.attributes.iter().filter_map(|(_, attribute)| match attribute {
        Attr::Body(body) => Some(&**body),
        _ => None,
    })
}

fn rename(node: &mut Node, renamed: &HashMap<String, String>) {
    let new = |name: &mut String| {
        if let Some(new) = renamed.get(name) {
            name.clone_from(new);
        }
    };
    node.inputs.iter_mut().chain(&mut node.outputs).for_each(new);
    for (_, attribute) in &mut node.attributes {
        if let Attr::Body(body) = attribute {
            body.inputs.iter_mut().chain(&mut body.outputs).for_each(|declared| new(&mut declared.value.name));
            body.nodes.iter_mut().for_each(|inner| rename(inner, renamed));
        }
    }
}
