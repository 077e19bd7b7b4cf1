//! The values of a model and who makes and reads them, in every scope.

use std::collections::HashMap;

use super::{
    graph::{Graph, Node},
    model::OnnxModel,
    schema::Schema,
    tensor::Tensor,
};
use precast::error::{Error, Result};

/// The scopes, values and nodes of a model, each by index. Functions are not entered: a call of one is a node.
pub(super) struct Values<'a> {
    pub model: &'a OnnxModel,
    /// The graph of the model is the first.
    pub scopes: Vec<Scope<'a>>,
    pub values: Vec<Value<'a>>,
    /// In the order in which they run; the nodes of a body come after the node that has it.
    pub nodes: Vec<Placed<'a>>,
}

/// A graph: that of the model, or a body.
pub(super) struct Scope<'a> {
    pub graph: &'a Graph,
    /// The node whose body it is.
    pub owner: Option<usize>,
    pub names: HashMap<&'a str, usize>,
    pub inputs: Vec<usize>,
    pub outputs: Vec<usize>,
    /// Its nodes, in order.
    pub nodes: Vec<usize>,
}

/// A named value.
pub(super) struct Value<'a> {
    pub name: &'a str,
    pub scope: usize,
    pub origin: Origin,
    /// The initialiser with its numbers, if any.
    pub initialiser: Option<usize>,
}

/// The maker of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// An input of its graph, by index; it may have an initialiser as well.
    Input,
    Initialiser,
    Sparse,
    Node {
        node: usize,
    },
}

/// A node in its scope.
pub(super) struct Placed<'a> {
    pub node: &'a Node,
    pub scope: usize,
    /// The values that it reads; `None` for an input that is left out.
    pub inputs: Vec<Option<usize>>,
    pub outputs: Vec<Option<usize>>,
    /// The scopes of its bodies, by the name of the attribute.
    pub bodies: Vec<(&'a str, usize)>,
    /// The schema of its operator; `None` for an operator that precast does not know.
    pub schema: Option<&'static Schema>,
}

impl<'a> Placed<'a> {
    /// Returns the value of an input; `None` for one that is left out.
    pub fn input(&self, place: usize) -> Option<usize> {
        self.inputs.get(place).copied().flatten()
    }

    /// Returns the value of an output; `None` for one that is left out.
    pub fn output(&self, place: usize) -> Option<usize> {
        self.outputs.get(place).copied().flatten()
    }

    /// Returns the op of a node of the default domain; an empty text for another one.
    pub fn op(&self) -> &'a str {
        if self.node.domain.is_empty() { &self.node.op } else { "" }
    }
}

impl<'a> Values<'a> {
    /// Finds the values of a model.
    ///
    /// # Errors
    /// [`ErrorKind::Model`](precast::ErrorKind::Model) for a name that nothing makes, that is made twice or too late.
    pub fn of(model: &'a OnnxModel) -> Result<Self> {
        let mut values = Values { model, scopes: Vec::new(), values: Vec::new(), nodes: Vec::new() };
        values.enter(&model.graph, None)?;
        Ok(values)
    }

    fn enter(&mut self, graph: &'a Graph, owner: Option<usize>) -> Result<usize> {
        let scope = self.scopes.len();
        let names = HashMap::with_capacity(graph.nodes.len() + graph.initialisers.len());
        self.scopes.push(Scope { graph, owner, names, inputs: Vec::new(), outputs: Vec::new(), nodes: Vec::new() });
        for input in &graph.inputs {
            let value = self.add(scope, &input.name, Origin::Input)?;
            self.scopes[scope].inputs.push(value);
        }
        for (index, tensor) in graph.initialisers.iter().enumerate() {
            let own = self.scopes[scope].names.get(&tensor.name[..]).copied();
            let value = match own.filter(|&value| self.values[value].initialiser.is_none()) {
                Some(input) => input,
                None => self.add(scope, &tensor.name, Origin::Initialiser)?,
            };
            self.values[value].initialiser = Some(index);
        }
        for tensor in &graph.sparse {
            if !self.scopes[scope].names.contains_key(&tensor.name[..]) {
                self.add(scope, &tensor.name, Origin::Sparse)?;
            }
        }
        for node in &graph.nodes {
            self.place(scope, node)?;
        }
        for output in &graph.outputs {
            let value = self.find(scope, &output.name).ok_or_else(|| {
                Error::model(format!("nothing makes the output `{}` of the graph `{}`", output.name, graph.name))
            })?;
            self.scopes[scope].outputs.push(value);
        }
        Ok(scope)
    }

