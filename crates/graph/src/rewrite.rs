//! Graph rewriting: painting, then a cast at each output that is read in another dtype.

use std::{collections::HashMap, sync::Arc};

use super::{
    casts::{NewCast, casts},
    device::Device,
    graph::{Graph, Kind, Names, Node, Port},
    paint::{self, paint_listed},
    painting::Painting,
    type_graph::{TypeAttr, TypeGraph, TypeNode},
};
use precast::{
    DType, Op,
    catalogue::Attributes,
    error::{Error, Result},
    plan::RuleRef,
    policy::{GraphList, GraphPolicy, Keep, RunAs},
};

/// A rewritten graph, with the reasons.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Rewritten {
    /// The graph with its casts. Parameters, inputs and outputs are unchanged.
    pub graph: Graph,
    /// The decision for each node of the original graph.
    pub(super) painting: Painting,
}

impl Rewritten {
    /// Explains in a sentence why a node of the original graph runs as it does.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](precast::ErrorKind::Value) when no node has that name, with the nearest one.
    pub fn explain(&self, node: &str) -> Result<String> {
        self.painting.explain(node)
    }
}

/// Returns the path by which rules name a node: its cell, and its own name.
fn node_path(node: &Node) -> String {
    if node.cell.is_empty() { node.name.clone() } else { format!("{}.{}", node.cell, node.name) }
}

/// Returns the rule that decides a node, with the name of the node.
pub(crate) fn rule(policy: &GraphPolicy, path: &str, op: &str, name: &str) -> Option<(String, Arc<RuleRef>)> {
    let rule = RuleRef::of_node(policy.rule_of(path, op)?)?;
    Some((name.to_string(), Arc::new(rule)))
}

/// Returns, for each node given by path and op, the list on which a rule puts it, and nothing for the others.
///
/// # Errors
/// [`ErrorKind::Path`](precast::ErrorKind::Path) for a rule that fits no node, or another number than it expects.
pub(crate) fn rule_lists<'a>(
    policy: &GraphPolicy,
    nodes: impl Iterator<Item = (&'a str, &'a str)> + Clone,
    count: usize,
) -> Result<Vec<Option<Option<GraphList>>>> {
    for rule in &policy.rules {
        let met = nodes.clone().filter(|(path, op)| rule.select.matches(path, op)).count();
        let select = rule.select.of_nodes();
        if met == 0 {
            let near = rule.select.nearest(nodes.clone().map(|(path, _)| path), nodes.clone().map(|(_, op)| op));
            return Err(rule.origin.error(Error::path(format!("the rule for {select} fits no node{near}"))));
        }
        if let Some(expected) = rule.expect.filter(|&expected| expected != met) {
            let words = format!("the rule for {select} fits {met} nodes, and expects {expected}");
            return Err(rule.origin.error(Error::path(words)));
        }
    }
    let list = |(path, op): (&str, &str)| {
        let rule = policy.rule_of(path, op)?;
        // On no list, a node stays f32 and does not keep others so.
        Some((rule.run == Some(RunAs::Low)).then_some(GraphList::Allow))
    };
    let mut lists: Vec<_> = nodes.map(list).collect();
    lists.resize(count, None);
    Ok(lists)
}

