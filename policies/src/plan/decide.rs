//! The decision for one cell: a pure function of the facts about it, its surroundings, and the policy.

use std::sync::Arc;

use precast_base::{DType, Result};

use super::{
    decision::{ByRule, Reason, RuleRef},
    region::Region,
};
use crate::{
    Policy,
    adapter::{Adapter, Cast},
    catalogue::System,
    kinds::{self, Named},
    policy::{Entry, Level, Pack, Rule, RunAs},
    precision::{OpRules, Treatment},
};

/// The facts about a cell.
pub(super) struct Facts<'a> {
    /// Its kind, followed by the further ones.
    pub kinds: &'a [&'a str],
    pub to_float: Option<DType>,
    pub is_root: bool,
}

/// The region around a cell.
#[derive(Clone)]
pub(super) struct Surroundings {
    pub run: Region,
    /// Path of the nearest cell above whose region was decided by more than the level's default.
    pub decided_by: Option<Arc<str>>,
    pub choice: Choice,
    pub wide_weight_grads: bool,
    /// Index of the rule about the operands of products.
    pub operands: Option<usize>,
    /// Index of the rule about the activations that are kept.
    pub kept: Option<usize>,
}

/// Freedom of `prefer: speed` to choose f32 where the policy lowers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// No freedom: the user forced the precision, or nothing is lowered here.
    Forced,
    /// No freedom of its own: the cell follows its surroundings.
    Inherits,
    /// A free choice.
    Free,
}

/// A decision with its reason.
pub(super) struct Verdict {
    pub run: Region,
    pub because: Reason,
    pub choice: Choice,
    /// `true` when gradients of weights are computed in f32.
    pub wide_weight_grads: bool,
    pub overridden: Vec<Reason>,
}

/// One claim on the precision of a cell.
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
    /// The rules as reasons; `None` for a rule that does not set the precision.
    rules: Vec<Option<Arc<RuleRef>>>,
    /// The op lists, where the level uses them.
    ops: Option<Arc<OpRules>>,
    /// The system of the kinds' names, with those of its kinds that lists may give under other names.
    kinds: Option<(System, Vec<Named>)>,
    /// `true` when a cell that a rule keeps in f32 returns the dtype of its surroundings, as in MindSpore.
    full_is_inside: bool,
}

impl Surroundings {
    /// Returns the surroundings of the root, which are none.
    pub fn of_root() -> Self {
        Surroundings {
            run: Region::AsIs,
            decided_by: None,
            choice: Choice::Forced,
            wide_weight_grads: false,
            operands: None,
            kept: None,
        }
    }

    /// Returns the surroundings of the children of a cell in these surroundings.
    pub fn inside(&self, verdict: &Verdict, path: &str) -> Self {
        let decided_by = match &verdict.because {
            Reason::Level(_) => None,
            Reason::Inside(owner) => Some(owner.clone()),
            _ => Some(path.into()),
        };
        let Verdict { run, choice, wide_weight_grads, .. } = *verdict;
        Surroundings { run, decided_by, choice, wide_weight_grads, operands: self.operands, kept: self.kept }
    }
}

impl<'a> Prepared<'a> {
    pub fn new(policy: &'a Policy, system: Option<System>) -> Result<Self> {
        policy.check()?;
        let pack = policy.pack.as_deref().map(Pack::shared).transpose()?;
        Ok(Prepared {
            policy,
            rules: policy.rules.iter().map(|rule| RuleRef::of(rule).map(Arc::new)).collect(),
            ops: policy.op_rules().map(Arc::new),
            kinds: system.map(|system| (system, kinds::of(system))),
            full_is_inside: pack.is_some_and(|pack| pack.system == Some(System::MindSpore)),
        })
    }

    /// Returns the op lists, where the level uses them.
    pub fn ops(&self) -> Option<&OpRules> {
        self.ops.as_deref()
    }

    /// Returns the region that the level gives to a network.
    fn of_level(&self) -> Region {
        match self.policy.level {
            Level::O1 | Level::Auto if self.ops.is_some() => Region::Lists(self.policy.dtype),
            Level::O0 | Level::O1 | Level::Auto => Region::AsIs,
            Level::O2 | Level::O3 => self.low(),
        }
    }

    /// Returns the region of low-precision cells.
    fn low(&self) -> Region {
        match self.policy.level {
            Level::O2 if self.ops.is_some() => Region::Except(self.policy.dtype),
            _ => Region::Fixed(self.policy.dtype),
        }
    }

