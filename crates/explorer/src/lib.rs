//! The page in which plans of a network are searched, folded and compared.
//!
//! ```
//! use precast::{cell::Trace, prelude::*};
//! use precast_explorer::{About, View, of_cells};
//!
//! let net = Child::new(Dense::new(2, 2, &mut Rng::seed(1)));
//! let policy = Policy::named("o2")?;
//! let plan = policy.plan(&net)?;
//! let view = View {
//!     name: "o2".into(),
//!     policy: &policy,
//!     plan: &plan,
//!     sizes: &net.summary(&plan, None)?,
//!     trace: &Trace::default(),
//! };
//! let page = of_cells(&About { model: "a layer".into(), ..About::default() }, &[view])?.page();
//! assert!(page.starts_with("<!doctype html>") && page.contains("a layer"));
//! # Ok::<(), precast::Error>(())
//! ```

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod inferred;

use std::collections::{BTreeMap, HashMap, HashSet};

pub use inferred::Inferred;
use precast::{
    DType, Op, Plan, Policy, Result,
    cell::Trace,
    error::Error,
    plan::{Decision, Diff, ModelSummary, Reason},
    policy::{Origin, Rule},
};
use precast_base::{printable, printable_lines};
use precast_graph::NodeDecision;
use serde_json::{Value, json};

/// The page, with the place for its data.
const PAGE: &str = include_str!("page.html");
const PLACE: &str = "{{data}}";

/// Facts about the network of a page.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// Name of the network, with its origin.
    pub model: String,
    /// Facts about the network, a line each.
    pub facts: Vec<String>,
    /// Shape of the example with which it was called.
    pub input: Option<Vec<usize>>,
    /// Reason for missing shapes, multiply-adds and casts.
    pub unknown: Option<String>,
    /// Ranges of the numbers of cells in a run, in words, by path.
    pub numbers: BTreeMap<String, Vec<String>>,
    /// Facts that were found about cells, by path.
    pub notes: BTreeMap<String, Vec<Note>>,
}

/// A fact about a cell, such as a finding of a lint.
#[derive(Clone, Debug)]
pub struct Note {
    /// Its mark at the row of the cell, a word or two.
    pub mark: String,
    /// The fact in words, for the explanation of the cell.
    pub text: String,
}

/// The plan of one policy, with the sizes of its cells.
#[derive(Clone, Debug)]
pub struct View<'a> {
    /// Name of the policy, with its origin.
    pub name: String,
    /// The policy.
    pub policy: &'a Policy,
    /// Its plan.
    pub plan: &'a Plan,
    /// The sizes of the cells under the plan.
    pub sizes: &'a ModelSummary,
    /// The call under the plan; empty if there was none.
    pub trace: &'a Trace,
}

/// The decisions of one policy for graphs about the nodes of a network.
#[derive(Clone, Debug)]
pub struct NodesView<'a> {
    /// Name of the policy, with its origin.
    pub name: String,
    /// The policy in words.
    pub policy: String,
    /// Its rules.
    pub rules: &'a [Rule],
    /// The decisions.
    pub nodes: &'a [NodeDecision],
}

/// The data of a page.
#[derive(Clone, Debug)]
pub struct Data(Value);

impl Data {
    /// Returns the data as JSON without the character `<`, with which a name could end a script.
    pub fn json(&self) -> String {
        // In JSON, `<` is only in texts.
        self.0.to_string().replace('<', "\\u003c")
    }

    /// Returns the page, an HTML document that needs no other file.
    pub fn page(&self) -> String {
        PAGE.replacen(PLACE, &self.json(), 1)
    }
}

/// Texts, each stored once and named by its place.
#[derive(Default)]
struct Texts {
    all: Vec<String>,
    places: HashMap<String, usize>,
}

impl Texts {
    fn place(&mut self, text: &str) -> usize {
        let text = printable(text);
        if let Some(place) = self.places.get(&*text) {
            return *place;
        }
        self.all.push(text.to_string());
        self.places.insert(text.into_owned(), self.all.len() - 1);
        self.all.len() - 1
    }

    fn data(self, about: &About, (nouns, cells): (&str, Vec<Value>), plans: Vec<Value>, differ: Vec<usize>) -> Data {
        let places: HashMap<&str, usize> =
            cells.iter().enumerate().filter_map(|(place, cell)| Some((cell[0].as_str()?, place))).collect();
        // By the places of cells; a note on a path without a cell is one on the root.
        let mut notes = BTreeMap::<usize, Vec<Value>>::new();
        for (path, of_cell) in &about.notes {
            let place = places.get(&*printable(path)).copied().unwrap_or(0);
            let of_cell = of_cell.iter().map(|note| json!([printable(&note.mark), printable_lines(&note.text)]));
            notes.entry(place).or_default().extend(of_cell);
        }
        Data(json!({
            "version": env!("CARGO_PKG_VERSION"),
            "model": printable(&about.model),
            "facts": about.facts,
            "input": about.input,
            "unknown": about.unknown,
            "nouns": nouns,
            "cells": cells,
            "plans": plans,
            "differ": differ,
            "notes": notes,
            "texts": self.all,
        }))
    }
}

