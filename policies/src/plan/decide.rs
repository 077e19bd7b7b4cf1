//! The decision for one cell: a pure function of what is known of it, what surrounds it, and the policy.

use std::sync::Arc;

use super::{Reason, Recompute, Region, RuleRef};
use crate::{
    DType, Policy,
    adapter::{Adapter, Cast},
    catalogue::System,
    error::{Error, Result},
    kinds::{self, Named},
    policy::{Entry, Level, Run},
    precision::{OpRules, Treatment},
};

/// What is known of a cell.
pub(super) struct Facts<'a> {
    pub path: &'a str,
    pub kind: &'a str,
    pub to_float: Option<DType>,
    pub is_root: bool,
}

/// The region in which a cell stands.
#[derive(Clone)]
pub(super) struct Surroundings {
    pub run: Region,
    /// Path of the nearest cell above whose region was decided by more than the level's default.
    pub decided_by: Option<Arc<str>>,
    pub choice: Choice,
    pub wide_weight_grads: bool,
}

/// Whether `prefer: speed` may choose f32 where the policy says low.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// No: the user forced it, or nothing is lowered here.
    Forced,
    /// Not here: the cell follows what surrounds it.
    Inherits,
    /// Yes.
    Free,
}

/// What was decided, and why.
pub(super) struct Verdict {
    pub run: Region,
    pub because: Reason,
    pub choice: Choice,
    /// Whether gradients of weights are computed in f32.
    pub wide_weight_grads: bool,
    pub overridden: Vec<Reason>,
}

/// One thing that applies to a cell.
struct Claim {
    run: Region,
    because: Reason,
    choice: Choice,
    wide_weight_grads: bool,
}

impl Claim {
    fn forced(run: Region, because: Reason) -> Self {
        Claim { run, because, choice: Choice::Forced, wide_weight_grads: false }
    }
}

/// A policy prepared for many decisions.
pub(super) struct Prepared<'a> {
    policy: &'a Policy,
    /// Those that say nothing of the precision are `None`.
    rules: Vec<Option<Arc<RuleRef>>>,
    /// What ops do where the level treats some of them by lists.
    ops: Option<Arc<OpRules>>,
    /// Whose names kinds of cells have, and those of its kinds that lists may have by other names.
    kinds: Option<(System, Vec<Named>)>,
}

impl Surroundings {
    /// Nothing surrounds the root.
    pub fn of_root() -> Self {
        Surroundings { run: Region::AsIs, decided_by: None, choice: Choice::Forced, wide_weight_grads: false }
    }

    /// The surroundings of the children of a cell that stands here.
    pub fn inside(&self, verdict: &Verdict, path: &str) -> Self {
        let decided_by = match &verdict.because {
            Reason::Level(_) => None,
            Reason::Inside(owner) => Some(owner.clone()),
            _ => Some(path.into()),
        };
        let Verdict { run, choice, wide_weight_grads, .. } = *verdict;
        Surroundings { run, decided_by, choice, wide_weight_grads }
    }
}

impl<'a> Prepared<'a> {
    pub fn new(policy: &'a Policy, system: Option<System>) -> Result<Self> {
        policy.check()?;
        if policy.level == Level::Graph {
            let words =
                "level graph wraps no cells: `graph::rewrite(&mut net, &inputs, &policy)` rewrites the graph of a call";
            return Err(Error::level(words));
        }
        Ok(Prepared {
            policy,
            rules: policy.rules.iter().map(|rule| RuleRef::of(rule).map(Arc::new)).collect(),
            ops: policy.op_rules().map(Arc::new),
            kinds: system.map(|system| (system, kinds::of(system))),
        })
    }

    /// What ops do where the level treats some of them by lists.
    pub fn ops(&self) -> Option<&OpRules> {
        self.ops.as_deref()
    }

    /// The region that the level makes of a network.
    fn of_level(&self) -> Region {
        match self.policy.level {
            Level::O1 | Level::Auto if self.ops.is_some() => Region::Lists(self.policy.dtype),
            Level::O0 | Level::O1 | Level::Auto | Level::Graph => Region::AsIs,
            Level::O2 | Level::O3 => self.low(),
        }
    }

    /// The region of what runs low.
    fn low(&self) -> Region {
        match self.policy.level {
            Level::O2 if self.ops.is_some() => Region::Except(self.policy.dtype),
            _ => Region::Fixed(self.policy.dtype),
        }
    }

    /// What goes into the slot: something only where the precision changes.
    ///
    /// Outputs leave in the dtype of what surrounds the cell, unless a rule says that they stay f32. A root that only `to_float` lowers is surrounded by nothing
    /// and returns what it computed; levels O2 and O3 promise f32.
    pub fn adapter(&self, facts: &Facts<'_>, around: &Surroundings, verdict: &Verdict) -> Option<Adapter> {
        if self.policy.level == Level::O0 || verdict.run == around.run {
            return None;
        }
        let Some(inward) = verdict.run.dtype() else {
            return self.ops.clone().filter(|_| verdict.run != Region::AsIs).map(Adapter::Ops);
        };
        let promises_f32 = matches!(self.policy.level, Level::O2 | Level::O3);
        let bare_root = facts.is_root && !promises_f32 && matches!(verdict.because, Reason::ToFloat(_));
        let usual = if bare_root { inward } else { DType::F32 };
        let stays = matches!(&verdict.because, Reason::Rule(rule) if rule.run == Run::FullOut);
        let outward = if stays { DType::F32 } else { around.run.dtype().unwrap_or(usual) };
        let cast = Cast { inward, outward };
        Some(match (verdict.run, &self.ops) {
            (Region::Except(_), Some(ops)) => Adapter::CastOps(cast, ops.clone()),
            _ => Adapter::Cast(cast),
        })
    }

