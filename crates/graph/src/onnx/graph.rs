//! Graphs of the format, with their nodes, values and functions, each with the bytes it came from.

use std::collections::HashMap;

use super::{
    tensor::{Elem, Tensor, entry},
    wire::{Field, Source, Span},
};
use precast::error::{Error, Result};

/// Graphs within graphs, at most: an `If` in a `Loop` has two.
const DEEPEST: usize = 64;

/// A graph: that of the model, or a body of a node.
#[derive(Clone, Debug, Default)]
pub(super) struct Graph {
    pub name: String,
    pub nodes: Vec<Node>,
    pub initialisers: Vec<Tensor>,
    /// The values of sparse initialisers, with their names.
    pub sparse: Vec<Tensor>,
    pub inputs: Vec<ValueInfo>,
    pub outputs: Vec<ValueInfo>,
    pub values: Vec<ValueInfo>,
    /// The fields of the message, in order.
    pub fields: Vec<(GraphField, Span)>,
    /// The bytes of the message.
    pub span: Span,
}

/// A field of a graph, by its index in the list of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GraphField {
    Node(usize),
    Initialiser(usize),
    Input(usize),
    Output(usize),
    Value(usize),
    Other,
}

/// A node.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    pub name: String,
    pub op: String,
    /// Empty for the default domain.
    pub domain: String,
    pub overload: String,
    /// Names of values; an empty one is an input that is left out.
    pub inputs: Vec<String>,
    pub outputs: Vec<String>,
    pub attributes: Vec<Attribute>,
    /// The path of its scope, as torch's exporter notes it: `encoder.layers.0`. Empty where it is unknown.
    pub scope: String,
    /// The bytes of the message.
    pub span: Span,
}

/// An attribute of a node. Numbers and strings are read when they are asked for.
#[derive(Clone, Debug)]
pub(super) struct Attribute {
    pub name: String,
    pub tensor: Option<Tensor>,
    /// The values of a sparse tensor.
    pub sparse: Option<Tensor>,
    pub graphs: Vec<Graph>,
    /// The attribute of a function whose value it takes.
    pub of_function: bool,
    /// The bytes of the message.
    pub span: Span,
}

/// The declaration of a value.
#[derive(Clone, Debug)]
pub(super) struct ValueInfo {
    pub name: String,
    pub kind: Type,
    /// Axes of a tensor, where its shape is declared.
    pub axes: Option<Vec<Axis>>,
    /// The bytes of the message.
    pub span: Span,
}

/// A declared type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Unknown,
    Tensor(Elem),
    /// A sequence, an optional value, a map: with the type of the tensors in it.
    Nested(Elem),
}

/// A declared axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Axis {
    Known(usize),
    Symbol(String),
    Unknown,
}

/// A function of the model.
#[derive(Clone, Debug, Default)]
pub(super) struct Function {
    pub name: String,
    pub domain: String,
    pub overload: String,
    pub inputs: Vec<String>,
    pub outputs: Vec<String>,
    pub nodes: Vec<Node>,
    pub opsets: HashMap<String, i64>,
    /// Attributes with their usual values.
    pub attributes: Vec<Attribute>,
}

pub(super) fn opset(source: &mut Source, f: &Field, into: &mut HashMap<String, i64>) -> Result<()> {
    let (mut domain, mut version) = (String::new(), 1);
    source.fields(f.bytes()?, |source, f| {
        match f.number {
            1 => domain = source.text(f)?,
            2 => version = f.int()?,
            _ => {}
        }
        Ok(())
    })?;
    into.insert(default_domain(domain), version);
    Ok(())
}

/// Returns the name of a domain; the default one has two.
fn default_domain(domain: String) -> String {
    if domain == "ai.onnx" { String::new() } else { domain }
}

impl Graph {
    /// Reads the graph of a model.
    pub fn of_model(source: &mut Source, span: Span) -> Result<Self> {
        Graph::read(source, span, DEEPEST)
    }

