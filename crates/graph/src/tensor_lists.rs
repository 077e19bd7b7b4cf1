//! Tensor lists of TensorFlow: elements written by one op are read by others, so all of them have one dtype.

use super::{
    mark::{Mark, Marks},
    type_graph::TypeAttr,
    vertices::Vertices,
};
use precast::error::{Error, Result};

/// Ops that read elements of a list.
const READERS: &[&str] = &[
    "TensorListConcat",
    "TensorListConcatV2",
    "TensorListGather",
    "TensorListGetItem",
    "TensorListPopBack",
    "TensorListStack",
];

/// Ops that write elements of a list.
const WRITERS: &[&str] = &[
    "TensorListFromTensor",
    "TensorListPushBack",
    "TensorListPushBackBatch",
    "TensorListScatter",
    "TensorListScatterIntoExistingList",
    "TensorListScatterV2",
    "TensorListSetItem",
    "TensorListSplit",
];

/// Ops through which a list comes from, or goes to, code outside the graph.
const BORDERS: &[&str] = &[
    "OptionalFromValue",
    "OptionalGetValue",
    "PartitionedCall",
    "Placeholder",
    "StatefulPartitionedCall",
    "_Arg",
    "_Retval",
];

/// The ops on f32 lists that are connected by list handles.
pub(super) struct Cluster {
    nodes: Vec<usize>,
    /// For each node, the vertex of the elements' dtype.
    elements: Vec<usize>,
    /// `true` when a list is used where it cannot be changed.
    escapes: bool,
}

/// Returns the vertex of the elements' dtype, for an op on f32 lists.
fn elements(vertices: &Vertices<'_>, node: usize) -> Option<usize> {
    let n = &vertices.graph.nodes[node];
    let is_elements = |t: &TypeAttr| t.is_f32() && !t.fixed && !t.name.ends_with(']');
    let attr = n.types.iter().position(is_elements).filter(|_| n.op.contains("TensorList"))?;
    Some(vertices.vertex(node, attr))
}

/// Returns the vertex of the list handles of an op.
fn handle(vertices: &Vertices<'_>, node: usize) -> Option<usize> {
    let attr = vertices.graph.nodes[node].types.iter().position(|t| t.fixed && t.dtype == "variant")?;
    Some(vertices.vertex(node, attr))
}

/// Returns the clusters.
pub(super) fn find(vertices: &Vertices<'_>) -> Vec<Cluster> {
    let nodes = &vertices.graph.nodes;
    let mut found = Vec::new();
    let mut seen = vec![false; vertices.len()];
    for node in 0..nodes.len() {
        let (Some(root), Some(_)) = (handle(vertices, node), elements(vertices, node)) else { continue };
        if !nodes[node].may_change || seen[root] {
            continue;
        }
        let mut cluster = Cluster { nodes: vec![], elements: vec![], escapes: false };
        let mut pending = vec![root];
        while let Some(v) = pending.pop() {
            if std::mem::replace(&mut seen[v], true) {
                continue;
            }
            let at = vertices.all[v].node;
            let n = &nodes[at];
            if let Some(elements) = elements(vertices, at) {
                cluster.nodes.push(at);
                cluster.elements.push(elements);
                cluster.escapes |= !n.may_change;
            } else {
                cluster.escapes |= BORDERS.contains(&&n.op[..]) || !vertices.is_known(at);
            }
            pending.extend(vertices.above(v).iter().chain(vertices.below(v)));
        }
        found.push(cluster);
    }
    found
}

/// Pass 0: keeps the elements of an escaping list in f32.
pub(super) fn deny_escaping(clusters: &[Cluster], denied: &mut Marks) {
    for cluster in clusters.iter().filter(|cluster| cluster.escapes) {
        denied[cluster.elements[0]] = Some(Mark::EscapingTensorList);
    }
}

/// The maximum number of nodes visited in the search for writers, over all readers. A long chain of list ops has an
/// edge from each writer to each downstream reader, and these must fit into memory.
const MOST_MET: usize = 20_000_000;

/// Adds an edge from each writer to each reader whose handle comes from it.
///
/// # Errors
/// [`ErrorKind::Value`](precast::ErrorKind::Value) when that is too much work: this is the only pass that is not linear.
pub(super) fn join_writers_and_readers(vertices: &mut Vertices<'_>, clusters: &[Cluster]) -> Result<()> {
    let (mut edges, mut met) = (Vec::new(), 0);
    // The last reader from which each vertex was reached.
    let mut met_from = vec![usize::MAX; vertices.len()];
    let nodes = &vertices.graph.nodes;
    for (&reader, &to) in clusters.iter().flat_map(|cluster| cluster.nodes.iter().zip(&cluster.elements)) {
        let Some(root) = handle(vertices, reader).filter(|_| READERS.contains(&&nodes[reader].op[..])) else {
            continue;
        };
        let mut pending = vec![root];
        while let Some(v) = pending.pop() {
            let node = vertices.all[v].node;
            if !nodes[node].may_change || std::mem::replace(&mut met_from[v], reader) == reader {
                continue;
            }
            met += 1;
            if met > MOST_MET {
                let name = &nodes[reader].name;
                return Err(Error::value(format!(
                    "node `{name}`: the tensor lists of this graph are too long; their writers were searched for over \
                     {MOST_MET} nodes"
                )));
            }
            if WRITERS.contains(&&nodes[node].op[..])
                && let Some(from) = elements(vertices, node)
            {
                edges.push((from, to));
            }
            pending.extend(vertices.above(v));
        }
    }
    vertices.join(edges);
    Ok(())
}

/// Gives the elements of a list one dtype: a denied one denies all; otherwise one that runs low makes all run low.
pub(super) fn match_members(clusters: &[Cluster], low: &mut Marks, denied: &mut Marks) {
    for cluster in clusters {
        let first = |marks: &Marks| cluster.elements.iter().copied().find(|&v| marks[v].is_some());
        if let Some(other) = first(denied) {
            for &v in &cluster.elements {
                low[v] = None;
                denied[v].get_or_insert(Mark::SameTensorList(other));
            }
        } else if let Some(other) = first(low) {
            for &v in &cluster.elements {
                low[v].get_or_insert(Mark::SameTensorList(other));
            }
        }
    }
}
