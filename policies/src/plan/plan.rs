//! The plan: the decisions of a policy for one network, before anything is changed.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashSet},
};

use precast_base::{
    DType, Error, Result,
    names::did_you_mean,
    path::{join, no_such_path, shown},
    printable::printable,
};
use serde::{Deserialize, Serialize};

use super::{
    cost::Forecast,
    decide::{Choice, Facts, Prepared, Surroundings, decide},
    decision::{ByRule, Decision, Later, Quantization, RuleRef},
    words::cells,
};
use crate::{
    Op, Policy,
    catalogue::System,
    kinds::{self, named_elsewhere},
    outline::{Outline, OutlinedCell},
    policy::{Entry, Level, Origin, Prefer, Rule, RunAs, Scaler, Select},
    precision::Treatment,
};

/// The precision of each cell of a network, with the reasons. A value: printing, comparing and storing it changes
/// nothing.
///
/// `println!("{plan}")` is the tree of cells with reasons.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Plan {
    /// The policy from which it was made.
    pub policy: Summary,
    /// One decision for each cell, the root first, in the order of the [outline](crate::Outline).
    pub decisions: Vec<Decision>,
    /// The ops with an entry in the op lists, where the level uses them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub listed: BTreeMap<Op, Entry>,
    /// The treatment of all other ops, where the level uses op lists.
    #[serde(default = "as_is", skip_serializing_if = "is_as_is")]
    pub unlisted: Treatment,
    /// The tensors of a stored model that rules name, each with its rule. A rule whose path matches no cell is for
    /// tensors: `run: low` stores them low, whatever they are, and `run: float32` leaves them unchanged.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tensors: BTreeMap<String, RuleRef>,
    /// Predicted cost of a plan made [for a machine](Policy::plan_for).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prediction: Option<Forecast>,
}

fn as_is() -> Treatment {
    Treatment::AsIs
}

fn is_as_is(treatment: &Treatment) -> bool {
    *treatment == Treatment::AsIs
}

/// The part of its policy that a plan keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Summary {
    /// Name of the policy, if it has one.
    pub name: Option<String>,
    /// The pack of lists, if they come from one.
    pub pack: Option<String>,
    /// The level.
    pub level: Level,
    /// The low dtype.
    pub dtype: DType,
    /// The preference for memory or speed, which decides whether cells that are faster in f32 are lowered.
    #[serde(default, skip_serializing_if = "Prefer::is_memory")]
    pub prefer: Prefer,
    /// The reaction to training the network in f16 without a loss scale.
    #[serde(default, skip_serializing_if = "Scaler::is_advised")]
    pub scaler: Scaler,
}

impl From<&Policy> for Summary {
    fn from(policy: &Policy) -> Self {
        let Policy { name, pack, level, dtype, prefer, scaler, .. } = policy;
        Summary {
            name: name.clone(),
            pack: pack.clone(),
            level: *level,
            dtype: *dtype,
            prefer: *prefer,
            scaler: *scaler,
        }
    }
}

impl Policy {
    /// Decides for every cell of an outline: a tree with only the paths and kinds of cells.
    ///
    /// # Errors
    /// As [`plan`](Policy::plan).
    ///
    /// ```
    /// use precast_policy::{Outline, OutlinedCell, Policy};
    /// let net = Outline::new([OutlinedCell::new("", "Sequential"), OutlinedCell::new("0", "Dense").matrices()])?;
    /// let policy = Policy::named("o2")?;
    /// assert_eq!(policy.plan_outline(net.clone())?, policy.plan(&net)?);
    /// # Ok::<(), precast_policy::Error>(())
    /// ```
    pub fn plan_outline(&self, outline: Outline) -> Result<Plan> {
        if self.prefer == Prefer::Speed {
            let words = "the policy prefers speed, which is decided by a call of the network, and there is only its outline; \
                         leave `prefer: speed` out";
            return Err(Error::policy(words));
        }
        let prepared = Prepared::new(self, outline.system)?;
        let (decisions, _, tensors) = self.decisions(&prepared, outline)?;
        Ok(Plan { tensors, ..self.planned(&prepared, decisions, None) })
    }