    fn read(source: &mut Source, span: Span, deepest: usize) -> Result<Self> {
        let Some(deeper) = deepest.checked_sub(1) else {
            return Err(Error::model(format!("byte {}: more than {DEEPEST} graphs within each other", span.start)));
        };
        let mut graph = Graph { span, ..Graph::default() };
        source.fields(span, |source, f| {
            let field = match f.number {
                1 => GraphField::Node(add(&mut graph.nodes, Node::read(source, f.bytes()?, deeper)?)),
                2 => {
                    graph.name = source.text(f)?;
                    GraphField::Other
                }
                5 => GraphField::Initialiser(add(&mut graph.initialisers, Tensor::read(source, f.bytes()?)?)),
                11 => GraphField::Input(add(&mut graph.inputs, ValueInfo::read(source, f.bytes()?)?)),
                12 => GraphField::Output(add(&mut graph.outputs, ValueInfo::read(source, f.bytes()?)?)),
                13 => GraphField::Value(add(&mut graph.values, ValueInfo::read(source, f.bytes()?)?)),
                15 => {
                    graph.sparse.extend(sparse(source, f.bytes()?)?);
                    GraphField::Other
                }
                _ => GraphField::Other,
            };
            graph.fields.push((field, f.whole));
            Ok(())
        })?;
        Ok(graph)
    }
}

/// Adds an item to a list, and returns its index.
fn add<T>(all: &mut Vec<T>, new: T) -> usize {
    all.push(new);
    all.len() - 1
}

impl Node {
    /// Reads a node that is in no graph.
    pub fn read_alone(source: &mut Source, span: Span) -> Result<Self> {
        Node::read(source, span, DEEPEST)
    }

    fn read(source: &mut Source, span: Span, deepest: usize) -> Result<Self> {
        let mut node = Node { span, ..Node::default() };
        source.fields(span, |source, f| {
            match f.number {
                1 => node.inputs.push(source.text(f)?),
                2 => node.outputs.push(source.text(f)?),
                3 => node.name = source.text(f)?,
                4 => node.op = source.text(f)?,
                5 => node.attributes.push(Attribute::read(source, f.bytes()?, deepest)?),
                7 => node.domain = default_domain(source.text(f)?),
                8 => node.overload = source.text(f)?,
                9 => {
                    let (key, value) = entry(source, f)?;
                    if key == "pkg.torch.onnx.name_scopes" {
                        node.scope = scope(&value);
                    }
                }
                _ => {}
            }
            Ok(())
        })?;
        Ok(node)
    }

    pub fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes.iter().find(|attribute| attribute.name == name)
    }

    /// Returns the bodies: the graphs among the attributes.
    pub fn bodies(&self) -> impl Iterator<Item = (&str, &Graph)> {
        self.attributes.iter().flat_map(|attribute| attribute.graphs.iter().map(|graph| (&attribute.name[..], graph)))
    }

    /// Returns the name, or what can be said in its place: its first output.
    pub fn label(&self) -> &str {
        let outputs = || self.outputs.iter().find(|name| !name.is_empty());
        if self.name.is_empty() { outputs().map_or("", |name| name) } else { &self.name }
    }

    /// Returns an error about the node.
    pub fn wrong(&self, words: impl std::fmt::Display) -> Error {
        Error::model(format!("node `{}` ({}): {words}", self.label(), self.op))
    }
}

/// Returns the path of a scope from a list in Python's form: `['', 'encoder', 'encoder.layers.0', 'linear']`. The last
/// entry is the node, and each entry before it is a path from the root.
fn scope(list: &str) -> String {
    let inside = list.trim().trim_start_matches('[').trim_end_matches(']');
    let entries: Vec<&str> = inside.split(',').map(|entry| entry.trim().trim_matches(['\'', '"'])).collect();
    match &entries[..] {
        [.., scope, _] => (*scope).to_string(),
        _ => String::new(),
    }
}

