//! The nodes that stay f32 for what they compute: indices and lengths, and numbers that a low dtype does not hold.

use std::collections::{HashMap, HashSet};

use super::{
    numbers::{Limits, Unfit},
    schema::Kind,
    tensor::Elem,
    types::edges,
    values::{Origin, Placed, Values},
};
use crate::policy::GraphList;

/// The reason for a node to stay f32.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Kept {
    pub because: String,
    /// `true` when the nodes after it must not be low either, since its numbers may be too large for them.
    pub spreads: bool,
}

/// Finds the nodes that lead to an index, a length or a condition. A product stops the search: nobody expects exact
/// numbers from it.
pub(super) fn exact(values: &Values<'_>, elems: &[Elem], lists: &[Option<GraphList>]) -> HashMap<usize, Kept> {
    let mut kept: HashMap<usize, Kept> = HashMap::new();
    // The value to look at, and the node for whose sake.
    let mut pending: Vec<(usize, usize)> = Vec::new();
    let mut entered = vec![false; values.values.len()];
    let inside = insides(values);
    for (index, placed) in values.nodes.iter().enumerate() {
        pending.extend(roots(placed, elems).into_iter().map(|value| (value, index)));
    }
    while let Some((value, root)) = pending.pop() {
        if std::mem::replace(&mut entered[value], true) {
            continue;
        }
        pending.extend(inside.get(&value).into_iter().flatten().map(|&from| (from, root)));
        let Origin::Node { node } = values.values[value].origin else { continue };
        let placed = &values.nodes[node];
        if lists[node] == Some(GraphList::Allow) || placed.schema.is_none() || !placed.bodies.is_empty() {
            continue;
        }
        // A shape does not depend on numbers.
        if placed.node.domain.is_empty() && ["Shape", "Size"].contains(&&placed.node.op[..]) {
            continue;
        }
        let float = placed.inputs.iter().chain(&placed.outputs).flatten().any(|&value| elems[value] == Elem::F32);
        if float {
            let of = &values.nodes[root].node;
            let because = format!("leads to {}", aim(of.label(), &of.op));
            kept.entry(node).or_insert(Kept { because, spreads: false });
        }
        pending.extend(placed.inputs.iter().flatten().map(|&value| (value, root)));
    }
    kept
}

fn aim(label: &str, op: &str) -> String {
    match op {
        "Cast" => format!("an integer ({label})"),
        "If" | "Loop" => format!("a condition ({label})"),
        _ => format!("a length ({label})"),
    }
}

