//! `precast plan --html`: a page in which the plans of a network are searched, folded and compared.

use std::collections::{BTreeMap, HashMap};

use precast::{
    DType, Op, Plan, Policy,
    cell::Trace,
    plan::{Decision, ModelSummary, Reason},
    policy::Origin,
};
use precast_base::printable;
use precast_diagnose::Headroom;
use serde_json::{Value, json};

use super::{
    Failure, Result,
    inputs::{Predicting, Read},
    network::Network,
    summary::{Sizes, summary},
};

/// The page, with the place for its data.
const PAGE: &str = include_str!("plan_page.html");
const PLACE: &str = "{{data}}";

/// Texts, each stored once and named by its place.
#[derive(Default)]
struct Texts {
    all: Vec<String>,
    places: HashMap<String, usize>,
}

impl Texts {
    fn place(&mut self, text: &str) -> usize {
        let text = printable(text);
        *self.places.entry(text.to_string()).or_insert_with(|| {
            self.all.push(text.into_owned());
            self.all.len() - 1
        })
    }
}

/// Returns the page of these plans, one for each policy. Each is applied to a network of its own, since weights keep the
/// low copies that a call makes.
pub(super) fn page(
    networks: &mut [Network],
    policies: &[Read<Policy>],
    plans: &[Plan],
    predicting: &Predicting,
    headroom: &[Headroom],
) -> Result<String> {
    let (mut texts, mut shown, mut cells, mut input, mut unknown) =
        (Texts::default(), Vec::new(), json!([]), None, None);
    for ((network, policy), plan) in networks.iter_mut().zip(policies).zip(plans) {
        let (example, sizes, why, trace) = called(network, plan, predicting)?;
        let rows = sizes.cells.iter().map(|cell| {
            let kind = texts.place(&cell.kind);
            json!([
                printable(&cell.path),
                kind,
                cell.parameters,
                cell.trained,
                cell.calls,
                cell.outputs,
                cell.multiply_adds
            ])
        });
        cells = rows.collect();
        shown.push(of_plan(&mut texts, policy, plan, &sizes, &trace, headroom)?);
        (input, unknown) = (example, why);
    }
    let places: HashMap<&str, usize> =
        plans[0].decisions.iter().enumerate().map(|(place, of)| (of.path.as_str(), place)).collect();
    let changes = plans.get(1).map(|other| plans[0].diff(other).changes).unwrap_or_default();
    let data = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "head": networks[0].header::<Policy>(&[], &plans[0]),
        "input": input,
        "unknown": unknown,
        "cells": cells,
        "plans": shown,
        "differ": changes.iter().filter_map(|change| places.get(change.path.as_str())).collect::<Vec<_>>(),
        "texts": texts.all,
    });
    // A name may end the script: in JSON, `<` is only in texts.
    Ok(PAGE.replacen(PLACE, &data.to_string().replace('<', "\\u003c"), 1))
}

/// Applies a plan, and returns the sizes of the cells with a call, which has its casts. If the call fails, only the sizes
/// of parameters are known.
fn called(network: &mut Network, plan: &Plan, predicting: &Predicting) -> Result<Sizes> {
    if let Network::Built(model) = network {
        let _applied = plan.apply(&mut model.value.net)?;
    }
    match (summary(network, plan, predicting), network) {
        (Err(Failure::Usage(why)), Network::Built(model)) => {
            Ok((None, model.value.net.summary(plan, None)?, Some(why), Trace::default()))
        }
        (sizes, _) => sizes,
    }
}

