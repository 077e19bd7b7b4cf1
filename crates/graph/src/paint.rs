//! Painting: the passes of TensorFlow's rewrite, each a function of the vertices and of what was painted before. Every
//! pass is linear in the edges, but tensor lists have an edge from each writer to each reader.

use std::{collections::HashMap, sync::Arc};

use super::{
    device::Device,
    edges::walk,
    graph::Port,
    loops,
    mark::{Mark, Marks},
    painting::{Painted, Painting},
    tensor_lists::{self, Cluster},
    type_graph::TypeGraph,
    vertices::Vertices,
};
use precast::{
    error::Result,
    policy::{GraphLevel, GraphList, GraphPolicy},
};

/// Paints a graph. A pure function, linear in its nodes and edges, except for tensor lists.
///
/// # Errors
/// Those of a policy whose fields are inconsistent; [`ErrorKind::Value`](precast::ErrorKind::Value) for a graph that refers to ports that do not exist, for a loop of an
/// unknown form or another cycle, for tensor lists with too many readers and writers, and when a type that cannot be
/// changed would have to be low.
pub fn paint(graph: &TypeGraph, policy: &GraphPolicy, device: &Device) -> Result<Painting> {
    paint_listed(graph, lists(graph, policy), policy, device)
}

/// Returns the list of each node's op.
pub(super) fn lists(graph: &TypeGraph, policy: &GraphPolicy) -> Vec<Option<GraphList>> {
    let mut by_op: HashMap<&str, Option<GraphList>> = HashMap::new();
    let list = |op| *by_op.entry(op).or_insert_with(|| policy.list(op));
    graph.nodes.iter().map(|node| &node.op[..]).map(list).collect()
}

/// Paints a graph whose nodes are on these lists, one for each node.
///
/// # Errors
/// As [`paint`].
pub(crate) fn paint_listed(
    graph: &TypeGraph,
    lists: Vec<Option<GraphList>>,
    policy: &GraphPolicy,
    device: &Device,
) -> Result<Painting> {
    policy.check()?;
    graph.check()?;
    let mut vertices = Vertices::new(graph, lists, policy.dtype, device);
    let mut low = allowed(&vertices, policy, device);
    let mut denied = vec![None; vertices.len()];
    if low.iter().any(Option::is_some) {
        let clusters = tensor_lists::find(&vertices);
        tensor_lists::deny_escaping(&clusters, &mut denied);
        tensor_lists::join_writers_and_readers(&mut vertices, &clusters)?;
        spread(&vertices, policy, &clusters, &mut low, &mut denied);
        loops::match_rounds(&vertices, &mut low)?;
        retype_casts(&vertices, &mut low);
        loops::check_fixed(&vertices, &low)?;
    }
    Ok(painting(&vertices, policy, low, denied))
}

fn forces_all(policy: &GraphPolicy) -> bool {
    policy.level == GraphLevel::ForceAll
}

fn spread(v: &Vertices<'_>, policy: &GraphPolicy, clusters: &[Cluster], low: &mut Marks, denied: &mut Marks) {
    if !forces_all(policy) {
        spread_denial(v, denied);
    }
    tensor_lists::match_members(clusters, low, denied);
    between_allowed(v, low, denied);
    after_low(v, low, denied);
    next_to_low(v, low, denied);
    remove_undefined(v, low);
    tensor_lists::match_members(clusters, low, denied);
}

/// Pass 1: paints every type attribute of the ops on the allow list; when all are forced, of every op that can be.
fn allowed(vertices: &Vertices<'_>, policy: &GraphPolicy, device: &Device) -> Marks {
    let may_be_forced = |op: &str| forces_all(policy) && device.op(op).is_some_and(|op| op.may_be_forced);
    let of = |v: usize| match vertices.node(v).may_change {
        true if vertices.is_on(v, GraphList::Allow) => Some(Mark::Allowed),
        true if may_be_forced(&vertices.node(v).op) => Some(Mark::Forced),
        _ => None,
    };
    (0..vertices.len()).map(of).collect()
}

/// Pass 2: spreads denial from denied ops to their readers, through clear ops, up to and through the denied and
/// inferred ops downstream. It stops at clear ops with only clear and allowed ops downstream.
fn spread_denial(vertices: &Vertices<'_>, denied: &mut Marks) {
    let all = 0..vertices.len();
    let numeric = all.clone().filter(|&v| matches!(vertices.list(v), Some(GraphList::Deny | GraphList::Infer)));
    let mut leads_to_numeric = vec![false; vertices.len()];
    walk(
        numeric,
        |v| vertices.above(v).iter().copied(),
        |is_root, _, v| {
            let enter = !leads_to_numeric[v] && (is_root || vertices.is_on(v, GraphList::Clear));
            leads_to_numeric[v] |= enter;
            enter
        },
    );
    let roots: Vec<usize> = all.filter(|&v| vertices.is_on(v, GraphList::Deny) && denied[v].is_none()).collect();
    walk(
        roots,
        |v| vertices.below(v).iter().copied(),
        |is_root, from, v| {
            let enter = denied[v].is_none() && (is_root || leads_to_numeric[v]);
            if enter {
                denied[v] = Some(if is_root { Mark::Denied } else { Mark::AfterDenied(from) });
            }
            enter
        },
    );
}

