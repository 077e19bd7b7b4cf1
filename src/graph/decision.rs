//! The decisions for the nodes of a graph, for display and comparison.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

use serde::Serialize;

use super::{Graph, Painting, Rewritten, graph::Kind};
use crate::{DType, printable::printable};

/// A node of a graph, the dtype in which it runs, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NodeDecision {
    /// Its name.
    pub node: String,
    /// The name of its op, or its kind of node: `Conv2d`, `Cast`, `Parameter`.
    pub op: &'static str,
    /// Path of the cell in which it ran; empty for the root, and for a node outside every cell.
    pub cell: String,
    /// The dtype of its output; of the first one, if it has several.
    pub dtype: DType,
    /// The reason, in a painted graph; for a cast, its readers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}

impl NodeDecision {
    /// Returns whether it computes: an op other than a cast.
    pub fn computes(&self) -> bool {
        !self.is_cast() && !["Input", "Parameter", "Constant", "StopGradient"].contains(&self.op)
    }

    /// Returns whether it casts.
    pub fn is_cast(&self) -> bool {
        self.op == "Cast"
    }
}

impl fmt::Display for NodeDecision {
    /// Formats it as in `Relu f16: between linear_1 and linear_2, which are on the allow list`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", printable(self.op), self.dtype)?;
        self.because.as_ref().map_or(Ok(()), |because| write!(f, ": {}", printable(because)))
    }
}

impl Graph {
    /// Returns the dtypes of the nodes, in order. In a graph as traced, only casts have a reason.
    ///
    /// ```
    /// use precast::{graph::Graph, prelude::*};
    /// let x = Tensor::ones(&[2], DType::F32);
    /// let graph = Graph::trace_fn(&Default::default(), &[x], |x| Ok(vec![x[0].cast(DType::F16).relu()?]))?;
    /// let [_, cast, relu] = &graph.decisions()[..] else { panic!("{graph}") };
    /// assert_eq!(cast.to_string(), "Cast f16: read by relu_1");
    /// assert_eq!(relu.to_string(), "Relu f16");
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn decisions(&self) -> Vec<NodeDecision> {
        decisions(self, None)
    }
}

impl Rewritten {
    /// Returns the decisions for the nodes of the rewritten graph, in order, with their reasons.
    pub fn decisions(&self) -> Vec<NodeDecision> {
        decisions(&self.graph, Some(&self.painting))
    }
}

fn decisions(graph: &Graph, painting: Option<&Painting>) -> Vec<NodeDecision> {
    let mut readers: HashMap<usize, Vec<&str>> = HashMap::new();
    let reads = graph.nodes.iter().flat_map(|node| node.inputs.iter().map(|port| (port.node, &node.name[..])));
    for (read, by) in reads.chain(graph.outputs.iter().map(|port| (port.node, "the caller"))) {
        let known = readers.entry(read).or_default();
        if known.last() != Some(&by) {
            known.push(by);
        }
    }
    let reasons = painting.map(Painting::reasons).unwrap_or_default();
    let decision = |(place, node): (usize, &super::Node)| {
        let stays = |what: &str| painting.map(|_| format!("{what} stay as they are"));
        let because = match &node.kind {
            Kind::Input => stays("inputs"),
            Kind::Parameter(_) => stays("parameters"),
            Kind::Constant(_) => stays("constants"),
            _ if node.is_cast() => Some(match readers.get(&place) {
                Some(names) => format!("read by {}", names.join(", ")),
                None => "read by nothing".into(),
            }),
            _ => reasons.get(&node.name[..]).cloned(),
        };
        let (node, op, cell, dtype) = (node.name.clone(), node.op_name(), node.cell.clone(), node.outputs[0].dtype);
        NodeDecision { node, op, cell, dtype, because }
    };
    graph.nodes.iter().enumerate().map(decision).collect()
}

/// The nodes that run in different dtypes in two graphs of one network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GraphDiff {
    /// The differences, in the order of the second graph; nodes that exist only in the first come last.
    pub changes: Vec<NodeChange>,
    /// The number of nodes in both, without casts.
    pub compared: usize,
    /// The numbers of casts in the first and the second graph.
    pub casts: (usize, usize),
}

/// A node that runs in another dtype.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeChange {
    /// Its name.
    pub node: String,
    /// The decision in the first graph; `None` when it has no such node.
    pub before: Option<NodeDecision>,
    /// The decision in the second graph; `None` when it has no such node.
    pub after: Option<NodeDecision>,
}

impl GraphDiff {
    /// Compares nodes of the same name. Different reasons for the same dtype are not a difference; casts are only
    /// counted.
    ///
    /// ```
    /// use precast::{graph::{Graph, GraphDiff}, prelude::*};
    /// let net = Child::new(Dense::new(2, 2, &mut Rng::seed(1)));
    /// let graph = Graph::trace(&net, &[Tensor::ones(&[1, 2], DType::F32)])?;
    /// let low = graph.rewrite(&Policy::named("graph")?.graph_lists()?)?;
    /// let diff = GraphDiff::between(&graph.decisions(), &low.decisions());
    /// assert_eq!(diff.to_string(), "\
    /// linear_1
    ///   - Linear f32
    ///   + Linear f16: on the allow list
    /// 1 of 4 nodes differ; casts: 0, then 4");
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn between(before: &[NodeDecision], after: &[NodeDecision]) -> GraphDiff {
        let casts = |all: &[NodeDecision]| all.iter().filter(|d| d.is_cast()).count();
        let mut only: BTreeMap<&str, &NodeDecision> =
            before.iter().filter(|d| !d.is_cast()).map(|d| (&d.node[..], d)).collect();
        let (mut changes, mut compared) = (Vec::new(), 0);
        for after in after.iter().filter(|d| !d.is_cast()) {
            let before = only.remove(&after.node[..]);
            compared += usize::from(before.is_some());
            if before.is_none_or(|before| (before.op, before.dtype) != (after.op, after.dtype)) {
                let (node, before) = (after.node.clone(), before.cloned());
                changes.push(NodeChange { node, before, after: Some(after.clone()) });
            }
        }
        let gone = before.iter().filter(|d| only.contains_key(&d.node[..]));
        changes.extend(gone.map(|d| NodeChange { node: d.node.clone(), before: Some(d.clone()), after: None }));
        GraphDiff { changes, compared, casts: (casts(before), casts(after)) }
    }

    /// Returns whether each node runs in the same dtype in both.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

impl fmt::Display for GraphDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for change in &self.changes {
            writeln!(f, "{}", printable(&change.node))?;
            for (sign, decision) in [("-", &change.before), ("+", &change.after)] {
                match decision {
                    Some(decision) => writeln!(f, "  {sign} {decision}")?,
                    None => writeln!(f, "  {sign} no such node")?,
                }
            }
        }
        match self.changes.len() {
            0 => write!(f, "no difference in {} nodes", self.compared)?,
            n => write!(f, "{n} of {} nodes differ", self.compared.max(n))?,
        }
        write!(f, "; casts: {}, then {}", self.casts.0, self.casts.1)
    }
}