    /// Returns the adapter for the slot; `None` where the precision does not change.
    ///
    /// Outputs are cast to the dtype of the cell's surroundings, unless a rule keeps them in f32. A root that only
    /// `to_float` lowers has no surroundings and returns what it computed; levels O2 and O3 promise f32.
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
        let stays = match &verdict.because {
            Reason::Rule(rule) => rule.run == RunAs::FullOut || rule.run == RunAs::Full && !self.full_is_inside,
            _ => false,
        };
        let outward = if stays { DType::F32 } else { around.run.dtype().unwrap_or(usual) };
        let cast = Cast { inward, outward };
        Some(match (verdict.run, &self.ops) {
            (Region::Except(_), Some(ops)) => Adapter::CastOps(cast, ops.clone()),
            _ => Adapter::Cast(cast),
        })
    }

    /// Returns the index of the rule that decides one aspect of a cell, given the indices of the rules that match it: the one
    /// with its exact path, or else the first.
    fn deciding(&self, matching: &[usize], says: impl Fn(&Rule) -> bool) -> Option<usize> {
        let of = |exact: bool| {
            matching.iter().copied().find(|&i| {
                let rule = &self.policy.rules[i];
                rule.select.is_exact_path() == exact && says(rule)
            })
        };
        of(true).or_else(|| of(false))
    }

    /// Returns the rule that recomputes a cell, given the indices of the rules that match it.
    pub fn recompute(&self, matching: &[usize]) -> Option<ByRule<bool>> {
        let rule = &self.policy.rules[self.deciding(matching, |rule| rule.checkpoint.is_some())?];
        (rule.checkpoint == Some(true)).then(|| ByRule::of(rule, true))
    }

    /// Returns the indices of the rules about the operands of a cell's products and about what it keeps: each is one that matches
    /// it, or else that of the cell around it. O0 quantizes nothing.
    pub fn quantizing(&self, matching: &[usize], around: &Surroundings) -> [Option<usize>; 2] {
        let operands = self.deciding(matching, |rule| rule.operands.is_some()).or(around.operands);
        let kept = self.deciding(matching, |rule| rule.kept.is_some()).or(around.kept);
        [operands, kept].map(|rule| rule.filter(|_| self.policy.level != Level::O0))
    }

    /// Returns all claims on a cell matched by the rules with these indices, strongest first: the numbered list at
    /// [`Policy`].
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
            // O0 lowers nothing, regardless of the rules; they are reported as overridden.
            claims.push(inside.unwrap_or_else(|| Claim::forced(Region::AsIs, Reason::Level(Level::O0))));
            claims.extend(rules.map(|(_, rule)| Claim::forced(Region::AsIs, Reason::Rule(rule.clone()))));
            return claims;
        }
        claims.extend(rules.map(|(_, reason)| {
            let (run, choice) = match reason.run {
                RunAs::Full | RunAs::FullOut | RunAs::FullInside => (Region::Fixed(DType::F32), Choice::Forced),
                RunAs::Low | RunAs::LowForward => (self.low(), Choice::Forced),
                RunAs::Inherit => (around.run, Choice::Inherits),
            };
            let wide_weight_grads = match reason.run {
                RunAs::Inherit => around.wide_weight_grads,
                run => run == RunAs::LowForward,
            };
            Claim { run, because: Reason::Rule(reason.clone()), choice, wide_weight_grads }
        }));
        claims.extend(inside);
        if let Some(entry) = facts.kinds.iter().find_map(|kind| self.listed(kind)) {
            // A checked policy lists cells as low or full only.
            let (run, choice) = match entry.treatment {
                Treatment::Low => (self.low(), Choice::Free),
                _ => (Region::Fixed(DType::F32), Choice::Forced),
            };
            claims.push(Claim { run, because: Reason::Listed(entry.clone()), choice, wide_weight_grads: false });
        }
        claims
    }

    /// Returns the list entry of a kind: by its own name, by its name with the system, or by its names here.
    fn listed(&self, kind: &str) -> Option<&Entry> {
        let entry = |name: &str| self.policy.lists.cell(name, self.policy.dtype);
        entry(kind).or_else(|| {
            let (system, kinds) = self.kinds.as_ref()?;
            let here = || kinds.iter().find(|(there, _)| *there == kind).into_iter().flat_map(|(_, here)| here);
            entry(&format!("{system}::{kind}")).or_else(|| here().find_map(|name| entry(name)))
        })
    }

    /// Returns the default of the level, for a cell without any other claim.
    fn default(&self, facts: &Facts<'_>, around: &Surroundings) -> Claim {
        let level = self.policy.level;
        let run = if facts.is_root { self.of_level() } else { around.run };
        let choice = match run {
            // At auto, dtypes flow from op to op and neighbors matter: the network is weighed as a whole, at its root.
            Region::Lists(_) if level == Level::Auto && !facts.is_root => Choice::Inherits,
            run if run.lowers() => Choice::Free,
            _ => Choice::Forced,
        };
        Claim { run, because: Reason::Level(level), choice, wide_weight_grads: false }
    }
}

/// Decides for one cell, given the indices of the rules that match it.
pub(super) fn decide(prepared: &Prepared<'_>, facts: &Facts<'_>, matching: &[usize], around: &Surroundings) -> Verdict {
    let mut claims = prepared.claims(facts, matching, around).into_iter();
    let Claim { run, because, choice, wide_weight_grads } =
        claims.next().unwrap_or_else(|| prepared.default(facts, around));
    Verdict { run, because, choice, wide_weight_grads, overridden: claims.map(|claim| claim.because).collect() }
}
