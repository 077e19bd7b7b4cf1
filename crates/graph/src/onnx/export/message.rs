//! The messages of an exported model, with their bytes.

use crate::onnx::{
    schema,
    wire::{put_bytes, put_float, put_int},
};

use precast::{DType, Tensor, storage::weights::bytes_of};

/// A value of the graph: an input, a parameter or an output of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Val {
    /// Empty for an input that is left out.
    pub name: String,
    pub dtype: DType,
}

impl Val {
    /// Returns the value that takes the place of an input that is left out.
    pub fn none() -> Self {
        Val { name: String::new(), dtype: DType::Bool }
    }
}

/// A node.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub name: String,
    pub op: &'static str,
    pub inputs: Vec<String>,
    pub outputs: Vec<String>,
    pub attributes: Vec<(&'static str, Attr)>,
    /// The path of the cell to which it belongs.
    pub cell: String,
}

/// The value of an attribute.
#[derive(Clone, Debug)]
pub(super) enum Attr {
    Int(i64),
    Ints(Vec<i64>),
    Float(f64),
    Text(&'static str),
    Texts(Vec<&'static str>),
    Tensor(Tensor),
    Body(Box<Graph>),
}

impl Attr {
    /// Returns the attribute for a number of each axis.
    pub fn lengths(lengths: &[usize]) -> Attr {
        Attr::Ints(lengths.iter().map(|&len| len as i64).collect())
    }

    /// Returns the attribute for a truth value.
    pub fn flag(is: bool) -> Attr {
        Attr::Int(i64::from(is))
    }
}

/// A graph: that of the model, or the body of a node.
#[derive(Clone, Debug, Default)]
pub(super) struct Graph {
    pub name: String,
    pub nodes: Vec<Node>,
    pub initialisers: Vec<(String, Tensor)>,
    pub inputs: Vec<Declared>,
    pub outputs: Vec<Declared>,
}

/// The declaration of an input or an output.
#[derive(Clone, Debug)]
pub(super) struct Declared {
    pub value: Val,
    /// The axes, each a length or a name; `None` where they are not declared.
    pub axes: Option<Vec<Result<i64, String>>>,
}

/// Returns the bytes of a model.
pub(super) fn model(graph: &Graph, opset: i64, ir: i64) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_int(&mut bytes, 1, ir);
    put_bytes(&mut bytes, 2, b"precast");
    put_bytes(&mut bytes, 3, env!("CARGO_PKG_VERSION").as_bytes());
    put_bytes(&mut bytes, 7, &graph.bytes());
    let mut version = Vec::new();
    put_bytes(&mut version, 1, b"");
    put_int(&mut version, 2, opset);
    put_bytes(&mut bytes, 8, &version);
    bytes
}

impl Graph {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.nodes.iter().for_each(|node| put_bytes(&mut bytes, 1, &node.bytes()));
        put_bytes(&mut bytes, 2, self.name.as_bytes());
        self.initialisers.iter().for_each(|(name, x)| put_bytes(&mut bytes, 5, &tensor(x, name)));
        self.inputs.iter().for_each(|input| put_bytes(&mut bytes, 11, &input.bytes()));
        self.outputs.iter().for_each(|output| put_bytes(&mut bytes, 12, &output.bytes()));
        bytes
    }
}

impl Node {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.inputs.iter().for_each(|name| put_bytes(&mut bytes, 1, name.as_bytes()));
        self.outputs.iter().for_each(|name| put_bytes(&mut bytes, 2, name.as_bytes()));
        put_bytes(&mut bytes, 3, self.name.as_bytes());
        put_bytes(&mut bytes, 4, self.op.as_bytes());
        for (name, value) in &self.attributes {
            put_bytes(&mut bytes, 5, &attribute(name, value));
        }
        if !self.cell.is_empty() {
            let mut entry = Vec::new();
            put_bytes(&mut entry, 1, b"pkg.torch.onnx.name_scopes");
            put_bytes(&mut entry, 2, scopes(&self.cell, &self.name).as_bytes());
            put_bytes(&mut bytes, 9, &entry);
        }
        bytes
    }
}

/// Returns the path of a node as torch's exporter notes it: the paths of all cells around it, and its name.
fn scopes(cell: &str, name: &str) -> String {
    let ends = cell.match_indices('.').map(|(at, _)| at).chain([cell.len()]);
    let around = ends.map(|end| format!("'{}', ", &cell[..end]));
    format!("['', {}'{name}']", around.collect::<String>())
}

fn attribute(name: &str, value: &Attr) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_bytes(&mut bytes, 1, name.as_bytes());
    let kind = match value {
        Attr::Float(x) => {
            put_float(&mut bytes, 2, *x as f32);
            1
        }
        Attr::Int(x) => {
            put_int(&mut bytes, 3, *x);
            2
        }
        Attr::Text(text) => {
            put_bytes(&mut bytes, 4, text.as_bytes());
            3
        }
        Attr::Tensor(x) => {
            put_bytes(&mut bytes, 5, &tensor(x, ""));
            4
        }
        Attr::Body(graph) => {
            put_bytes(&mut bytes, 6, &graph.bytes());
            5
        }
        Attr::Ints(all) => {
            all.iter().for_each(|x| put_int(&mut bytes, 8, *x));
            7
        }
        Attr::Texts(all) => {
            all.iter().for_each(|text| put_bytes(&mut bytes, 9, text.as_bytes()));
            8
        }
    };
    put_int(&mut bytes, 20, kind);
    bytes
}

fn tensor(x: &Tensor, name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    x.shape().iter().for_each(|&len| put_int(&mut bytes, 1, len as i64));
    put_int(&mut bytes, 2, i64::from(schema::elem(x.dtype()).0));
    if !name.is_empty() {
        put_bytes(&mut bytes, 8, name.as_bytes());
    }
    put_bytes(&mut bytes, 9, &bytes_of(x));
    bytes
}

impl Declared {
    fn bytes(&self) -> Vec<u8> {
        let mut kind = Vec::new();
        put_int(&mut kind, 1, i64::from(schema::elem(self.value.dtype).0));
        if let Some(axes) = &self.axes {
            let mut shape = Vec::new();
            for axis in axes {
                let mut dim = Vec::new();
                match axis {
                    Ok(len) => put_int(&mut dim, 1, *len),
                    Err(name) => put_bytes(&mut dim, 2, name.as_bytes()),
                }
                put_bytes(&mut shape, 1, &dim);
            }
            put_bytes(&mut kind, 2, &shape);
        }
        let (mut of_tensor, mut bytes) = (Vec::new(), Vec::new());
        put_bytes(&mut of_tensor, 1, &kind);
        put_bytes(&mut bytes, 1, self.value.name.as_bytes());
        put_bytes(&mut bytes, 2, &of_tensor);
        bytes
    }
}