/// Pass 3: paints vertices between two allowed ops, through inferred and clear ops that the device can run low.
fn between_allowed(vertices: &Vertices<'_>, low: &mut Marks, denied: &Marks) {
    let is_allowed = |v: usize| vertices.is_on(v, GraphList::Allow);
    let roots: Vec<usize> = (0..vertices.len()).filter(|&v| is_allowed(v) && vertices.node(v).may_change).collect();
    let passes = |v: usize| {
        matches!(vertices.list(v), Some(GraphList::Infer | GraphList::Clear))
            && denied[v].is_none()
            && vertices.can_run_low(v)
    };
    // For each vertex reached, the allowed vertex from which it was reached.
    let mut above: Vec<Option<usize>> = vec![None; vertices.len()];
    walk(
        roots.iter().copied(),
        |v| vertices.below(v).iter().copied(),
        |is_root, from, v| {
            let enter = above[v].is_none() && (is_root || passes(v));
            if enter {
                above[v] = if is_root { Some(v) } else { above[from] };
            }
            enter
        },
    );
    let mut below: Vec<Option<usize>> = vec![None; vertices.len()];
    walk(
        roots,
        |v| vertices.above(v).iter().copied(),
        |is_root, from, v| {
            let enter = below[v].is_none() && (is_root || above[v].is_some() && !is_allowed(v));
            if enter {
                below[v] = if is_root { Some(v) } else { below[from] };
                if let (None, Some(above), Some(below)) = (low[v], above[v], below[v]) {
                    low[v] = Some(Mark::Between { above, below });
                }
            }
            enter
        },
    );
}

/// Pass 4: paints an inferred op with a low input and no denied one. In node order: later nodes see the decisions for
/// earlier ones. The op must be defined for the low dtype; a kernel is not required.
fn after_low(vertices: &Vertices<'_>, low: &mut Marks, denied: &Marks) {
    for (v, vertex) in vertices.all.iter().enumerate() {
        let candidate = vertices.is_on(v, GraphList::Infer)
            && vertices.node(v).may_change
            && vertex.is_f32
            && vertex.defined_low
            && denied[v].is_none()
            && low[v].is_none();
        let read = vertices.above(v);
        if candidate && read.iter().all(|&from| denied[from].is_none()) {
            low[v] = read.iter().find(|&&from| low[from].is_some()).map(|&from| Mark::After(from));
        }
    }
}

/// Pass 5: lets clear ops follow their neighbours, in both directions.
fn next_to_low(vertices: &Vertices<'_>, low: &mut Marks, denied: &Marks) {
    let roots: Vec<usize> = (0..low.len()).filter(|&v| low[v].is_some() && vertices.node(v).may_change).collect();
    let hands_on_variable = loops::hand_on_variables(vertices);
    let neighbours = |v: usize| vertices.above(v).iter().chain(vertices.below(v)).copied();
    walk(roots, neighbours, |is_root, from, v| {
        let follows = || {
            low[v].is_none()
                && denied[v].is_none()
                && vertices.is_on(v, GraphList::Clear)
                && vertices.can_run_low(v)
                && !hands_on_variable[v]
        };
        if is_root {
            return true;
        }
        let enter = follows();
        if enter {
            low[v] = Some(Mark::NextTo(from));
        }
        enter
    });
}

/// Pass 6: unmarks type attributes of allowed ops that are not defined for the low dtype.
fn remove_undefined(vertices: &Vertices<'_>, low: &mut Marks) {
    for (v, mark) in low.iter_mut().enumerate() {
        if vertices.is_on(v, GraphList::Allow) && !vertices.all[v].defined_low {
            *mark = None;
        }
    }
}

/// Pass 8: retargets a cast to f32 whose consumers all run low to the low dtype.
fn retype_casts(vertices: &Vertices<'_>, low: &mut Marks) {
    let nodes = &vertices.graph.nodes;
    if nodes.iter().all(|n| n.op != "Cast") {
        return;
    }
    let consumers = vertices.graph.consumers();
    for (node, n) in nodes.iter().enumerate().filter(|(_, n)| n.op == "Cast") {
        let Some(to) = n.types.iter().position(|t| t.name == "DstT" && t.is_f32()) else { continue };
        let read_by = consumers.get(&Port { node, port: 0 }).map_or(&[][..], Vec::as_slice);
        let is_low = |input: &Port| low[vertices.vertex(input.node, nodes[input.node].in_types[input.port])].is_some();
        if !read_by.is_empty() && read_by.iter().all(is_low) {
            low[vertices.vertex(node, to)] = Some(Mark::CastForLow);
        }
    }
}

fn painting(vertices: &Vertices<'_>, policy: &GraphPolicy, low: Marks, denied: Marks) -> Painting {
    let nodes = &vertices.graph.nodes;
    let names: Vec<Arc<str>> = nodes.iter().map(|n| Arc::from(&n.name[..])).collect();
    // There are few distinct attributes and dtypes.
    let mut words: HashMap<&str, Arc<str>> = HashMap::new();
    let mut word = |word| words.entry(word).or_insert_with(|| Arc::from(word)).clone();
    let painted = vertices.all.iter().zip(low).zip(denied).enumerate().map(|(v, ((vertex, low), denied))| {
        let attr = &nodes[vertex.node].types[vertex.attr];
        Painted {
            node: names[vertex.node].clone(),
            attr: word(&attr.name),
            dtype: word(&attr.dtype),
            is_f32: vertex.is_f32,
            list: vertices.list(v),
            may_change: nodes[vertex.node].may_change,
            runs_low: vertex.runs_low,
            // Types other than f32 are not changed, whatever the op.
            low: low.filter(|_| vertex.is_f32),
            denied,
        }
    });
    let painted = painted.collect();
    let first = (0..nodes.len()).map(|node| vertices.vertex(node, 0)).collect();
    Painting { dtype: policy.dtype, vertices: painted, first, rules: HashMap::new() }
}
