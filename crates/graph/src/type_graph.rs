//! The abstract graph for painting: nodes with type attributes, and edges between ports.

use std::collections::HashMap;

use super::{edges::Edges, graph::Port};
use precast::{
    DType,
    error::{Error, Result},
};

/// A type attribute of a node, such as the `T` of a product, or a fixed type of one of its ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeAttr {
    /// Its name. A fixed type is named after itself.
    pub name: String,
    /// Its dtype, by long name: `float32`. May be one that tensors of this library do not have, such as `variant`.
    pub dtype: String,
    /// `true` when the op allows no other dtype here.
    pub fixed: bool,
}

impl TypeAttr {
    /// Returns whether it is f32.
    pub fn is_f32(&self) -> bool {
        self.dtype == DType::F32.long_name()
    }
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeNode {
    /// Its unique name.
    pub name: String,
    /// The name of its op.
    pub op: String,
    /// `true` when its types may be changed: it is on the device being rewritten and not to be preserved.
    pub may_change: bool,
    /// Its type attributes.
    pub types: Vec<TypeAttr>,
    /// The outputs that its inputs read.
    pub inputs: Vec<Port>,
    /// For each input, the index of its type in `types`.
    pub in_types: Vec<usize>,
    /// For each output, the index of its type in `types`.
    pub out_types: Vec<usize>,
}

/// Nodes in any order. A cycle is a loop of TensorFlow: a `NextIteration` passes a value to the `Merge` of the next
/// iteration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeGraph {
    /// The nodes.
    pub nodes: Vec<TypeNode>,
}

impl TypeGraph {
    /// Adds a node with one type attribute `T`, shared by all its inputs and its only output. Returns its output.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](precast::ErrorKind::Value) for an input that is not an output of a previously added node.
    /// [`check`](TypeGraph::check) verifies that names are unique, for all nodes at once.
    pub fn add(&mut self, name: &str, op: &str, dtype: DType, inputs: &[Port]) -> Result<Port> {
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

    /// Checks that names are unique, that every port and type referred to exists, and that nodes form no cycle other
    /// than loops.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](precast::ErrorKind::Value), naming the node, or the nodes of the cycle.
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
        match self.circle() {
            None => Ok(()),
            Some(circle) => Err(self.circle_error(&circle)),
        }
    }

    /// Returns a cycle of nodes, each reading the next. A `Merge` reads the `NextIteration` of the previous iteration,
    /// so that edge does not count.
    fn circle(&self) -> Option<Vec<usize>> {
        let reads = |node: usize| {
            let inputs = self.nodes[node].inputs.iter().map(|input| input.node);
            let is_merge = self.nodes[node].op == "Merge";
            inputs.filter(move |&input| !(is_merge && self.nodes[input].op == "NextIteration"))
        };
        let edges = (0..self.nodes.len()).flat_map(|node| reads(node).map(move |input| (input, node)));
        let consumers = Edges::new(self.nodes.len(), edges);
        let mut waits_for: Vec<usize> = (0..self.nodes.len()).map(|node| reads(node).count()).collect();
        let mut ready: Vec<usize> = (0..self.nodes.len()).filter(|&node| waits_for[node] == 0).collect();
        while let Some(node) = ready.pop() {
            for &consumer in consumers.of(node) {
                waits_for[consumer] -= 1;
                if waits_for[consumer] == 0 {
                    ready.push(consumer);
                }
            }
        }
        // Each waiting node reads another waiting one, so going upstream from any of them ends in a cycle.
        let mut node = waits_for.iter().position(|&count| count > 0)?;
        let (mut met, mut path) = (vec![false; self.nodes.len()], Vec::new());
        while !std::mem::replace(&mut met[node], true) {
            path.push(node);
            node = reads(node).find(|&input| waits_for[input] > 0)?;
        }
        let begin = path.iter().position(|&earlier| earlier == node)?;
        Some(path.split_off(begin))
    }

    fn circle_error(&self, circle: &[usize]) -> Error {
        const MOST: usize = 8;
        let name = |node: &usize| format!("`{}`", self.nodes[*node].name);
        let mut names: Vec<String> = circle.iter().take(MOST).map(name).collect();
        match circle.len() - names.len() {
            0 => names.push(name(&circle[0])),
            more => names.push(format!("and {more} more, up to {}", name(&circle[0]))),
        }
        let words = match circle {
            [own] => format!("node {} reads its own output", name(own)),
            _ => format!("a circle of nodes, each of which reads the next: {}", names.join(", ")),
        };
        Error::value(format!("{words}; only a loop is a circle: a NextIteration that a Merge reads"))
    }

    /// Returns the inputs that read each output.
    pub(crate) fn consumers(&self) -> HashMap<Port, Vec<Port>> {
        let mut consumers: HashMap<Port, Vec<Port>> = HashMap::new();
        for (node, n) in self.nodes.iter().enumerate() {
            for (port, input) in n.inputs.iter().enumerate() {
                consumers.entry(*input).or_default().push(Port { node, port });
            }
        }
        consumers
    }
}