/// Returns the data of plans of one network, one for each policy.
///
/// # Errors
/// [`ErrorKind::Path`](precast::ErrorKind::Path) for plans and sizes of other networks; [`ErrorKind::Value`](precast::ErrorKind::Value)
/// without a plan.
pub fn of_cells(about: &About, views: &[View<'_>]) -> Result<Data> {
    let Some(first) = views.first() else { return Err(Error::value("a page needs a plan")) };
    let mut texts = Texts::default();
    // Shapes are those of the last call: plans change none.
    let cells = views.last().map_or(&first.sizes.cells, |view| &view.sizes.cells).iter().map(|cell| {
        let kind = texts.place(&cell.kind);
        let (path, outputs) = (printable(&cell.path), &cell.outputs);
        json!([path, kind, cell.parameters, cell.trained, cell.calls, outputs, cell.multiply_adds])
    });
    let cells = cells.collect();
    let plans = views.iter().map(|view| of_plan(&mut texts, view, &about.numbers)).collect::<Result<_>>()?;
    let places: HashMap<&str, usize> =
        first.plan.decisions.iter().enumerate().map(|(place, of)| (of.path.as_str(), place)).collect();
    let changes = views.get(1).map(|other| first.plan.diff(other.plan).changes).unwrap_or_default();
    let differ = changes.iter().filter_map(|change| places.get(change.path.as_str()).copied()).collect();
    Ok(texts.data(about, ("cells", cells), plans, differ))
}

/// Returns the decisions of one plan, with the explanations as places of their lines.
fn of_plan(texts: &mut Texts, view: &View<'_>, numbers: &BTreeMap<String, Vec<String>>) -> Result<Value> {
    let View { name, policy, plan, sizes, trace } = view;
    let mut casts = BTreeMap::<_, BTreeMap<_, [u64; 3]>>::new();
    for ran in trace.ops.iter().filter(|ran| ran.op == Op::Cast) {
        let Some(from) = ran.inputs.first() else { continue };
        let elements = ran.sizes.output.iter().product::<usize>();
        let of = casts.entry(ran.path.as_str()).or_default().entry((from.name(), ran.output.name())).or_default();
        let bytes = |dtype: DType| (elements * dtype.bytes()) as u64;
        *of = [of[0] + 1, of[1] + bytes(*from), of[2] + bytes(ran.output)];
    }
    let mut rows = Vec::new();
    for (decision, size) in plan.decisions.iter().zip(&sizes.cells) {
        let numbers = numbers.get(&decision.path).into_iter().flatten();
        let explanation = plan.explain(&decision.path)?.with_numbers(numbers).to_string();
        let lines: Vec<usize> = explanation.lines().skip(1).map(|line| texts.place(line.trim_start())).collect();
        let casts = casts.get(decision.path.as_str()).into_iter().flatten();
        let casts: Vec<Value> = casts
            .map(|((from, to), [count, read, written])| {
                json!([texts.place(from), texts.place(to), count, read, written])
            })
            .collect();
        let wrapped = u8::from(decision.adapter.is_some());
        let run = texts.place(&decision.run.to_string());
        let effect = texts.place(&decision.effect());
        let because = texts.place(&decision.reasons(&mut HashSet::new()));
        let sort = texts.place(&sort(&decision.because));
        rows.push(json!([run, effect, because, sort, wrapped, size.bytes, lines, casts]));
    }
    Ok(json!({
        "name": name,
        "policy": plan.policy.to_string(),
        "bytes": sizes.bytes,
        "cells": rows,
        "rules": rules(policy, plan),
    }))
}

/// Returns a reason without the place that it names, so that one colour serves all of its sort.
fn sort(because: &Reason) -> String {
    match because {
        Reason::Inside(_) => "inside a region".into(),
        Reason::Cost(_) => "cost".into(),
        Reason::Follows { .. } => "follows a neighbour".into(),
        Reason::Between { .. } => "between two nodes".into(),
        Reason::AfterDenied(_) => "after a node in f32".into(),
        because => because.to_string(),
    }
}

/// Returns the effect of a rule, as the file has it.
fn effect(rule: &Rule) -> String {
    let says = rule.entries().into_iter().filter(|(key, _)| !["path", "kind", "op", "because", "expect"].contains(key));
    says.map(|(key, value)| format!("{key}: {value}")).collect::<Vec<_>>().join(", ")
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
                || cell.operands.as_ref().is_some_and(|by| is_it(&by.origin, &by.select))
                || cell.kept.as_ref().is_some_and(|by| is_it(&by.origin, &by.select))
        });
        let (matched, decided) = (matched + tensors, decided + tensors);
        json!([select, effect(rule), rule.origin.to_string(), rule.because, matched, decided])
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