    pub(super) fn planned(
        &self,
        prepared: &Prepared<'_>,
        decisions: Vec<Decision>,
        prediction: Option<Forecast>,
    ) -> Plan {
        let policy = Summary::from(self);
        let entry = |op: &Op| Some((*op, self.lists.op(*op, self.dtype)?.clone()));
        let (listed, unlisted) = match prepared.ops() {
            None => (BTreeMap::new(), Treatment::AsIs),
            Some(rules) => (rules.ops.keys().filter_map(entry).collect(), rules.unlisted),
        };
        Plan { policy, decisions, listed, unlisted, tensors: BTreeMap::new(), prediction }
    }

    /// Returns the decisions regardless of time, the freedom of `prefer: speed` at each, and the tensors that rules
    /// name.
    pub(super) fn decisions(&self, prepared: &Prepared<'_>, outline: Outline) -> Result<Decided> {
        let ends = self.ends();
        if ends.is_empty() {
            return self.decisions_at_once(prepared, outline);
        }
        let (mut first, choices, tensors) = self.decisions_at_once(prepared, outline.clone())?;
        let mut now = first.clone();
        for end in ends {
            let policy = self.after_steps(end);
            let (next, ..) = policy.decisions_at_once(&Prepared::new(&policy, outline.system)?, outline.clone())?;
            for ((decision, now), next) in first.iter_mut().zip(&now).zip(&next) {
                let what = |d: &Decision| (d.run, d.planned());
                if what(now) != what(next) {
                    let (effect, because) = (next.first_effect(), next.because.clone());
                    decision.later.push(Later { after: end, effect, because });
                }
            }
            now = next;
        }
        Ok((first, choices, tensors))
    }

    /// Returns the decisions as long as all rules hold.
    fn decisions_at_once(&self, prepared: &Prepared<'_>, outline: Outline) -> Result<Decided> {
        // The cells that each rule matches, by their places.
        let (mut hits, mut matching) = (vec![Vec::new(); self.rules.len()], Vec::new());
        let mut order = Order::new(&self.rules);
        let (mut decisions, mut choices) = (Vec::new(), Vec::new());
        // Surroundings of the children of each cell on the path down to the current one.
        let mut above: Vec<Surroundings> = vec![Surroundings::of_root()];
        for cell in outline.cells {
            let kinds: Vec<&str> = cell.kinds().collect();
            let OutlinedCell { ref path, depth, to_float, has_matrices, sizes, .. } = cell;
            above.truncate(depth + 1);
            let around = &above[depth];
            let facts = Facts { kinds: &kinds, to_float, is_root: depth == 0 };
            let matches = |select: &Select| kinds.iter().any(|kind| select.matches(path, kind));
            matching.clear();
            matching.extend((0..hits.len()).filter(|&i| matches(&self.rules[i].select)));
            matching.iter().for_each(|&i| hits[i].push(decisions.len()));
            order.note(&matching);
            let verdict = decide(prepared, &facts, &matching, around);
            let [of_operands, of_kept] = prepared.quantizing(&matching, around);
            let inside = Surroundings { operands: of_operands, kept: of_kept, ..around.inside(&verdict, path) };
            let has_products = has_matrices && kinds.iter().any(|kind| kinds::has_products(kind));
            let of_operands = of_operands.filter(|_| has_products);
            let has_one_product = kinds.iter().any(|kind| matches!(*kind, "Dense" | "Conv1d" | "Conv2d" | "Conv3d"));
            let operands = of_operands.map(|i| Quantization::of(&self.rules[i], path, sizes, has_one_product));
            let adapter = prepared.adapter(&facts, around, &verdict);
            let OutlinedCell { path, kind, keeps, .. } = cell;
            choices.push(verdict.choice);
            let low = verdict.run.dtype().is_some_and(DType::is_low);
            decisions.push(Decision {
                path,
                kind,
                run: verdict.run,
                adapter,
                recompute: prepared.recompute(&matching),
                kept: of_kept.and_then(|i| Some(ByRule::of(&self.rules[i], self.rules[i].kept?))),
                operands: operands.transpose()?.flatten(),
                raise_after_stall: self.level != Level::O0 && matching.iter().any(|&i| self.rules[i].raise_after_stall),
                later: Vec::new(),
                wide_weight_grads: verdict.wide_weight_grads && has_matrices,
                turns_weight_grads: Some(verdict.wide_weight_grads).filter(|wide| *wide != around.wide_weight_grads),
                keeps: if low { keeps } else { Vec::new() },
                because: verdict.because,
                overridden: verdict.overridden,
                predicted: None,
            });
            above.push(inside);
        }
        let tensors = named_tensors(&self.rules, &hits, &outline.tensors);
        for (rule, hits) in self.rules.iter().zip(hits) {
            check_hits(rule, &hits, &decisions, &outline.tensors, outline.system)?;
        }
        for decision in &mut decisions {
            let path = &decision.path;
            decision.keeps.retain(|own| tensors.get(&join(path, own)).is_none_or(|rule| !rule.stores_low()));
        }
        order.check()?;
        check_paths(&decisions)?;
        if self.level != Level::O0 {
            check_operands(&self.rules, &decisions)?;
        }
        // A rule that ends may decide in place of those for gradients of weights.
        if self.ends().is_empty() {
            check_weight_grads(&self.rules, &decisions)?;
        }
        check_kinds(self, &decisions, &outline.kinds, outline.system)?;
        Ok((decisions, choices, tensors))
    }
}