/// Returns the decisions of one plan, with the explanations as places of their lines.
fn of_plan(
    texts: &mut Texts,
    policy: &Read<Policy>,
    plan: &Plan,
    sizes: &ModelSummary,
    trace: &Trace,
    headroom: &[Headroom],
) -> Result<Value> {
    let mut casts = BTreeMap::<_, BTreeMap<_, [u64; 3]>>::new();
    for ran in trace.ops.iter().filter(|ran| ran.op == Op::Cast) {
        let (from, elements) = (ran.inputs[0], ran.sizes.output.iter().product::<usize>());
        let of = casts.entry(ran.path.as_str()).or_default().entry((from.name(), ran.output.name())).or_default();
        let bytes = |dtype: DType| (elements * dtype.bytes()) as u64;
        *of = [of[0] + 1, of[1] + bytes(from), of[2] + bytes(ran.output)];
    }
    let mut rows = Vec::new();
    for (decision, size) in plan.decisions.iter().zip(&sizes.cells) {
        let numbers = headroom.iter().filter(|of| of.cell == decision.path);
        let explanation = plan.explain(&decision.path)?.with_numbers(numbers).to_string();
        let lines: Vec<usize> = explanation.lines().skip(1).map(|line| texts.place(line.trim_start())).collect();
        let sort = match &decision.because {
            Reason::Inside(_) => "inside a region".into(),
            Reason::Cost(_) => "cost".into(),
            because => because.to_string(),
        };
        let casts = casts.get(decision.path.as_str()).into_iter().flatten();
        let casts: Vec<Value> = casts
            .map(|((from, to), [count, read, written])| {
                json!([texts.place(from), texts.place(to), count, read, written])
            })
            .collect();
        let wrapped = u8::from(decision.adapter.is_some());
        let run = texts.place(&decision.run.to_string());
        let effect = texts.place(&decision.effect());
        let because = texts.place(&decision.because.to_string());
        rows.push(json!([run, effect, because, texts.place(&sort), wrapped, size.bytes, lines, casts]));
    }
    Ok(json!({
        "name": policy.to_string(),
        "policy": plan.policy.to_string(),
        "bytes": sizes.bytes,
        "cells": rows,
        "rules": rules(&policy.value, plan),
    }))
}

/// Returns the rules of a policy, and the entries of its lists that are its own or have a cell, each with the numbers of
/// cells, or tensors, that it matches and decides about.
fn rules(policy: &Policy, plan: &Plan) -> Vec<Value> {
    let count = |of: &dyn Fn(&Decision) -> bool| plan.decisions.iter().filter(|cell| of(cell)).count();
    let rules = policy.rules.iter().map(|rule| {
        let select = rule.select.to_string();
        let is_it = |origin: &Origin, by: &str| *origin == rule.origin && by == select;
        let tensors = plan.tensors.values().filter(|by| is_it(&by.origin, &by.select)).count();
        let matched = count(&|cell| rule.select.matches(&cell.path, &cell.kind));
        let decided = count(&|cell| {
            matches!(&cell.because, Reason::Rule(by) if is_it(&by.origin, &by.select))
                || cell.recompute.as_ref().is_some_and(|by| is_it(&by.origin, &by.select))
        });
        let effect = [
            rule.run.map(|run| format!("run: {run}")),
            rule.until.map(|step| format!("until: {{step: {step}}}")),
            rule.checkpoint.map(|checkpoint| format!("checkpoint: {checkpoint}")),
            rule.raise_after_stall.then(|| "after_stall: raise".into()),
        ];
        let effect: Vec<String> = effect.into_iter().flatten().collect();
        let (matched, decided) = (matched + tensors, decided + tensors);
        json!([select, effect.join(", "), rule.origin.to_string(), rule.because, matched, decided])
    });
    let lists = policy.lists.cells().iter().filter_map(|(kind, entry)| {
        let matched = count(&|cell| cell.kind == *kind);
        let decided = count(&|cell| cell.kind == *kind && cell.because == Reason::Listed(entry.clone()));
        let is_shown = matched > 0 || !matches!(entry.origin, Origin::Pack(_));
        let (select, effect) = (format!("kind {}", printable(kind)), format!("{} list", entry.treatment.name()));
        is_shown.then(|| json!([select, effect, entry.origin.to_string(), entry.because, matched, decided]))
    });
    rules.chain(lists).collect()
}
