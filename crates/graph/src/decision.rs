//! The decisions for the nodes of a graph.

use std::{borrow::Cow, collections::HashMap, fmt, sync::Arc};

use serde::Serialize;

use super::{
    graph::{Graph, Kind, Node},
    painting::Painting,
    rewrite::Rewritten,
};
use precast::{
    DType,
    plan::{Decided, Reason},
};
use precast_base::printable::printable;

/// A node of a graph, the dtype in which it runs, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NodeDecision {
    /// Its name.
    pub node: String,
    /// The name of its op, or its kind of node: `Conv2d`, `Cast`, `Parameter`.
    pub op: Cow<'static, str>,
    /// Path of the cell in which it ran; empty for the root, and for a node outside every cell.
    pub cell: String,
    /// The dtype of its output; of the first one, if it has several.
    pub dtype: DType,
    /// The reason, in a painted graph; for a cast, its readers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<Reason>,
}

impl NodeDecision {
    /// Returns whether it computes: an op other than a cast.
    pub fn computes(&self) -> bool {
        !self.is_cast() && !["Input", "Parameter", "Constant", "StopGradient"].contains(&&*self.op)
    }

    /// Returns whether it casts.
    pub fn is_cast(&self) -> bool {
        self.op == "Cast"
    }
}

impl fmt::Display for NodeDecision {
    /// Formats it as in `Relu f16: between linear_1 and linear_2, which are on the allow list`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", printable(&self.op), self.dtype)?;
        self.because.as_ref().map_or(Ok(()), |because| write!(f, ": {because}"))
    }
}

/// Casts are not compared: two graphs have different ones between the same nodes.
///
/// ```
/// use precast::{prelude::*, plan::Diff};
/// use precast_graph::{Graph, GraphPolicy};
/// let net = Child::new(Dense::new(2, 2, &mut Rng::seed(1)));
/// let graph = Graph::trace(&net, &[Tensor::ones(&[1, 2], DType::F32)])?;
/// let low = graph.rewrite(&GraphPolicy::named("graph")?)?;
/// let diff = Diff::between(("none", &graph.decisions()), ("graph", &low.decisions()));
/// assert_eq!(diff.to_string(), "\
/// from  none
/// to    graph
/// linear_1 (Linear)
///   - runs f32
///   + runs f16: on the allow list
/// 1 of 4 nodes differs");
/// # Ok::<(), precast::Error>(())
/// ```
impl Decided for NodeDecision {
    const NOUNS: [&'static str; 2] = ["node", "nodes"];

    fn path(&self) -> &str {
        &self.node
    }

    fn kind(&self) -> &str {
        &self.op
    }

    fn effect(&self) -> String {
        format!("runs {}", self.dtype)
    }

    fn why(&self) -> Option<String> {
        self.because.as_ref().map(Reason::to_string)
    }

    fn is_like(&self, other: &Self) -> bool {
        (&self.op, self.dtype) == (&other.op, other.dtype)
    }

    fn is_compared(&self) -> bool {
        !self.is_cast()
    }
}

impl Graph {
    /// Returns the dtypes of the nodes, in order. In a graph as traced, only casts have a reason.
    ///
    /// ```
    /// use precast::prelude::*;
    /// use precast_graph::Graph;
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
    let mut readers: HashMap<usize, Vec<Arc<str>>> = HashMap::new();
    let reads = graph.nodes.iter().flat_map(|node| node.inputs.iter().map(|port| (port.node, &node.name[..])));
    for (read, by) in reads.chain(graph.outputs.iter().map(|port| (port.node, "the caller"))) {
        let known = readers.entry(read).or_default();
        if known.last().is_none_or(|last| **last != *by) {
            known.push(by.into());
        }
    }
    let mut reasons = painting.map(Painting::reasons).unwrap_or_default();
    let decision = |(place, node): (usize, &Node)| {
        let stays = |words: &'static str| painting.map(|_| Reason::Words(words.into()));
        let because = match &node.kind {
            Kind::Input => stays("inputs stay as they are"),
            Kind::Parameter(_) => stays("parameters stay as they are"),
            Kind::Constant(_) => stays("constants stay as they are"),
            _ if node.is_cast() => Some(Reason::ReadBy(readers.remove(&place).unwrap_or_default())),
            _ => reasons.remove(&node.name[..]),
        };
        let (node, op, cell, dtype) =
            (node.name.clone(), node.op_name().into(), node.cell.clone(), node.outputs[0].dtype);
        NodeDecision { node, op, cell, dtype, because }
    };
    graph.nodes.iter().enumerate().map(decision).collect()
}
