//! Nodes and bodies of a model, ready to run.

use std::collections::HashSet;

use super::value::{Item, Value};
use precast::error::{Error, Result};

/// A graph or a function.
#[derive(Clone, Debug, Default)]
pub(super) struct Body {
    pub inputs: Vec<String>,
    pub outputs: Vec<String>,
    /// Initialisers and values of constant nodes, by name.
    pub constants: Vec<(String, Item)>,
    /// Parameters, by name, with their places in the network.
    pub params: Vec<(String, Place)>,
    pub steps: Vec<Step>,
    /// Names of constants that are initialisers.
    pub initialisers: HashSet<String>,
}

/// The place of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A parameter of the network itself.
    Own(usize),
    /// A parameter of one of its cells: the number of the cell, and that among its parameters.
    Cell(usize, usize),
}

/// A node.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// The name, or that of its first output.
    pub label: String,
    pub name: String,
    pub op: String,
    pub scope: String,
    pub opset: i64,
    pub inputs: Vec<String>,
    pub outputs: Vec<String>,
    pub attributes: Vec<(String, Attr)>,
    pub action: Action,
    /// The cell in whose slot it runs, and the inputs that are parameters of the cell, in their order there.
    pub cell: Option<(usize, Vec<usize>)>,
    /// `true` when it runs in float32 in every region.
    pub wide: bool,
    /// Values that no later node of the body reads.
    pub last: Vec<String>,
}

/// The action of a node.
#[derive(Clone, Debug)]
pub(super) enum Action {
    Op(Run),
    If,
    Loop,
    Scan,
    Map,
    /// Runs a body with names of its own.
    Function(Box<Body>),
    /// Runs a body that reads the names around it: the chosen branch of an `If`.
    Branch(Box<Body>),
    /// An op that cannot be run, with the reason.
    Refused(String),
}

/// The value of an attribute.
#[derive(Clone, Debug)]
pub(super) enum Attr {
    Int(i64),
    Ints(Vec<i64>),
    Float(f32),
    Floats(Vec<f32>),
    Text(String),
    Texts(Vec<String>),
    Tensor(Item),
    Body(Box<Body>),
    /// A type that no op here reads.
    Other,
}

impl Attr {
    pub fn called(&self) -> &'static str {
        match self {
            Attr::Int(_) => "an integer",
            Attr::Ints(_) => "a list of integers",
            Attr::Float(_) => "a number",
            Attr::Floats(_) => "a list of numbers",
            Attr::Text(_) => "a text",
            Attr::Texts(_) => "a list of texts",
            Attr::Tensor(_) => "a tensor",
            Attr::Body(_) => "a graph",
            Attr::Other => "of another type",
        }
    }
}

impl Step {
    pub fn body(&self, name: &str) -> Result<&Body> {
        match self.attributes.iter().find(|(other, _)| other == name) {
            Some((_, Attr::Body(body))) => Ok(body),
            _ => Err(Error::value(format!("it has no graph `{name}`"))),
        }
    }

    pub fn bodies(&self) -> impl Iterator<Item = &Body> {
        let in_attributes = self.attributes.iter().filter_map(|(_, attr)| match attr {
            Attr::Body(body) => Some(&**body),
            _ => None,
        });
        let own = match &self.action {
            Action::Function(body) | Action::Branch(body) => Some(&**body),
            _ => None,
        };
        in_attributes.chain(own)
    }

    pub fn bodies_mut(&mut self) -> impl Iterator<Item = &mut Body> {
        let in_attributes = self.attributes.iter_mut().filter_map(|(_, attr)| match attr {
            Attr::Body(body) => Some(&mut **body),
            _ => None,
        });
        let own = match &mut self.action {
            Action::Function(body) | Action::Branch(body) => Some(&mut **body),
            _ => None,
        };
        in_attributes.chain(own)
    }

    /// Puts the name and the op before an error.
    pub fn at(&self, error: Error) -> Error {
        error.context(format!("node `{}` ({})", self.label, self.op))
    }
}

/// The function of an op.
pub(super) type Run = fn(&Call<'_>) -> Result<Vec<Value>>;

/// A node with the values of its inputs.
pub(super) struct Call<'a> {
    pub step: &'a Step,
    pub inputs: Vec<Value>,
}
