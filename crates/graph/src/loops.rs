//! Loops, variables and fixed types of TensorFlow graphs.

use super::{
    edges::walk,
    graph::Port,
    mark::{Mark, Marks},
    vertices::Vertices,
};
use precast::error::{Error, Result};

/// Pass 7: gives a value carried by a loop one dtype in all iterations. A `NextIteration` runs low if every `Merge`
/// that it feeds does; otherwise none of them does.
///
/// # Errors
/// [`ErrorKind::Value`](precast::ErrorKind::Value) when it feeds anything but a `Merge`.
pub(super) fn match_rounds(vertices: &Vertices<'_>, low: &mut Marks) -> Result<()> {
    let nodes = &vertices.graph.nodes;
    if nodes.iter().all(|n| n.op != "NextIteration") {
        return Ok(());
    }
    let consumers = vertices.graph.consumers();
    for (node, n) in nodes.iter().enumerate().filter(|(_, n)| n.op == "NextIteration") {
        let fed = consumers.get(&Port { node, port: 0 }).map_or(&[][..], Vec::as_slice);
        if let Some(other) = fed.iter().find(|input| nodes[input.node].op != "Merge") {
            let (other, op) = (&nodes[other.node].name, &nodes[other.node].op);
            return Err(Error::value(format!(
                "`{}` is a NextIteration and feeds `{other}`, a {op}; it may feed only a Merge",
                n.name
            )));
        }
        let carried =
            |node: usize| nodes[node].types.iter().position(|t| t.name == "T").map(|t| vertices.vertex(node, t));
        let Some(own) = carried(node) else { continue };
        let merges: Vec<usize> = fed.iter().filter_map(|input| carried(input.node)).collect();
        if merges.iter().all(|&merge| low[merge].is_some()) {
            low[own].get_or_insert(Mark::SameLoop);
        } else {
            merges.iter().chain([&own]).for_each(|&v| low[v] = None);
        }
    }
    Ok(())
}

/// Returns the vertices that forward a variable by reference, which stays f32: an `Identity` of it, also inside a loop.
pub(super) fn hand_on_variables(vertices: &Vertices<'_>) -> Vec<bool> {
    let nodes = &vertices.graph.nodes;
    let is_variable = |input: &Port| matches!(&nodes[input.node].op[..], "Variable" | "VariableV2");
    let reads = |v: &usize| {
        let node = vertices.node(*v);
        node.op == "Identity" && node.inputs.first().is_some_and(is_variable)
    };
    let roots: Vec<usize> = (0..vertices.len()).filter(reads).collect();
    let mut found = vec![false; vertices.len()];
    walk(
        roots,
        |v| vertices.below(v).iter().copied(),
        |is_root, _, v| {
            let enter = !found[v] && (is_root || vertices.node(v).op == "Enter");
            found[v] |= enter;
            enter
        },
    );
    found
}

/// Checks that no fixed f32 type would be changed, even by force.
pub(super) fn check_fixed(vertices: &Vertices<'_>, low: &Marks) -> Result<()> {
    let fixed = |v: &usize| {
        let vertex = &vertices.all[*v];
        low[*v].is_some() && vertex.is_f32 && vertices.node(*v).types[vertex.attr].fixed
    };
    match (0..vertices.len()).find(fixed) {
        None => Ok(()),
        Some(v) => {
            let node = vertices.node(v);
            Err(Error::value(format!(
                "`{}` ({}) would have to run low and has a port that is always f32",
                node.name, node.op
            )))
        }
    }
}
