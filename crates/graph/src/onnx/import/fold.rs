//! The parts of a model that do not depend on its inputs, computed at import.

use std::collections::{HashMap, HashSet};

use super::{
    compile::step,
    data::load,
    ops::constant_of,
    step::{Action, Body, Call, Step},
    value::{Item, Value},
};
use crate::onnx::values::{Origin, Values};
use precast::{
    Tensor,
    error::{Error, Result},
    recording::hidden,
};

/// Ops that move numbers.
const MOVES: [&str; 8] = ["Cast", "Concat", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"];
/// Ops that take some numbers, or make others.
const TAKES: [&str; 16] = [
    "Add",
    "CastLike",
    "Compress",
    "Div",
    "Gather",
    "GatherElements",
    "GatherND",
    "Mul",
    "Neg",
    "Pow",
    "Range",
    "Reciprocal",
    "Slice",
    "Split",
    "Sqrt",
    "Sub",
];
/// Numbers of the constants that such an op reads, at most.
const FEW: usize = 4096;

/// Returns the values that nodes take out of small constants, or make of them.
pub(in crate::onnx) fn taken(values: &Values<'_>) -> HashMap<usize, Tensor> {
    let mut known: HashMap<usize, Item> = HashMap::new();
    let mut taken = HashMap::new();
    for placed in values.nodes.iter().filter(|placed| placed.schema.is_some() && placed.node.domain.is_empty()) {
        let op = &&placed.node.op[..];
        if !MOVES.contains(op) && !TAKES.contains(op) {
            continue;
        }
        let input = |value: &Option<usize>| match value {
            None => Some(Value::Absent),
            Some(value) => known.get(value).cloned().or_else(|| constant(values, *value)).map(Value::One),
        };
        let Some(inputs) = placed.inputs.iter().map(input).collect::<Option<Vec<_>>>() else { continue };
        let mut items = Vec::new();
        inputs.iter().for_each(|value| value.each(&mut |item| items.push(item.x.clone())));
        let count: usize = items.iter().map(Tensor::len).sum();
        if count > FEW || made(op, &items) > FEW {
            continue;
        }
        let run = |step: &Step| match &step.action {
            Action::Op(run) => hidden(|| run(&Call { step, inputs })),
            _ => Ok(Vec::new()),
        };
        // A node that cannot be run is an error of the import, and its numbers are unknown to a plan.
        let results = step(values.model, placed.node).and_then(|step| run(&step)).unwrap_or_default();
        for (output, result) in placed.outputs.iter().zip(results) {
            let (&Some(output), Value::One(item)) = (output, result.into_known()) else { continue };
            // A cast that rounds to float32 makes numbers that no other value has.
            if TAKES.contains(op) || *op == "Cast" {
                taken.insert(output, item.x.clone());
            }
            known.insert(output, item);
        }
    }
    taken
}

/// Returns the most numbers that an op makes of others: a range, or what is broadcast.
fn made(op: &str, items: &[Tensor]) -> usize {
    if let ("Range", [start, limit, delta]) = (op, items) {
        let one = |x: &Tensor| x.to_f64().first().copied().unwrap_or(0.0);
        return ((one(limit) - one(start)) / one(delta)).max(0.0) as usize;
    }
    let rank = items.iter().map(Tensor::rank).max().unwrap_or(0);
    let axis = |i: usize| items.iter().filter_map(|x| x.shape().iter().rev().nth(i)).max().copied().unwrap_or(1);
    (0..rank).map(axis).fold(1, usize::saturating_mul)
}

/// Returns a small initialiser, or the value of a small constant.
fn constant(values: &Values<'_>, value: usize) -> Option<Item> {
    if let Some(stored) = values.tensor(value) {
        let is_small = stored.count().is_ok_and(|count| count <= FEW as u64);
        return is_small.then(|| load(values.model, stored).ok())?;
    }
    let Origin::Node { node } = values.values[value].origin else { return None };
    let node = values.nodes[node].node;
    let is_constant = node.op == "Constant" && node.domain.is_empty();
    is_constant.then(|| constant_of(&step(values.model, node).ok()?).ok()?)?
}

/// The known values around a body.
#[derive(Clone, Copy)]
struct Known<'a> {
    outer: Option<&'a Known<'a>>,
    values: &'a HashMap<String, Value>,
    /// Names of the body that are not known, and hide those around it.
    others: &'a HashSet<String>,
}

impl Known<'_> {
    fn get(&self, name: &str) -> Option<&Value> {
        match self.values.get(name) {
            Some(value) => Some(value),
            None if self.others.contains(name) => None,
            None => self.outer?.get(name),
        }
    }
}

