//! The decision for each node with its reason.

use std::{collections::HashMap, sync::Arc};

use super::{
    graph::Node,
    keep::Kept,
    painted::Painted,
    schema::{Schema, float},
    tensor::Elem,
    values::Values,
};
use crate::{NodeDecision, Painting};
use precast::{
    DType, Op,
    catalogue::System,
    plan::Reason,
    policy::{GraphList, GraphPolicy},
};

/// Returns the decisions for the nodes with floats, in the order of the file.
pub(super) fn decisions(
    values: &Values<'_>,
    elems: &[Elem],
    painted: &Painted,
    painting: &Painting,
    kept: &HashMap<usize, Kept>,
    paths: &[String],
    policy: &GraphPolicy,
) -> Vec<NodeDecision> {
    let reasons = painting.reasons();
    let mut listed: HashMap<&str, bool> = HashMap::new();
    let mut all = Vec::new();
    for (index, placed) in values.nodes.iter().enumerate() {
        let node = placed.node;
        let floats: Vec<usize> = placed.outputs.iter().chain(&placed.inputs).flatten().copied().collect();
        let Some(&first) = floats.iter().find(|&&value| float(elems[value]).is_some()) else { continue };
        let at = painted.nodes[index];
        let types = &painted.graph.nodes[at].types;
        let own = if node.op == "Cast" { types.len().saturating_sub(1) } else { 0 };
        let is_low =
            painting.is_low(at, own) || placed.outputs.iter().flatten().any(|&value| painted.is_low(painting, value));
        let dtype = match is_low {
            true => policy.dtype,
            false => float(elems[first]).unwrap_or(DType::F32),
        };
        let because = match kept.get(&index) {
            Some(kept) if !is_low => Reason::Words(kept.because.clone().into()),
            _ => {
                let is_listed = || Op::in_system_of(System::Onnx, &node.op).is_some_and(|op| is_listed(policy, op));
                let is_listed = *listed.entry(&node.op).or_insert_with(is_listed);
                let painted = (reasons.get(&paths[index][..]), painted.graph_list(index), is_listed);
                reason(values, index, dtype, painted, policy)
            }
        };
        let scope = paths[index].rsplit_once('.').map_or("", |(scope, _)| scope);
        all.push(NodeDecision {
            node: paths[index].clone(),
            op: node.op.clone().into(),
            cell: scope.into(),
            dtype,
            because: Some(because),
        });
    }
    all
}

/// Returns the reason for a node, in ONNX's words where painting knows only that it was not to be changed.
fn reason(
    values: &Values<'_>,
    index: usize,
    dtype: DType,
    (painted, list, is_listed): (Option<&Reason>, Option<GraphList>, bool),
    policy: &GraphPolicy,
) -> Reason {
    let placed = &values.nodes[index];
    let node = placed.node;
    let words = |words: String| Reason::Words(words.into());
    if dtype != DType::F32 && dtype != policy.dtype {
        return words(format!("the model asks for {}", dtype.long_name()));
    }
    match placed.schema {
        None => words(unknown(values, node)),
        Some(_) if !placed.bodies.is_empty() => match painted {
            Some(rule @ Reason::Rule(_)) => rule.clone(),
            _ => words("what its bodies give".into()),
        },
        Some(_) if node.op == "Constant" => words("as its readers need it".into()),
        Some(_) if node.op == "Cast" && dtype == DType::F32 => words("a cast of the model".into()),
        Some(known) => match known.own() {
            None => words("takes float32 alone".into()),
            Some(own) if !known.allows(own, policy.dtype) => {
                let low = policy.dtype.long_name();
                words(match Schema::first_with(&node.op, policy.dtype) {
                    Some(first) if first > values.model.opset() => {
                        format!("takes {low} from opset {first} on, and the model is of opset {}", values.model.opset())
                    }
                    _ => format!("never takes {low}"),
                })
            }
            Some(_) => match painted {
                Some(Reason::AfterDenied(_)) if list == Some(GraphList::Deny) => Reason::OnList(GraphList::Deny),
                Some(Reason::OnList(GraphList::Allow)) if !is_listed => {
                    words(format!("on no list: {}", GraphList::Allow.treatment().meaning()))
                }
                Some(painted) => of_owners(painted),
                None => words("on no list".into()),
            },
        },
    }
}

/// Returns words for a node without a schema.
pub(super) fn unknown(values: &Values<'_>, node: &Node) -> String {
    match &node.domain[..] {
        _ if values.model.functions.iter().any(|function| function.is_of(node)) => "a function of the model".into(),
        "" => format!("an op that ONNX does not have in opset {}", values.model.opset()),
        domain => format!("an op of the domain {domain}"),
    }
}

/// Returns a reason with the names of control nodes: painting has a node for each of their outputs, `if/0`.
fn of_owners(reason: &Reason) -> Reason {
    let owner = |name: &Arc<str>| match name.rsplit_once('/') {
        Some((owner, output)) if output.chars().all(|c| c.is_ascii_digit()) => owner.into(),
        _ => name.clone(),
    };
    match reason {
        Reason::Follows { list, node } => Reason::Follows { list: *list, node: owner(node) },
        Reason::Between { above, below } => Reason::Between { above: owner(above), below: owner(below) },
        Reason::AfterDenied(node) => Reason::AfterDenied(owner(node)),
        other => other.clone(),
    }
}

/// Returns whether the lists of a policy have an entry for an op.
pub(super) fn is_listed(policy: &GraphPolicy, op: Op) -> bool {
    policy.lists.op(op, policy.dtype).is_some()
}