/// Returns the inputs of a node that must be exact.
fn roots(placed: &Placed<'_>, elems: &[Elem]) -> Vec<usize> {
    let node = placed.node;
    if !node.domain.is_empty() {
        return Vec::new();
    }
    let input = |place: usize| placed.inputs.get(place).copied().flatten();
    match &node.op[..] {
        "Cast" if placed.outputs.iter().flatten().any(|&output| elems[output].is_int()) => {
            input(0).into_iter().collect()
        }
        "If" => input(0).into_iter().collect(),
        "Loop" => input(1).into_iter().collect(),
        "Range" => placed.inputs.iter().flatten().copied().collect(),
        "Resize" | "Upsample" => {
            let fixed = |(place, value): (usize, &Option<usize>)| {
                let port = placed.schema?.input(place)?;
                value.filter(|_| port.kind == Kind::Float32)
            };
            placed.inputs.iter().enumerate().filter_map(fixed).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns, for each value that a node with bodies hands on, the values that it comes from.
fn insides(values: &Values<'_>) -> HashMap<usize, Vec<usize>> {
    let mut inside: HashMap<usize, Vec<usize>> = HashMap::new();
    for placed in values.nodes.iter().filter(|placed| !placed.bodies.is_empty()) {
        for edge in edges(values, placed) {
            for to in [edge.body_in, edge.outside_out].into_iter().flatten() {
                let from = [edge.outside_in, edge.body_out].into_iter().flatten().filter(|&from| from != to);
                inside.entry(to).or_default().extend(from);
            }
        }
    }
    inside
}

/// Finds the nodes that read numbers which the low dtype does not hold: an initialiser, or what is made of it without
/// making it smaller.
pub(super) fn unfit(
    values: &Values<'_>,
    lists: &[Option<GraphList>],
    mut found: HashMap<usize, Unfit>,
    limits: &Limits,
) -> HashMap<usize, Kept> {
    let mut kept = HashMap::new();
    let mut names: HashMap<usize, usize> = found.keys().map(|&value| (value, value)).collect();
    let inside = insides(values);
    let mut changed = !found.is_empty();
    while changed {
        changed = false;
        for (&to, from) in &inside {
            let source = from.iter().find(|from| found.contains_key(from)).copied();
            if let (Some(from), false) = (source, found.contains_key(&to)) {
                found.insert(to, found[&from].clone());
                names.insert(to, names[&from]);
                changed = true;
            }
        }
        for (index, placed) in values.nodes.iter().enumerate() {
            let Some(schema) = placed.schema else { continue };
            let own = schema.own();
            let unfit = placed.inputs.iter().enumerate().find_map(|(place, value)| {
                let kind = schema.input(place)?.kind;
                value.filter(|value| found.contains_key(value) && own.is_some_and(|own| kind == Kind::Variable(own)))
            });
            let Some(value) = unfit else { continue };
            let spreads = matches!(found[&value], Unfit::Beyond(_));
            let origin = &values.values[names[&value]];
            let what = match origin.initialiser {
                Some(_) => format!("initialiser `{}`", origin.name),
                None => format!("constant `{}`", origin.name),
            };
            kept.entry(index).or_insert_with(|| Kept { because: limits.reason(&what, &found[&value]), spreads });
            if !hands_on(&placed.node.op, lists[index], spreads) {
                continue;
            }
            for output in placed.outputs.iter().flatten() {
                if !found.contains_key(output) {
                    found.insert(*output, found[&value].clone());
                    names.insert(*output, names[&value]);
                    changed = true;
                }
            }
        }
    }
    kept
}

/// Finds the nodes up to the next product after those whose numbers may be too large.
pub(super) fn after_large(
    values: &Values<'_>,
    lists: &[Option<GraphList>],
    kept: &HashMap<usize, Kept>,
) -> HashSet<usize> {
    let large = kept.iter().filter(|(_, why)| why.spreads).map(|(&node, _)| node);
    let mut reached: HashSet<usize> = large.collect();
    let outputs = |node: &usize| values.nodes[*node].outputs.iter().flatten().copied().collect::<Vec<_>>();
    let mut met: HashSet<usize> = reached.iter().flat_map(outputs).collect();
    let inside = insides(values);
    let mut before = 0;
    while met.len() > before {
        before = met.len();
        for (index, placed) in values.nodes.iter().enumerate() {
            let reads = placed.inputs.iter().flatten().any(|value| met.contains(value));
            if reads && placed.bodies.is_empty() && lists[index].is_some_and(|list| list != GraphList::Allow) {
                reached.insert(index);
                met.extend(outputs(&index));
            }
        }
        let through = |(to, from): (&usize, &Vec<usize>)| from.iter().any(|from| met.contains(from)).then_some(*to);
        met.extend(inside.iter().filter_map(through).collect::<Vec<_>>());
    }
    reached
}

/// Finds the products that add more terms than a number, as their weights say.
pub(super) fn deep(values: &Values<'_>, most: usize) -> HashMap<usize, Kept> {
    let terms = |placed: &Placed<'_>| {
        let weight = placed.inputs.get(1).copied().flatten()?;
        let of = &values.values[weight];
        let dims = &values.scopes[of.scope].graph.initialisers[of.initialiser?].dims;
        match &placed.node.op[..] {
            "MatMul" => dims.iter().rev().nth(1).copied(),
            "Gemm" => {
                let turned = values.model.int(placed.node, "transB").ok().flatten().unwrap_or(0) != 0;
                dims.get(usize::from(turned)).copied()
            }
            "Conv" => Some(dims.iter().skip(1).product()),
            _ => None,
        }
    };
    let kept = |(index, placed): (usize, &Placed<'_>)| {
        let terms = terms(placed).filter(|&terms| terms > most)?;
        Some((index, Kept { because: format!("adds {terms} products, and at most {most} may be"), spreads: false }))
    };
    values.nodes.iter().enumerate().filter_map(kept).collect()
}

/// Returns whether the result of an op is as large, or as small, as its input.
fn hands_on(op: &str, list: Option<GraphList>, large: bool) -> bool {
    let moves = list == Some(GraphList::Clear) && !["Clip", "Sign", "ArgMax", "ArgMin"].contains(&op);
    // The product of a large number may be small again.
    moves || large && ["Add", "Sub", "Neg", "Sum"].contains(&op)
}