/// Computes what is known, and replaces an `If` whose condition is known by its branch.
pub(super) fn fold(body: &mut Body) -> Result<()> {
    fold_within(body, None, true)
}

fn fold_within(body: &mut Body, outer: Option<&Known<'_>>, is_root: bool) -> Result<()> {
    let mut values: HashMap<String, Value> =
        body.constants.iter().map(|(name, item)| (name.clone(), item.clone().into())).collect();
    let mut others: HashSet<String> = body.inputs.iter().cloned().collect();
    others.extend(body.params.iter().map(|(name, _)| name.clone()));
    let mut kept = Vec::new();
    for mut step in std::mem::take(&mut body.steps) {
        let folded = {
            let known = Known { outer, values: &values, others: &others };
            match folded(&mut step, &known) {
                Ok(made) => made,
                Err(e) if is_root => return Err(step.at(e)),
                // The branch may never be taken.
                Err(_) => None,
            }
        };
        match folded {
            Some(made) => {
                for (name, value) in step.outputs.iter().zip(made).filter(|(name, _)| !name.is_empty()) {
                    if let Value::One(item) = &value {
                        body.constants.push((name.clone(), item.clone()));
                    }
                    values.insert(name.clone(), value);
                }
            }
            None => {
                others.extend(step.outputs.iter().cloned());
                kept.push(step);
            }
        }
    }
    body.steps = kept;
    Ok(())
}

/// Returns the results of a node whose inputs are known; `None` for any other.
fn folded(step: &mut Step, known: &Known<'_>) -> Result<Option<Vec<Value>>> {
    let value = |name: &String| if name.is_empty() { Some(Value::Absent) } else { known.get(name).cloned() };
    let inputs: Option<Vec<Value>> = step.inputs.iter().map(value).collect();
    match (&step.action, inputs) {
        (Action::Op(run), Some(inputs)) => {
            let made: Vec<Value> = hidden(|| run(&Call { step, inputs }))?.into_iter().map(Value::into_known).collect();
            // Sequences have no place among constants.
            let plain = made.iter().all(|value| matches!(value, Value::One(_)));
            return Ok((plain && made.len() >= step.outputs.len()).then_some(made));
        }
        (Action::If, Some(inputs)) => {
            let taken = if super::run::truth(&Call { step, inputs }, 0)? { "then_branch" } else { "else_branch" };
            let mut branch = step.body(taken)?.clone();
            fold_within(&mut branch, Some(known), false)?;
            step.attributes.clear();
            step.inputs.clear();
            step.action = Action::Branch(Box::new(branch));
            return Ok(None);
        }
        _ => {}
    }
    let is_function = matches!(step.action, Action::Function(_));
    for inner in step.bodies_mut() {
        fold_within(inner, if is_function { None } else { Some(known) }, false)?;
    }
    Ok(None)
}

/// Checks that every node can be run.
pub(super) fn check(body: &Body) -> Result<()> {
    for step in &body.steps {
        if let Action::Refused(why) = &step.action {
            return Err(step.at(Error::unsupported(why)));
        }
        step.bodies().try_for_each(check).map_err(|e| step.at(e))?;
    }
    Ok(())
}

/// Notes for each node the values that no later one reads, so that they can be dropped, and drops constants that none
/// reads.
pub(super) fn note_last(body: &mut Body) {
    let mut read: HashSet<String> = body.outputs.iter().cloned().collect();
    for step in body.steps.iter_mut().rev() {
        let mut now: HashSet<String> = step.inputs.iter().cloned().collect();
        step.bodies_mut().for_each(|inner| {
            note_last(inner);
            names_of(inner, &mut now);
        });
        let unread = step.outputs.iter().filter(|name| !read.contains(*name));
        let last = now.iter().filter(|name| !name.is_empty() && !read.contains(*name)).chain(unread);
        step.last = last.cloned().collect();
        read.extend(now);
    }
    body.constants.retain(|(name, _)| read.contains(name));
}

fn names_of(body: &Body, into: &mut HashSet<String>) {
    into.extend(body.outputs.iter().cloned());
    for step in &body.steps {
        into.extend(step.inputs.iter().cloned());
        step.bodies().for_each(|inner| names_of(inner, into));
    }
}

/// Adds a known value for an input of the model.
pub(super) fn fix(body: &mut Body, name: &str, item: Item) {
    body.inputs.retain(|input| input != name);
    body.constants.push((name.to_string(), item));
}