/// Decisions, the freedom to choose a faster one at each, and the tensors that rules name.
type Decided = (Vec<Decision>, Vec<Choice>, BTreeMap<String, RuleRef>);

/// Returns the tensors named by rules whose paths match no cell, each with its rule: that of its exact path, or else
/// the first.
fn named_tensors(rules: &[Rule], hits: &[Vec<usize>], tensors: &[String]) -> BTreeMap<String, RuleRef> {
    let mut named = BTreeMap::new();
    let of_tensors = || rules.iter().zip(hits).filter(|(_, hits)| hits.is_empty()).map(|(rule, _)| rule);
    let exact = of_tensors().filter(|rule| rule.select.is_exact_path());
    for rule in exact.chain(of_tensors().filter(|rule| !rule.select.is_exact_path())) {
        let Some(of_rule) = RuleRef::of(rule) else { continue };
        for name in tensors.iter().filter(|name| rule.names_tensor(name)) {
            named.entry(name.clone()).or_insert_with(|| of_rule.clone());
        }
    }
    named
}

impl Plan {
    /// Returns the decision for the cell at a path; the root's path is empty.
    ///
    /// # Errors
    /// [`ErrorKind::Path`](crate::ErrorKind::Path) when there is no such cell, with the nearest path.
    pub fn decision(&self, path: &str) -> Result<&Decision> {
        let found = self.decisions.iter().find(|d| d.path == path);
        found.ok_or_else(|| no_such_path(path, self.decisions.iter().map(|d| d.path.as_str())))
    }

    /// Returns the number of cells in each precision.
    pub fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for decision in &self.decisions {
            *counts.entry(decision.run.to_string()).or_default() += 1;
        }
        counts
    }

    /// Returns the number of slots that get an adapter.
    pub fn wrapped(&self) -> usize {
        self.decisions.iter().filter(|d| d.adapter.is_some()).count()
    }
}

/// The rules that decide something, and for each other rule an earlier one that takes precedence.
struct Order<'a> {
    rules: &'a [Rule],
    decides: Vec<bool>,
    /// For each rule, an earlier rule that decided in its place.
    before: Vec<Option<usize>>,
}

impl<'a> Order<'a> {
    fn new(rules: &'a [Rule]) -> Self {
        Order { rules, decides: vec![false; rules.len()], before: vec![None; rules.len()] }
    }

