//! The abstract graph that is painted: nodes with type attributes, and edges between ports.

use std::collections::HashMap;

use crate::{
    DType,
    error::{Error, Result},
};

/// A type attribute of a node, such as the `T` of a product, or a fixed type of one of its ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeAttr {
    /// Its name. A fixed type is named after itself.
    pub name: String,
    /// The dtype it has, by its long name: `float32`. It may be one that tensors of this library do not have, such as
    /// `variant`.
    pub dtype: String,
    /// Whether the op allows no other dtype here.
    pub fixed: bool,
}

impl TypeAttr {
    /// Whether it is f32.
    pub fn is_f32(&self) -> bool {
        self.dtype == DType::F32.long_name()
    }
}

/// An output or an input of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Port {
    /// The node, by its place in [`TypeGraph::nodes`].
    pub node: usize,
    /// Which of its outputs or inputs.
    pub port: usize,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeNode {
    /// Its name. No two nodes have one name.
    pub name: String,
    /// The name of its op.
    pub op: String,
    /// Whether its types may be changed: it is on the device that is rewritten, and nobody asked to preserve it.
    pub may_change: bool,
    /// Its type attributes.
    pub types: Vec<TypeAttr>,
    /// The outputs that its inputs read.
    pub inputs: Vec<Port>,
    /// For each input, the place of its type in `types`.
    pub in_types: Vec<usize>,
    /// For each output, the place of its type in `types`.
    pub out_types: Vec<usize>,
}

/// Nodes in order. Loops are allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeGraph {
    /// The nodes.
    pub nodes: Vec<TypeNode>,
}

impl TypeGraph {
    /// Adds a node with one type attribute `T`, which all its inputs and its only output have. Returns its output.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a name that another node has, and for an input that is no output of
    /// a node that was added before.
    pub fn add(&mut self, name: &str, op: &str, dtype: DType, inputs: &[Port]) -> Result<Port> {
        if self.nodes.iter().any(|node| node.name == name) {
            return Err(Error::value(format!("two nodes are called `{name}`")));
        }
        let missing = |input: &&Port| self.nodes.get(input.node).is_none_or(|node| input.port >= node.out_types.len());
        if let Some(input) = inputs.iter().find(missing) {
            return Err(Error::value(format!(
                "`{name}` reads output {} of node {}: there is none",
                input.port, input.node
            )));
        }
        self.nodes.push(TypeNode {
            name: name.into(),
            op: op.into(),
            may_change: true,
            types: vec![TypeAttr { name: "T".into(), dtype: dtype.long_name().into(), fixed: false }],
            inputs: inputs.to_vec(),
            in_types: vec![0; inputs.len()],
            out_types: vec![0],
        });
        Ok(Port { node: self.nodes.len() - 1, port: 0 })
    }

    /// Checks that names differ and that every port and type that is referred to exists.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value), naming the node.
    pub fn check(&self) -> Result<()> {
        let mut names = HashMap::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let wrong = |what: String| Err(Error::value(format!("node `{}`: {what}", node.name)));
            if names.insert(&node.name[..], ()).is_some() {
                return wrong("another node has this name".into());
            }
            let types = node.types.len();
            if let Some(place) = node.in_types.iter().chain(&node.out_types).find(|&&place| place >= types) {
                return wrong(format!("a port has type {place}, and the node has {types}"));
            }
            if node.inputs.len() != node.in_types.len() {
                return wrong(format!("{} inputs have {} types", node.inputs.len(), node.in_types.len()));
            }
            for input in &node.inputs {
                match self.nodes.get(input.node) {
                    None => return wrong(format!("it reads node {}, and there are {}", input.node, self.nodes.len())),
                    Some(producer) if input.port >= producer.out_types.len() => {
                        let outputs = producer.out_types.len();
                        return wrong(format!(
                            "it reads output {} of `{}`, which has {outputs}",
                            input.port, producer.name
                        ));
                    }
                    Some(_) => {}
                }
            }
        }
        Ok(())
    }

    /// The inputs that read each output.
    pub(super) fn consumers(&self) -> HashMap<Port, Vec<Port>> {
        let mut consumers: HashMap<Port, Vec<Port>> = HashMap::new();
        for (node, n) in self.nodes.iter().enumerate() {
            for (port, input) in n.inputs.iter().enumerate() {
                consumers.entry(*input).or_default().push(Port { node, port });
            }
        }
        consumers
    }
}