/// Returns the data of decisions about the nodes of one network, one for each policy. Casts, which differ with the policy, are
/// counted and not shown.
///
/// # Errors
/// [`ErrorKind::Value`](precast::ErrorKind::Value) without a view, and for views with other nodes.
pub fn of_nodes(about: &About, views: &[NodesView<'_>]) -> Result<Data> {
    let shown = |view: &NodesView<'_>| view.nodes.iter().filter(|node| !node.is_cast()).cloned().collect();
    let nodes: Vec<Vec<NodeDecision>> = views.iter().map(shown).collect();
    let Some(first) = nodes.first() else { return Err(Error::value("a page needs a plan")) };
    let names = |nodes: &[NodeDecision]| nodes.iter().map(|of| of.node.clone()).collect::<Vec<_>>();
    if nodes.iter().any(|other| names(other) != names(first)) {
        return Err(Error::value("the policies make graphs with other nodes, which a page cannot compare"));
    }
    let mut texts = Texts::default();
    let root = json!(["", texts.place("Graph"), 0, 0, 0, [], null]);
    let of_node = |of: &NodeDecision| json!([printable(&of.node), texts.place(&of.op), 0, 0, 0, [], null]);
    let cells = [root].into_iter().chain(first.iter().map(of_node)).collect();
    let plans = views.iter().zip(&nodes).map(|(view, nodes)| of_view(&mut texts, view, nodes)).collect();
    let changes = nodes.get(1).map(|other| Diff::between(("", first), ("", other)).changes).unwrap_or_default();
    let places: HashMap<&str, usize> = first.iter().zip(1..).map(|(of, place)| (of.node.as_str(), place)).collect();
    let differ = changes.iter().filter_map(|change| places.get(change.path.as_str()).copied()).collect();
    Ok(texts.data(about, ("nodes", cells), plans, differ))
}

/// Returns the decisions of one policy for graphs; the root has their numbers.
fn of_view(texts: &mut Texts, view: &NodesView<'_>, nodes: &[NodeDecision]) -> Value {
    let computing = nodes.iter().filter(|of| of.computes());
    let low = computing.clone().filter(|of| of.dtype.is_low()).count();
    let casts = view.nodes.len() - nodes.len();
    let root = format!("{low} of {} nodes run low, {casts} casts", computing.count());
    let (mixed, root, none) = (texts.place("graph"), texts.place(&root), texts.place(""));
    let root = json!([mixed, root, none, none, 0, 0, [], []]);
    let rows = nodes.iter().map(|of| {
        let run = of.dtype.to_string();
        let effect = if of.computes() { format!("runs {run}") } else { run.clone() };
        let because = of.because.as_ref().map_or(String::new(), Reason::to_string);
        let sort = of.because.as_ref().map_or("no reason needed".into(), sort);
        let cell = (!of.cell.is_empty()).then(|| texts.place(&format!("cell {}", of.cell)));
        let reason = (!because.is_empty()).then(|| texts.place(&format!("because {because}")));
        let lines: Vec<usize> = cell.into_iter().chain(reason).collect();
        let places = [&run, &effect, &because, &sort].map(|text| texts.place(text));
        json!([places[0], places[1], places[2], places[3], 0, 0, lines, []])
    });
    let cells: Vec<Value> = [root].into_iter().chain(rows).collect();
    let rules = view.rules.iter().map(|rule| {
        let matched = nodes.iter().filter(|of| rule.select.matches(&of.node, &of.op)).count();
        let is_it = |by: &Reason| matches!(by, Reason::Rule(by) if by.origin == rule.origin);
        let decided = nodes.iter().filter(|of| of.because.as_ref().is_some_and(is_it)).count();
        json!([rule.select.to_string(), effect(rule), rule.origin.to_string(), rule.because, matched, decided])
    });
    let rules: Vec<Value> = rules.collect();
    json!({ "name": view.name, "policy": view.policy, "bytes": 0, "cells": cells, "rules": rules })
}