    /// The rule by which a cell that the rules of these numbers match is recomputed: the one with its exact path decides, or
    /// the first other one.
    pub fn recompute(&self, matching: &[usize]) -> Option<Recompute> {
        let says = |exact: bool| {
            let mut rules = matching.iter().map(|&i| &self.policy.rules[i]);
            rules.find(|rule| rule.select.is_exact_path() == exact && rule.checkpoint.is_some())
        };
        says(true).or_else(|| says(false)).filter(|rule| rule.checkpoint == Some(true)).map(Recompute::from)
    }

    /// What applies to a cell that the rules of these numbers match, strongest first: the numbered list at [`Policy`].
    fn claims(&self, facts: &Facts<'_>, matching: &[usize], around: &Surroundings) -> Vec<Claim> {
        let policy = self.policy;
        let mut claims = Vec::new();
        if let Some(dtype) = facts.to_float {
            claims.push(Claim::forced(Region::Fixed(dtype), Reason::ToFloat(dtype)));
        }
        let matching = || matching.iter().filter_map(|&i| Some((&policy.rules[i], self.rules[i].as_ref()?)));
        let exact = matching().filter(|(rule, _)| rule.select.is_exact_path());
        let others = matching().filter(|(rule, _)| !rule.select.is_exact_path());
        let rules = exact.chain(others);
        let inside = around.decided_by.as_ref().map(|owner| {
            let because = Reason::Inside(owner.clone());
            let wide_weight_grads = around.wide_weight_grads;
            Claim { run: around.run, because, choice: around.choice, wide_weight_grads }
        });
        if policy.level == Level::O0 {
            // O0 lowers nothing, whatever the rules say; they are reported as overridden.
            claims.push(inside.unwrap_or_else(|| Claim::forced(Region::AsIs, Reason::Level(Level::O0))));
            claims.extend(rules.map(|(_, rule)| Claim::forced(Region::AsIs, Reason::Rule(rule.clone()))));
            return claims;
        }
        claims.extend(rules.map(|(_, reason)| {
            let (run, choice) = match reason.run {
                Run::Full | Run::FullOut => (Region::Fixed(DType::F32), Choice::Forced),
                Run::Low | Run::LowForward => (self.low(), Choice::Forced),
                Run::Inherit => (around.run, Choice::Inherits),
            };
            let wide_weight_grads = match reason.run {
                Run::Inherit => around.wide_weight_grads,
                run => run == Run::LowForward,
            };
            Claim { run, because: Reason::Rule(reason.clone()), choice, wide_weight_grads }
        }));
        claims.extend(inside);
        if let Some(entry) = self.listed(facts.kind) {
            // A policy that was checked lists cells as low or full only.
            let (run, choice) = match entry.treatment {
                Treatment::Low => (self.low(), Choice::Free),
                _ => (Region::Fixed(DType::F32), Choice::Forced),
            };
            claims.push(Claim { run, because: Reason::Listed(entry.clone()), choice, wide_weight_grads: false });
        }
        claims
    }

    /// The entry of a kind in the lists, by its own name, by that with its system, or by what it is called here.
    fn listed(&self, kind: &str) -> Option<&Entry> {
        let entry = |name: &str| self.policy.lists.cell(name, self.policy.dtype);
        entry(kind).or_else(|| {
            let (system, kinds) = self.kinds.as_ref()?;
            let here = || kinds.iter().find(|(there, _)| *there == kind).into_iter().flat_map(|(_, here)| here);
            entry(&format!("{system}::{kind}")).or_else(|| here().find_map(|name| entry(name)))
        })
    }

    /// What the level does with a cell to which nothing else applies.
    fn default(&self, facts: &Facts<'_>, around: &Surroundings) -> Claim {
        let level = self.policy.level;
        let run = if facts.is_root { self.of_level() } else { around.run };
        let choice = match run {
            // At auto dtypes flow from op to op, so that neighbours matter: the network is weighed as a whole, at its root.
            Region::Lists(_) if level == Level::Auto && !facts.is_root => Choice::Inherits,
            run if run.lowers() => Choice::Free,
            _ => Choice::Forced,
        };
        Claim { run, because: Reason::Level(level), choice, wide_weight_grads: false }
    }
}

/// Decides for one cell, which the rules of these numbers match.
pub(super) fn decide(prepared: &Prepared<'_>, facts: &Facts<'_>, matching: &[usize], around: &Surroundings) -> Verdict {
    let mut claims = prepared.claims(facts, matching, around).into_iter();
    let Claim { run, because, choice, wide_weight_grads } =
        claims.next().unwrap_or_else(|| prepared.default(facts, around));
    Verdict { run, because, choice, wide_weight_grads, overridden: claims.map(|claim| claim.because).collect() }
}