    /// Notes which rules decide for one cell, given the indices of those that match it.
    fn note(&mut self, matching: &[usize]) {
        let says: [fn(&Rule) -> bool; 4] = [
            |rule| rule.run.is_some(),
            |rule| rule.checkpoint.is_some(),
            |rule| rule.operands.is_some(),
            |rule| rule.kept.is_some(),
        ];
        for says in says {
            let speaking = || matching.iter().copied().filter(|&i| says(&self.rules[i]));
            let exact = speaking().find(|&i| self.rules[i].select.is_exact_path());
            let Some(first) = exact.or_else(|| speaking().next()) else { continue };
            // A rule that ends leaves its cells to the rules after it.
            let lasts = |i: &usize| *i > first && self.rules[first].outlasts(&self.rules[*i]);
            let later: Vec<usize> = speaking().filter(lasts).collect();
            self.decides[first] = true;
            // A rule for one path is an exception to those for many, regardless of the order.
            if exact.is_none() {
                later.into_iter().for_each(|i| self.before[i] = Some(first));
            }
        }
    }

    /// Rejects a rule that never decides because of earlier rules.
    fn check(&self) -> Result<()> {
        for (i, rule) in self.rules.iter().enumerate() {
            if let (false, Some(before)) = (self.decides[i], self.before[i]) {
                let before = &self.rules[before];
                return Err(Error::policy(format!(
                    "{}: the rule for {} decides nothing, because the first rule that matches a cell decides, and the rule for \
                     {} ({}) matches before it; put the narrower rule first",
                    rule.origin, rule.select, before.select, before.origin
                )));
            }
        }
        Ok(())
    }
}

/// Rejects a rule that matches nothing, or not as much as it expects. One that matches no cell is for tensors.
fn check_hits(
    rule: &Rule,
    of_cells: &[usize],
    decisions: &[Decision],
    tensors: &[String],
    system: Option<System>,
) -> Result<()> {
    let named = || tensors.iter().filter(|name| of_cells.is_empty() && rule.names_tensor(name));
    let hits = of_cells.len() + named().count();
    match rule.expect {
        Some(expected) if expected != hits => {
            let paths = of_cells.iter().map(|&i| shown(&decisions[i].path));
            let paths = paths.chain(named().map(|name| printable(name)));
            let some: Vec<_> = paths.take(5).collect();
            let more = if hits > some.len() { ", ..." } else { "" };
            let (expected, some) = (cells(expected), some.join(", "));
            let words = format!("the rule for {} expects {expected} and matches {hits}: {some}{more}", rule.select);
            Err(rule.origin.error(Error::policy(words)))
        }
        None if hits == 0 => {
            let (paths, kinds) = (decisions.iter().map(|d| d.path.as_str()), decisions.iter().map(|d| d.kind.as_ref()));
            let paths = paths.chain(tensors.iter().map(String::as_str));
            let near = other_name(&rule.select, decisions, system).unwrap_or_else(|| rule.select.nearest(paths, kinds));
            Err(rule.origin.error(Error::policy(format!("the rule for {} matches no cell{near}", rule.select))))
        }
        _ => Ok(()),
    }
}

/// Rejects rules about gradients of weights that reach none.
fn check_weight_grads(rules: &[Rule], decisions: &[Decision]) -> Result<()> {
    let rule = rules.iter().find(|rule| rule.run == Some(RunAs::LowForward) && rule.expect != Some(0));
    match rule.filter(|_| decisions.iter().all(|decision| !decision.wide_weight_grads)) {
        Some(Rule { origin, select, .. }) => Err(Error::policy(format!(
            "{origin}: the rule for {select} asks for gradients of weights in float32, and decides for no dense layer and no \
             convolution"
        ))),
        None => Ok(()),
    }
}