    fn place(&mut self, scope: usize, node: &'a Node) -> Result<()> {
        let inputs = node.inputs.iter().map(|name| match &name[..] {
            "" => Ok(None),
            name => self.find(scope, name).map(Some).ok_or_else(|| self.unmade(scope, node, name)),
        });
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        let index = self.nodes.len();
        let is_function = self.model.functions.iter().any(|function| function.is_of(node));
        let version = self.model.opsets.get(&node.domain).copied();
        let schema = version.filter(|_| !is_function).and_then(|version| Schema::of(&node.domain, &node.op, version));
        self.nodes.push(Placed { node, scope, inputs, outputs: Vec::new(), bodies: Vec::new(), schema });
        self.scopes[scope].nodes.push(index);
        for (name, graph) in node.bodies() {
            let body = self
                .enter(graph, Some(index))
                .map_err(|e| e.context(format!("`{name}` of node `{}`", node.label())))?;
            self.nodes[index].bodies.push((name, body));
        }
        for name in &node.outputs {
            let value = match &name[..] {
                "" => None,
                name => Some(
                    self.add(scope, name, Origin::Node { node: index })
                        .map_err(|e| e.context(format!("node `{}`", node.label())))?,
                ),
            };
            self.nodes[index].outputs.push(value);
        }
        Ok(())
    }

    fn add(&mut self, scope: usize, name: &'a str, origin: Origin) -> Result<usize> {
        let value = self.values.len();
        if self.scopes[scope].names.insert(name, value).is_some() {
            return Err(Error::model(format!("`{name}` is made twice in one graph; a value has one maker")));
        }
        self.values.push(Value { name, scope, origin, initialiser: None });
        Ok(value)
    }

    /// Returns the tensor of an initialiser or a constant.
    pub fn tensor(&self, value: usize) -> Option<&'a Tensor> {
        let of = &self.values[value];
        match (of.initialiser, of.origin) {
            (Some(index), _) => self.scopes[of.scope].graph.initialisers.get(index),
            (None, Origin::Node { node }) if self.nodes[node].node.op == "Constant" => {
                self.nodes[node].node.attribute("value")?.tensor.as_ref()
            }
            _ => None,
        }
    }

    /// Returns the number of terms that a product with a weight adds, as the shape of the weight says.
    pub fn terms(&self, placed: &Placed<'_>) -> Option<usize> {
        let of = &self.values[placed.input(1)?];
        let dims = &self.scopes[of.scope].graph.initialisers[of.initialiser?].dims;
        match &placed.node.op[..] {
            "MatMul" => dims.iter().rev().nth(1).copied(),
            "Gemm" => {
                let turned = self.model.int(placed.node, "transB").ok().flatten().unwrap_or(0) != 0;
                dims.get(usize::from(turned)).copied()
            }
            "Conv" => Some(dims.iter().skip(1).product()),
            _ => None,
        }
    }

    /// Returns the value with a name, in a scope or around it.
    fn find(&self, scope: usize, name: &str) -> Option<usize> {
        let mut at = Some(scope);
        while let Some(scope) = at {
            if let Some(&value) = self.scopes[scope].names.get(name) {
                return Some(value);
            }
            at = self.scopes[scope].owner.map(|owner| self.nodes[owner].scope);
        }
        None
    }

    fn unmade(&self, scope: usize, node: &Node, name: &str) -> Error {
        let mut at = Some(scope);
        while let Some(scope) = at {
            let nodes = &self.scopes[scope].graph.nodes;
            if let Some(maker) = nodes.iter().find(|maker| maker.outputs.iter().any(|output| output == name)) {
                return node.wrong(format!(
                    "it reads `{name}`, which node `{}` makes later; the nodes of a graph must be in the order in which \
                     they run, without a circle",
                    maker.label()
                ));
            }
            at = self.scopes[scope].owner.map(|owner| self.nodes[owner].scope);
        }
        node.wrong(format!("it reads `{name}`, which nothing makes"))
    }

    /// Returns the paths of the nodes for rules, each unique: scopes and names with dots, `a.q.MatMul` for
    /// `/a/q/MatMul`. A node without a name has that of its first output.
    pub fn paths(&self) -> Vec<String> {
        let mut taken: HashMap<String, usize> = HashMap::with_capacity(self.nodes.len());
        let mut path = |placed: &Placed<'_>| {
            let dotted = |name: &str| {
                let parts = name.split(['/', '.']).filter(|part| !part.is_empty());
                parts.collect::<Vec<_>>().join(".")
            };
            let own = match dotted(placed.node.label()) {
                empty if empty.is_empty() => placed.node.op.clone(),
                own => own,
            };
            let scope = dotted(&placed.node.scope);
            let whole =
                if scope.is_empty() || own.starts_with(&format!("{scope}.")) { own } else { format!("{scope}.{own}") };
            let met = taken.entry(whole.clone()).or_insert(0);
            *met += 1;
            if *met == 1 { whole } else { format!("{whole}_{met}") }
        };
        self.nodes.iter().map(&mut path).collect()
    }
}