impl Attribute {
    fn read(source: &mut Source, span: Span, deepest: usize) -> Result<Self> {
        let mut attribute =
            Attribute { name: String::new(), tensor: None, sparse: None, graphs: Vec::new(), of_function: false, span };
        source.fields(span, |source, f| {
            match f.number {
                1 => attribute.name = source.text(f)?,
                5 => attribute.tensor = Some(Tensor::read(source, f.bytes()?)?),
                6 | 11 => attribute.graphs.push(Graph::read(source, f.bytes()?, deepest)?),
                21 => attribute.of_function = f.bytes()?.len > 0,
                22 => attribute.sparse = sparse(source, f.bytes()?)?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(attribute)
    }
}

/// Returns the values of a sparse tensor.
fn sparse(source: &mut Source, span: Span) -> Result<Option<Tensor>> {
    let mut values = None;
    source.fields(span, |source, f| {
        if f.number == 1 {
            values = Some(Tensor::read(source, f.bytes()?)?);
        }
        Ok(())
    })?;
    Ok(values)
}

impl ValueInfo {
    fn read(source: &mut Source, span: Span) -> Result<Self> {
        let mut value = ValueInfo { name: String::new(), kind: Type::Unknown, axes: None, span };
        source.fields(span, |source, f| {
            match f.number {
                1 => value.name = source.text(f)?,
                2 => (value.kind, value.axes) = declared(source, f.bytes()?, DEEPEST)?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(value)
    }

    /// Returns the element type of a tensor.
    pub fn elem(&self) -> Option<Elem> {
        match self.kind {
            Type::Tensor(elem) if elem != Elem::UNDEFINED => Some(elem),
            _ => None,
        }
    }
}

/// Returns the type and the axes of a message of a type.
fn declared(source: &mut Source, span: Span, deepest: usize) -> Result<(Type, Option<Vec<Axis>>)> {
    let Some(deeper) = deepest.checked_sub(1) else {
        return Err(Error::model(format!("byte {}: more than {DEEPEST} types within each other", span.start)));
    };
    let (mut kind, mut axes) = (Type::Unknown, None);
    source.fields(span, |source, f| {
        match f.number {
            1 => {
                let mut elem = Elem::UNDEFINED;
                source.fields(f.bytes()?, |source, f| {
                    match f.number {
                        1 => elem = Elem(f.int32()?),
                        2 => axes = Some(shape(source, f.bytes()?)?),
                        _ => {}
                    }
                    Ok(())
                })?;
                kind = Type::Tensor(elem);
            }
            4 | 5 | 9 => {
                let mut inner = Type::Unknown;
                source.fields(f.bytes()?, |source, f| {
                    if f.bytes().is_ok() {
                        inner = declared(source, f.bytes()?, deeper)?.0;
                    }
                    Ok(())
                })?;
                let (Type::Tensor(elem) | Type::Nested(elem)) = inner else { return Ok(()) };
                kind = Type::Nested(elem);
            }
            8 => kind = Type::Nested(Elem::UNDEFINED),
            _ => {}
        }
        Ok(())
    })?;
    Ok((kind, axes))
}

fn shape(source: &mut Source, span: Span) -> Result<Vec<Axis>> {
    let mut axes = Vec::new();
    source.fields(span, |source, f| {
        if f.number == 1 {
            let mut axis = Axis::Unknown;
            source.fields(f.bytes()?, |source, f| {
                match f.number {
                    1 => axis = usize::try_from(f.int()?).map_or(Axis::Unknown, Axis::Known),
                    2 => axis = Axis::Symbol(source.text(f)?),
                    _ => {}
                }
                Ok(())
            })?;
            axes.push(axis);
        }
        Ok(())
    })?;
    Ok(axes)
}

impl Function {
    pub fn read(source: &mut Source, span: Span) -> Result<Self> {
        let mut function = Function::default();
        source.fields(span, |source, f| {
            match f.number {
                1 => function.name = source.text(f)?,
                4 => function.inputs.push(source.text(f)?),
                5 => function.outputs.push(source.text(f)?),
                7 => function.nodes.push(Node::read(source, f.bytes()?, DEEPEST)?),
                9 => opset(source, f, &mut function.opsets)?,
                10 => function.domain = default_domain(source.text(f)?),
                11 => function.attributes.push(Attribute::read(source, f.bytes()?, DEEPEST)?),
                13 => function.overload = source.text(f)?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(function)
    }

    /// Returns whether a node is a call of the function.
    pub fn is_of(&self, node: &Node) -> bool {
        (&self.name, &self.domain, &self.overload) == (&node.op, &node.domain, &node.overload)
    }
}