impl Graph {
    /// Paints the graph and inserts the casts into a copy.
    ///
    /// Every kernel of this library runs in f16 and bf16: it stores them and computes in f32. Statistics and parameters
    /// of norms stay f32, and so do parameters, inputs and outputs of the graph, and custom ops.
    ///
    /// # Errors
    /// Those of a policy whose fields are inconsistent; [`ErrorKind::Value`](precast::ErrorKind::Value) for a graph that already holds 16-bit tensors: of a network with
    /// adapters or low weights, or rewritten before.
    ///
    /// ```
    /// use precast::prelude::*;
    /// use precast_graph::{Graph, GraphPolicy};
    /// let rng = &mut Rng::seed(1);
    /// let net = Child::new(sequential![Dense::new(4, 8, rng), ReLU, Dense::new(8, 2, rng)]);
    /// let graph = Graph::trace(&net, &[Tensor::ones(&[3, 4], DType::F32)])?;
    /// let low = graph.rewrite(&GraphPolicy::named("graph")?)?;
    /// let why = low.explain("relu_1")?;
    /// assert_eq!(why, "relu_1 is low: between linear_1 and linear_2, which are on the allow list");
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn rewrite(&self, policy: &GraphPolicy) -> Result<Rewritten> {
        let low = |node: &&Node| node.outputs.iter().any(|output| output.dtype.is_low());
        if let Some(node) = self.nodes.iter().find(low) {
            let cell = if node.cell.is_empty() { String::new() } else { format!(" of cell `{}`", node.cell) };
            return Err(Error::value(format!(
                "`{}`{cell} is {} already; a graph is rewritten once, and only that of a network without adapters and low \
                 weights",
                node.name, node.outputs[0].dtype
            )));
        }
        let types = self.type_graph(policy);
        let mut painting = paint_listed(&types, self.lists(&types, policy)?, policy, &Device::any())?;
        let named = self.nodes.iter().map(|node| (node_path(node), node));
        painting.rules = named.filter_map(|(path, node)| rule(policy, &path, node.op_name(), &node.name)).collect();
        let casts = casts(&types, &painting);
        let graph = self.with_casts(&types, &painting, &casts);
        Ok(Rewritten { graph, painting })
    }

    /// Returns the list of each node to be painted: that of the rule for it, or of its op.
    fn lists(&self, types: &TypeGraph, policy: &GraphPolicy) -> Result<Vec<Option<GraphList>>> {
        if policy.keep != Keep::default() {
            return Err(Error::policy("`keep` is about ONNX models; the graph of a call has no ranges"));
        }
        let mut lists = paint::lists(types, policy);
        let paths: Vec<String> = self.nodes.iter().map(node_path).collect();
        let named = paths.iter().zip(&self.nodes).map(|(path, node)| (&path[..], node.op_name()));
        let decided = rule_lists(policy, named, lists.len())?;
        lists.iter_mut().zip(decided).for_each(|(list, rule)| *list = rule.unwrap_or(*list));
        Ok(lists)
    }

    /// Returns the graph to be painted: its nodes in order, followed by one for each output, which does not change.
    fn type_graph(&self, policy: &GraphPolicy) -> TypeGraph {
        let mut nodes: Vec<TypeNode> = self.nodes.iter().map(|node| self.type_node(node, policy)).collect();
        let mut names = Names::default();
        nodes.iter().for_each(|node| _ = names.unique(&node.name));
        for port in &self.outputs {
            nodes.push(TypeNode {
                name: names.numbered("return"),
                op: "_Retval".into(),
                may_change: false,
                types: vec![fixed(self.output(*port).dtype)],
                inputs: vec![*port],
                in_types: vec![0],
                out_types: vec![],
            });
        }
        TypeGraph { nodes }
    }

    fn type_node(&self, node: &Node, policy: &GraphPolicy) -> TypeNode {
        let mut types = Types::default();
        let (in_types, out_types) = match &node.kind {
            Kind::Op(Op::Cast) => {
                let from = self.output(node.inputs[0]).dtype;
                (vec![types.own("SrcT", from)], vec![types.own("DstT", node.outputs[0].dtype)])
            }
            kind => {
                // The statistics and parameters of a norm have a type of their own, which stays f32.
                let norm = matches!(kind, Kind::Op(op) if op.family() == Some(precast_policy::catalogue::Family::Norm));
                let mut of = |i: usize, dtype: DType| match dtype {
                    DType::F32 if !(norm && i > 0) => types.own("T", dtype),
                    dtype => types.fixed(dtype),
                };
                let inputs = node.inputs.iter().enumerate().map(|(i, port)| of(i, self.output(*port).dtype)).collect();
                (inputs, node.outputs.iter().enumerate().map(|(i, output)| of(i, output.dtype)).collect())
            }
        };
        let (op, may_change) = match &node.kind {
            Kind::Input => ("Placeholder".into(), false),
            Kind::Parameter(_) => ("Parameter".into(), false),
            Kind::Constant(_) => ("Const".into(), false),
            Kind::StopGradient => ("StopGradient".into(), true),
            // The code of a custom op determines its own dtypes.
            Kind::Op(op @ Op::Custom(_)) => (op.name().into(), false),
            Kind::Op(op) => (policy.name_of(*op), true),
        };
        let (name, inputs) = (node.name.clone(), node.inputs.clone());
        TypeNode { name, op, may_change, types: types.0, inputs, in_types, out_types }
    }

