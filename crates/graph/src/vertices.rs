//! The vertices to be painted. A vertex is one type attribute of one node. A node may have several, as a batch norm has
//! one for the activations and one for the statistics, and they may run in different dtypes.

use std::collections::HashMap;

use super::{
    device::{Device, OpSupport},
    edges::Edges,
    type_graph::{TypeGraph, TypeNode},
};
use precast::{DType, policy::GraphList};

/// The properties of a vertex used in painting.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vertex {
    pub node: usize,
    /// Its index in the node's `types`.
    pub attr: usize,
    pub is_f32: bool,
    /// `true` when the op is defined for the low dtype.
    pub defined_low: bool,
    /// `true` when the device also has a kernel for it.
    pub runs_low: bool,
}

/// The vertices of a graph and the edges between them, both ways.
pub(super) struct Vertices<'a> {
    pub graph: &'a TypeGraph,
    pub all: Vec<Vertex>,
    /// The list of each node's op.
    lists: Vec<Option<GraphList>>,
    /// For each node, `true` when the device knows its op; otherwise it is a call of a function of the graph.
    known: Vec<bool>,
    /// The first vertex of each node.
    first: Vec<usize>,
    /// Source and target of each edge.
    edges: Vec<(usize, usize)>,
    above: Edges,
    below: Edges,
}

impl<'a> Vertices<'a> {
    /// Creates the vertices of a graph whose nodes are on these lists.
    pub fn new(graph: &'a TypeGraph, lists: Vec<Option<GraphList>>, low: DType, device: &Device) -> Self {
        let nodes = &graph.nodes;
        let mut by_op: HashMap<&str, Option<&OpSupport>> = HashMap::new();
        let mut of = |op: &'a str| *by_op.entry(op).or_insert_with(|| device.op(op));
        let supports: Vec<_> = nodes.iter().map(|node| of(&node.op)).collect();
        let mut first = Vec::with_capacity(nodes.len());
        let mut all = Vec::new();
        for (node, n) in nodes.iter().enumerate() {
            first.push(all.len());
            all.extend(n.types.iter().enumerate().map(|(attr, t)| {
                let support = supports[node].map(|op| op.attr(&t.name)).filter(|_| !t.fixed).unwrap_or_default();
                let is_low = t.fixed && t.dtype == low.long_name();
                let (defined_low, runs_low) = (support.defined || is_low, support.defined && support.kernel);
                Vertex { node, attr, is_f32: t.is_f32(), defined_low, runs_low }
            }));
        }
        let edges = nodes.iter().enumerate().flat_map(|(node, n)| {
            let (first, inputs) = (&first, n.inputs.iter().zip(&n.in_types));
            inputs.map(move |(input, attr)| {
                let from = first[input.node] + nodes[input.node].out_types[input.port];
                (from, first[node] + attr)
            })
        });
        let edges: Vec<(usize, usize)> = edges.collect();
        let (above, below) = both_ways(all.len(), &edges);
        let known = supports.iter().map(|op| op.is_some() || device.is_any()).collect();
        Vertices { graph, all, lists, known, first, edges, above, below }
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn vertex(&self, node: usize, attr: usize) -> usize {
        self.first[node] + attr
    }

    pub fn node(&self, vertex: usize) -> &'a TypeNode {
        &self.graph.nodes[self.all[vertex].node]
    }

    pub fn list(&self, vertex: usize) -> Option<GraphList> {
        self.lists[self.all[vertex].node]
    }

    pub fn is_on(&self, vertex: usize, list: GraphList) -> bool {
        self.list(vertex) == Some(list)
    }

    pub fn is_known(&self, node: usize) -> bool {
        self.known[node]
    }

    /// Returns whether an f32 vertex can run low on the device.
    pub fn can_run_low(&self, vertex: usize) -> bool {
        let v = &self.all[vertex];
        self.node(vertex).may_change && v.is_f32 && v.runs_low
    }

    /// Returns the vertices that a vertex reads.
    pub fn above(&self, vertex: usize) -> &[usize] {
        self.above.of(vertex)
    }

    /// Returns the vertices that read a vertex.
    pub fn below(&self, vertex: usize) -> &[usize] {
        self.below.of(vertex)
    }

    /// Adds edges `(from, to)` after those of the graph.
    pub fn join(&mut self, edges: Vec<(usize, usize)>) {
        if !edges.is_empty() {
            self.edges.extend(edges);
            (self.above, self.below) = both_ways(self.all.len(), &self.edges);
        }
    }
}

fn both_ways(vertices: usize, edges: &[(usize, usize)]) -> (Edges, Edges) {
    let above = edges.iter().map(|&(from, to)| (to, from));
    (Edges::new(vertices, above), Edges::new(vertices, edges.iter().copied()))
}
