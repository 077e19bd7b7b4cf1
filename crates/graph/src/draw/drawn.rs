//! The nodes of a drawing, whatever graph they come from.

use std::collections::HashMap;

use super::super::{
    graph::{Graph, Kind, Node, described, shown},
    painting::Painting,
};
use precast::{DType, policy::GraphList};

/// The kind of a drawn node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A tensor passed by the caller.
    Input,
    Op,
    Cast,
    /// A parameter, a constant, or a node that computes nothing.
    Other,
}

/// A node as it is drawn.
#[derive(Clone, Debug)]
pub(crate) struct Drawn {
    pub name: String,
    /// The part of the name that is shown in the box.
    pub label: String,
    pub op: String,
    /// Path of its cell; empty outside of every cell.
    pub cell: String,
    pub form: Form,
    /// The nodes that it reads, each before it.
    pub inputs: Vec<usize>,
    /// Descriptions of its outputs: `f32 [b, 3]`.
    pub outputs: Vec<String>,
    /// The shape of its first output, empty where it is unknown.
    pub shape: String,
    /// The dtype of its first output.
    pub dtype: Option<DType>,
    /// Its attributes.
    pub attributes: String,
    /// The list of its op.
    pub list: Option<GraphList>,
    /// The reason for its dtype.
    pub why: Option<String>,
    /// `true` if the graph returns one of its outputs.
    pub returned: bool,
}

impl Drawn {
    /// Creates a node outside of every cell, of unknown dtype.
    pub fn new(name: String, op: String, form: Form, inputs: Vec<usize>) -> Self {
        Drawn {
            label: name.clone(),
            name,
            op,
            cell: String::new(),
            form,
            inputs,
            outputs: Vec::new(),
            shape: String::new(),
            dtype: None,
            attributes: String::new(),
            list: None,
            why: None,
            returned: false,
        }
    }

    pub fn is_op(&self) -> bool {
        matches!(self.form, Form::Op | Form::Cast)
    }

    pub fn is_cast(&self) -> bool {
        self.form == Form::Cast
    }

    pub fn is_low(&self) -> bool {
        self.dtype.is_some_and(DType::is_low)
    }

    /// Returns the fill colour.
    pub fn fill(&self) -> &'static str {
        match (self.form, self.dtype) {
            (Form::Cast, _) => "#ffd8a8",
            (Form::Input, _) => "#e9ecef",
            (_, Some(dtype)) if dtype.is_low() => "#a5d8ff",
            (_, Some(DType::I64 | DType::Bool)) => "#e9ecef",
            _ => "#ffffff",
        }
    }
}

/// Returns the nodes of a recorded graph, with what painting knows of them.
pub(super) fn drawn(graph: &Graph, painting: Option<&Painting>) -> Vec<Drawn> {
    let told = |(name, value): (&str, &serde_json::Value)| format!("{name} {}", shown(value));
    let vertices = painting.iter().flat_map(|painting| &painting.vertices);
    let lists: HashMap<&str, GraphList> = vertices.filter_map(|vertex| Some((&*vertex.node, vertex.list?))).collect();
    let drawn = |node: &Node| {
        let form = match node.kind {
            Kind::Input => Form::Input,
            Kind::Op(_) if node.is_cast() => Form::Cast,
            Kind::Op(_) => Form::Op,
            _ => Form::Other,
        };
        let inputs = node.inputs.iter().map(|port| port.node).collect();
        let first = node.outputs.first();
        Drawn {
            cell: node.cell.clone(),
            outputs: node.outputs.iter().map(described).collect(),
            shape: first.map_or(String::new(), |output| format!("{:?}", output.shape)),
            dtype: first.map(|output| output.dtype),
            attributes: node.attributes.iter().map(told).collect::<Vec<_>>().join(", "),
            list: lists.get(&node.name[..]).filter(|_| form == Form::Op).copied(),
            why: painting.and_then(|painting| painting.explain(&node.name).ok()),
            ..Drawn::new(node.name.clone(), node.op_name().into(), form, inputs)
        }
    };
    let mut nodes: Vec<Drawn> = graph.nodes.iter().map(drawn).collect();
    graph.outputs.iter().for_each(|port| nodes[port.node].returned = true);
    nodes
}
