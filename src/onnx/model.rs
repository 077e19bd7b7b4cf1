//! Models as the format has them: graphs, nodes, values and functions, each with the bytes it came from.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard},
};

use super::{
    tensor::{self, Data, Elem, External, Tensor, entry},
    wire::{Field, Source, Span},
};
use crate::error::{Error, Result};

/// Graphs within graphs, at most: an `If` in a `Loop` has two.
const DEEPEST: usize = 64;

/// An ONNX model. Its weights stay in the file until they are needed.
#[derive(Debug)]
pub struct OnnxModel {
    /// The file it was read from; `None` for bytes.
    pub(super) path: Option<PathBuf>,
    pub(super) source: Locked,
    /// The version of each imported domain. The default domain is the empty name.
    pub(super) opsets: HashMap<String, i64>,
    pub(super) graph: Graph,
    pub(super) functions: Vec<Function>,
    pub(super) fields: Vec<ModelField>,
}

/// The file behind a model, and the data files that were opened so far.
pub(super) struct Locked(Mutex<Files>);

pub(super) struct Files {
    pub model: Source,
    pub data: HashMap<String, Source>,
}

impl std::fmt::Debug for Locked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Source")
    }
}

/// A field of a model, in the order of the file.
#[derive(Clone, Copy, Debug)]
pub(super) enum ModelField {
    Graph,
    Other(Span),
}

/// A graph: that of the model, or a body of a node.
#[derive(Clone, Debug, Default)]
pub(super) struct Graph {
    pub name: String,
    pub nodes: Vec<Node>,
    pub initialisers: Vec<Tensor>,
    /// Names and element types of sparse initialisers.
    pub sparse: Vec<(String, Elem)>,
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

impl OnnxModel {
    /// Opens a file and reads all but its weights.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) when the file cannot be read; [`ErrorKind::Model`](crate::ErrorKind::Model)
    /// for bytes that are no model, with their place.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let source = Source::open(path)?;
        let read = OnnxModel::read(source, Some(path.to_path_buf()));
        read.map_err(|e| if e.kind() == crate::ErrorKind::Io { e } else { e.context(path.display()) })
    }

    /// Reads a model from bytes. It cannot have data in other files.
    ///
    /// # Errors
    /// As [`open`](OnnxModel::open).
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self> {
        OnnxModel::read(Source::of_bytes(bytes), None)
    }

    fn read(mut source: Source, path: Option<PathBuf>) -> Result<Self> {
        let all = source.all();
        let (mut opsets, mut graph) = (HashMap::new(), None);
        let (mut functions, mut fields) = (Vec::new(), Vec::new());
        let read = source.fields(all, |source, f| {
            match f.number {
                7 if graph.is_some() => {
                    return Err(Error::model(format!("byte {}: a second graph", f.whole.start)));
                }
                7 => graph = Some(Graph::read(source, f.bytes()?, DEEPEST)?),
                8 => opset(source, f, &mut opsets)?,
                25 => functions.push(Function::read(source, f.bytes()?)?),
                _ => {}
            }
            fields.push(if f.number == 7 { ModelField::Graph } else { ModelField::Other(f.whole) });
            Ok(())
        });
        // A file of another kind fails at its first field.
        let is_other = fields.is_empty() && graph.is_none();
        read.map_err(|error| if is_other { error.context("not an ONNX model") } else { error })?;
        let Some(graph) = graph else {
            return Err(Error::model(match all.len {
                0 => "an empty file, where an ONNX model is expected",
                _ => "not an ONNX model: it has no graph",
            }));
        };
        let source = Locked(Mutex::new(Files { model: source, data: HashMap::new() }));
        let model = OnnxModel { path, source, opsets, graph, functions, fields };
        if !model.opsets.contains_key("") && model.functions.is_empty() && !model.graph.nodes.is_empty() {
            let own = |node: &Node| node.domain.is_empty();
            if model.graph.nodes.iter().any(own) {
                return Err(Error::model("the model does not say which opset it is of"));
            }
        }
        Ok(model)
    }

    /// Returns the version of the default domain, 0 where the model imports none.
    pub fn opset(&self) -> i64 {
        self.opsets.get("").copied().unwrap_or(0)
    }

    /// Returns the length of the file in bytes, without data in other files.
    pub fn bytes(&self) -> u64 {
        self.files().model.all().len
    }

    pub(super) fn files(&self) -> MutexGuard<'_, Files> {
        self.source.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Calls `each` with the numbers of a tensor of float32, some at a time.
    pub(super) fn floats(&self, tensor: &Tensor, each: impl FnMut(&[f32]) -> Result<()>) -> Result<()> {
        let mut files = self.files();
        let files = &mut *files;
        let data = match &tensor.data {
            Data::External(place) => Some(data_file(&mut files.data, self.path.as_deref(), tensor, place)?),
            _ => None,
        };
        tensor::floats(tensor, &mut files.model, data, each)
    }

