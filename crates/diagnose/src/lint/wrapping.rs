//! Hazards of the wrapping: two policies at once, a loss in 16 bits, shapes that hardware pads.

use precast::{Child, DType, Op, Policy, catalogue::Family, cell::AsCell, error::Result};
use precast_base::path::named;

use super::{
    edges::Edges,
    finding::{Finding, Rule, Severity},
};

/// Finds the adapters of another policy, which this one would replace.
pub(super) fn replaced<C: ?Sized + AsCell>(net: &Child<C>, policy: &Policy) -> Result<Option<Finding>> {
    let plan = policy.plan(net)?;
    let mut decisions = plan.decisions.iter();
    let (mut wrapped, mut differs) = (0, false);
    net.walk(&mut |entry| {
        let wanted = decisions.next().and_then(|decision| decision.adapter.as_ref());
        wrapped += usize::from(entry.slot.adapter.is_some());
        differs |= entry.slot.adapter != wanted;
    });
    if wrapped == 0 {
        return Ok(None);
    }
    let (severity, effect) = match differs {
        true => (Severity::Warning, "which this one replaces"),
        false => (Severity::Information, "which this one repeats"),
    };
    let finding = Finding::of_cell(Rule::DoubleWrapping, severity, "", [wrapped as f64, 0.0]);
    let what = format!("{wrapped} cells have the adapters of a policy already, {effect}");
    Ok(Some(finding.what(what).write("one policy; `plan::undo` takes the other off")))
}

/// Finds hazards of the wrapping. `loss` is the dtype of the loss.
pub(super) fn findings<C: ?Sized + AsCell>(edges: &Edges, net: &Child<C>, loss: DType) -> Vec<Finding> {
    let mut found: Vec<Finding> = around(edges, net).into_iter().chain(low_loss(edges, loss)).collect();
    found.extend(shapes(edges));
    found
}

/// Finds cells with adapters inside a region of code.
fn around<C: ?Sized + AsCell>(edges: &Edges, net: &Child<C>) -> Option<Finding> {
    let mut adapters = Vec::new();
    net.walk(&mut |entry| {
        if entry.slot.adapter.is_some() && edges.wrapped.contains(&entry.slot.id) {
            adapters.push(entry.path.to_string());
        }
    });
    let first = adapters.first()?;
    let numbers = [adapters.len() as f64, 0.0];
    let finding = Finding::of_cell(Rule::DoubleWrapping, Severity::Warning, first, numbers);
    let what =
        format!("{} cells with adapters of a policy run inside a region, {} first", adapters.len(), named(first));
    Some(finding.what(what).write("the policy or the region, not both"))
}

/// Finds a loss that is computed or returned in 16 bits.
fn low_loss(edges: &Edges, loss: DType) -> Option<Finding> {
    let computes = |at: &usize| {
        let edge = &edges.list[*at];
        let op = edge.forward_op().filter(|op| *op != Op::Cast);
        op.is_some_and(|op| op.family() != Some(Family::View)) && edge.dtype.is_low()
    };
    // The last edges that are written outside every cell are those of the loss.
    let after = edges.list.iter().rposition(|edge| edge.forward_op().is_some() && !edge.outside).map_or(0, |at| at + 1);
    let at = (after..edges.list.len()).find(computes);
    if at.is_none() && !loss.is_low() {
        return None;
    }
    let low = at.map_or(loss, |at| edges.list[at].dtype);
    let what = match at {
        Some(at) => {
            format!("{} computes the loss in {low}, which holds {} digits", edges.list[at].place(), digits(low))
        }
        None => format!("the loss is {low}, which holds {} digits", digits(low)),
    };
    let numbers = [f64::from(digits(low)), f64::from(digits(DType::F32))];
    let finding = match at {
        Some(at) => Finding::at(Rule::LowOutputIntoLoss, Severity::Warning, edges.list[at].place(), numbers),
        None => Finding::of_cell(Rule::LowOutputIntoLoss, Severity::Warning, "", numbers),
    };
    Some(finding.what(what).write("`y.cast(DType::F32)` before the loss, or a level that returns f32"))
}

/// Returns the significant bits of a dtype.
fn digits(dtype: DType) -> u32 {
    1 + (1.0 / dtype.epsilon()).log2() as u32
}

/// Finds products in 16 bits whose weight has a side that is not a multiple of 8.
fn shapes(edges: &Edges) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    for edge in edges.list.iter().filter(|edge| edge.dtype.is_low()) {
        let Some(op) = edge.forward_op().filter(|op| op.has_weight()) else { continue };
        let Some(weight) = edge.operands.get(1) else { continue };
        let sides = &weight.shape()[..weight.rank().min(2)];
        if found.iter().any(|finding| finding.cell == edge.cell) || sides.iter().all(|side| side % 8 == 0) {
            continue;
        }
        let odd = sides.iter().find(|side| *side % 8 != 0).copied().unwrap_or(0);
        let numbers = [odd as f64, 8.0];
        let what = format!("{op} in {} has a weight of {sides:?}, and {odd} is not a multiple of 8", named(&edge.cell));
        let write = format!(
            "{} channels, as TensorFlow's guideline for GPUs says: their matrix units work in blocks of 8; a CPU has none",
            odd.next_multiple_of(8)
        );
        let finding = Finding::at(Rule::ShapeOf8, Severity::Information, edge.place(), numbers);
        found.push(finding.what(what).write(write));
    }
    found
}