/// Rejects rules about operands that reach no cell with products.
fn check_operands(rules: &[Rule], decisions: &[Decision]) -> Result<()> {
    let is_of =
        |rule: &Rule, of: &ByRule<Quantization>| of.origin == rule.origin && of.select == rule.select.to_string();
    let reaches = |rule: &&Rule| decisions.iter().filter_map(|d| d.operands.as_ref()).any(|of| is_of(rule, of));
    match rules.iter().find(|rule| rule.operands.is_some() && !reaches(rule)) {
        Some(Rule { origin, select, .. }) => Err(origin.error(Error::policy(format!(
            "the rule for {select} is about operands of products, and decides for no cell that has any: dense layers, \
             convolutions, recurrent layers, attention"
        )))),
        None => Ok(()),
    }
}

/// Checks that the path of each cell is unique.
fn check_paths(decisions: &[Decision]) -> Result<()> {
    let mut paths = HashSet::new();
    match decisions.iter().find(|decision| !paths.insert(decision.path.as_str())) {
        None => Ok(()),
        Some(Decision { path, .. }) => Err(Error::path(format!(
            "two cells at `{}`: a key of a map of cells has no dot in it, and is not empty",
            printable(path)
        ))),
    }
}

/// Returns a suggestion for a selection that matches nothing: a kind under another system's name, or a parameter.
fn other_name(select: &Select, decisions: &[Decision], system: Option<System>) -> Option<String> {
    let select = match select {
        Select::Kind(kind) => {
            let (here, who) = named_elsewhere(kind).filter(|(here, _)| here != kind)?;
            let Some(system) = system else { return Some(format!(" (what {who} calls so is `{here}` here)")) };
            let mut of_system = kinds::of(system).into_iter();
            let (there, _) = of_system.find(|(there, kinds)| kinds.contains(&here) && there != kind)?;
            return Some(format!(" (what {who} calls so is `{there}` in {system})"));
        }
        Select::Path(pattern) => pattern.to_string(),
    };
    let is_plain = !select.contains(['*', '.']);
    if let Some(decision) = decisions.iter().find(|decision| is_plain && decision.kind == select) {
        return Some(format!(" (it is the kind of `{}`: `kind: {}`)", printable(&decision.path), printable(&select)));
    }
    let inside = format!(".{select}");
    if let Some(decision) = decisions.iter().find(|decision| !select.contains('*') && decision.path.ends_with(&inside))
    {
        return Some(format!(" (did you mean `**.{}`, as of `{}`?)", printable(&select), printable(&decision.path)));
    }
    let is_cell = |path: &str| decisions.iter().any(|decision| decision.path == path);
    let (cell, last) = select.rsplit_once('.').filter(|(cell, _)| is_cell(cell))?;
    matches!(last, "weight" | "bias").then(|| {
        format!(" (`{}` is a parameter of the cell `{}`, and a rule names cells)", printable(last), printable(cell))
    })
}

/// Checks that each kind that a user listed exists: in the library, in the program, in the network, or, if named
/// explicitly as in `burn::Linear`, in another library.
fn check_kinds(
    policy: &Policy,
    decisions: &[Decision],
    kinds: &[Cow<'static, str>],
    system: Option<System>,
) -> Result<()> {
    let by_hand = |(_, entry): &(&String, &Entry)| !matches!(entry.origin, Origin::Pack(_));
    let mut by_hand = policy.lists.cells().iter().filter(by_hand).peekable();
    if by_hand.peek().is_none() {
        return Ok(());
    }
    let of_system: Vec<&str> =
        system.map(kinds::of).into_iter().flatten().flat_map(|(there, here)| [vec![there], here].concat()).collect();
    for (kind, Entry { origin, .. }) in by_hand {
        let met = kinds.iter().chain(decisions.iter().map(|d| &d.kind)).map(AsRef::as_ref);
        let known: Vec<&str> = met.chain(of_system.iter().copied()).collect();
        let open = kind.split_once("::").and_then(|(prefix, _)| prefix.parse().ok()).is_some_and(System::is_open);
        if !open && !known.contains(&kind.as_str()) {
            let near = did_you_mean(kind, known);
            return Err(origin.error(Error::list(format!("no cell is of the kind `{kind}`{near}"))));
        }
    }
    Ok(())
}