    fn with_casts(&self, types: &TypeGraph, painting: &Painting, casts: &[NewCast]) -> Graph {
        let mut after: HashMap<usize, Vec<&NewCast>> = HashMap::new();
        casts.iter().for_each(|cast| after.entry(cast.of.node).or_default().push(cast));
        let mut nodes: Vec<Node> = Vec::with_capacity(self.nodes.len() + casts.len());
        let mut places = Vec::with_capacity(self.nodes.len());
        // The replacement of each port.
        let mut instead: HashMap<Port, Port> = HashMap::new();
        for (place, old) in self.nodes.iter().enumerate() {
            let mut node = old.clone();
            for (port, input) in node.inputs.iter_mut().enumerate() {
                let moved = |port: Port| Port { node: places[port.node], port: port.port };
                *input = instead.get(&Port { node: place, port }).copied().unwrap_or_else(|| moved(*input));
            }
            for (output, &attr) in node.outputs.iter_mut().zip(&types.nodes[place].out_types) {
                if output.dtype == DType::F32 && painting.is_low(place, attr) {
                    output.dtype = painting.dtype;
                    if old.is_cast() {
                        node.attributes.set("dtype", &painting.dtype);
                    }
                }
            }
            places.push(nodes.len());
            nodes.push(node);
            for cast in after.get(&place).into_iter().flatten() {
                let of = Port { node: places[place], port: cast.of.port };
                let port = Port { node: nodes.len(), port: 0 };
                let mut output = nodes[of.node].outputs[of.port].clone();
                output.dtype = cast.to;
                let mut attributes = Attributes::default();
                attributes.set("dtype", &cast.to);
                nodes.push(Node {
                    name: cast.name.clone(),
                    kind: Kind::Op(Op::Cast),
                    attributes,
                    cell: old.cell.clone(),
                    inputs: vec![of],
                    outputs: vec![output],
                    draws: 0,
                    again: None,
                });
                cast.consumers.iter().for_each(|consumer| _ = instead.insert(*consumer, port));
            }
        }
        let moved = |port: &Port| Port { node: places[port.node], port: port.port };
        let returned = |(i, port): (usize, &Port)| {
            let consumer = Port { node: self.nodes.len() + i, port: 0 };
            instead.get(&consumer).copied().unwrap_or_else(|| moved(port))
        };
        let outputs = self.outputs.iter().enumerate().map(returned).collect();
        let mut updates = self.updates.clone();
        updates.iter_mut().for_each(|update| (update.buffer, update.by) = (places[update.buffer], moved(&update.by)));
        let inputs = self.inputs.iter().map(|&node| places[node]).collect();
        Graph { nodes, inputs, outputs, updates, batch: self.batch, only_batch: self.only_batch.clone() }
    }
}

/// The type attributes of a node, without repetition.
#[derive(Default)]
struct Types(Vec<TypeAttr>);

impl Types {
    /// Returns the index of a type that may change.
    fn own(&mut self, name: &str, dtype: DType) -> usize {
        self.place(TypeAttr { name: name.into(), dtype: dtype.long_name().into(), fixed: false })
    }

    fn fixed(&mut self, dtype: DType) -> usize {
        self.place(fixed(dtype))
    }

    fn place(&mut self, attr: TypeAttr) -> usize {
        let found = self.0.iter().position(|known| *known == attr);
        found.unwrap_or_else(|| {
            self.0.push(attr);
            self.0.len() - 1
        })
    }
}

fn fixed(dtype: DType) -> TypeAttr {
    TypeAttr { name: dtype.long_name().into(), dtype: dtype.long_name().into(), fixed: true }
}