    /// Returns the numbers of an attribute of integers; `None` without that attribute.
    pub(super) fn ints(&self, node: &Node, name: &str) -> Result<Option<Vec<i64>>> {
        let Some(attribute) = node.attribute(name) else { return Ok(None) };
        let mut numbers = Vec::new();
        self.files().model.fields(attribute.span, |source, f| match f.number {
            3 | 8 => source.ints(f, |number| numbers.push(number)),
            _ => Ok(()),
        })?;
        Ok(Some(numbers))
    }

    /// Returns the number of an attribute of an integer.
    pub(super) fn int(&self, node: &Node, name: &str) -> Result<Option<i64>> {
        Ok(self.ints(node, name)?.map(|numbers| numbers.last().copied().unwrap_or(0)))
    }

    /// Returns the numbers of an attribute of floats.
    pub(super) fn float_numbers(&self, node: &Node, name: &str) -> Result<Option<Vec<f32>>> {
        let Some(attribute) = node.attribute(name) else { return Ok(None) };
        let mut numbers = Vec::new();
        self.files().model.fields(attribute.span, |source, f| {
            use super::wire::Value;
            match (f.number, f.value) {
                (2 | 7, Value::Fixed32(bits)) => numbers.push(f32::from_bits(bits)),
                (7, Value::Bytes(span)) => {
                    let bytes = source.bytes(span)?;
                    numbers.extend(bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)));
                }
                _ => {}
            }
            Ok(())
        })?;
        Ok(Some(numbers))
    }

    /// Returns the text of an attribute of a string.
    pub(super) fn text(&self, node: &Node, name: &str) -> Result<Option<String>> {
        let Some(attribute) = node.attribute(name) else { return Ok(None) };
        let mut text = String::new();
        self.files().model.fields(attribute.span, |source, f| {
            if f.number == 4 {
                text = source.text(f)?;
            }
            Ok(())
        })?;
        Ok(Some(text))
    }
}

/// Returns a data file, opened at its first use.
pub(super) fn data_file<'a>(
    open: &'a mut HashMap<String, Source>,
    model: Option<&Path>,
    tensor: &Tensor,
    place: &External,
) -> Result<&'a mut Source> {
    if !open.contains_key(&place.location) {
        let Some(model) = model else {
            return Err(tensor.wrong("its data is in another file, and the model was read from bytes"));
        };
        let file = Source::open(&model.with_file_name("").join(&place.location))
            .map_err(|e| e.context(format!("tensor `{}`", tensor.name)))?;
        open.insert(place.location.clone(), file);
    }
    Ok(open.get_mut(&place.location).expect("inserted above"))
}

fn opset(source: &mut Source, f: &Field, into: &mut HashMap<String, i64>) -> Result<()> {
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
    fn read(source: &mut Source, span: Span, deepest: usize) -> Result<Self> {
        let Some(deeper) = deepest.checked_sub(1) else {
            return Err(Error::model(format!("byte {}: more than {DEEPEST} graphs within each other", span.start)));
        };
        let mut graph = Graph { span, ..Graph::default() };
        source.fields(span, |source, f| {
            let field = match f.number {
                1 => {
                    graph.nodes.push(Node::read(source, f.bytes()?, deeper)?);
                    GraphField::Node(graph.nodes.len() - 1)
                }
                2 => {
                    graph.name = source.text(f)?;
                    GraphField::Other
                }
                5 => {
                    graph.initialisers.push(Tensor::read(source, f.bytes()?)?);
                    GraphField::Initialiser(graph.initialisers.len() - 1)
                }
                11 => {
                    graph.inputs.push(ValueInfo::read(source, f.bytes()?)?);
                    GraphField::Input(graph.inputs.len() - 1)
                }
                12 => {
                    graph.outputs.push(ValueInfo::read(source, f.bytes()?)?);
                    GraphField::Output(graph.outputs.len() - 1)
                }
                13 => {
                    graph.values.push(ValueInfo::read(source, f.bytes()?)?);
                    GraphField::Value(graph.values.len() - 1)
                }
                15 => {
                    source.fields(f.bytes()?, |source, f| {
                        if f.number == 1 {
                            let values = Tensor::read(source, f.bytes()?)?;
                            graph.sparse.push((values.name, values.elem));
                        }
                        Ok(())
                    })?;
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

impl Node {
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
            Attribute { name: String::new(), tensor: None, graphs: Vec::new(), of_function: false, span };
        source.fields(span, |source, f| {
            match f.number {
                1 => attribute.name = source.text(f)?,
                5 => attribute.tensor = Some(Tensor::read(source, f.bytes()?)?),
                6 | 11 => attribute.graphs.push(Graph::read(source, f.bytes()?, deepest)?),
                21 => attribute.of_function = f.bytes()?.len > 0,
                _ => {}
            }
            Ok(())
        })?;
        Ok(attribute)
    }
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
    fn read(source: &mut Source, span: Span) -> Result<Self> {
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
}
