//! The decision for one cell: a pure function of what is known of it, what surrounds it, and the policy.

use std::{collections::BTreeMap, sync::Arc};

use super::{ListedOp, Reason, Region, RuleRef};
use crate::{
    DType, Op, Policy,
    cell::{Adapter, Cast},
    error::Result,
    policy::{Level, Origin, Run, check_low},
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
}

/// What was decided, and why.
pub(super) struct Verdict {
    pub run: Region,
    pub because: Reason,
    pub beaten: Vec<Reason>,
}

/// The ops that the policy's level treats by a list.
pub(super) fn listed_ops(policy: &Policy) -> BTreeMap<Op, ListedOp> {
    let low = |(op, origin): (&Op, &Origin)| {
        (*op, ListedOp { treatment: Treatment::Low, because: None, origin: origin.clone() })
    };
    match policy.level {
        Level::O1 => policy.white.ops().iter().map(low).collect(),
        Level::Auto => {
            let entry = |op| Some((op, ListedOp::from(policy.auto.entry(op, policy.dtype)?)));
            policy.auto.entries().keys().filter_map(|op| entry(*op)).collect()
        }
        _ => BTreeMap::new(),
    }
}

/// What the level makes of ops, if it makes anything of any.
fn op_rules(policy: &Policy) -> Option<OpRules> {
    match policy.level {
        Level::O1 if !policy.white.ops().is_empty() => {
            let ops = policy.white.ops().keys().map(|op| (*op, Treatment::Low)).collect();
            let name = policy.pack.as_deref().unwrap_or("code");
            Some(OpRules { back: true, ops, ..OpRules::new(name, policy.dtype) })
        }
        Level::Auto if !policy.auto.is_empty() => Some(policy.auto.rules(policy.dtype)),
        _ => None,
    }
}

/// A policy made ready for many decisions.
pub(super) struct Laid<'a> {
    policy: &'a Policy,
    rules: Vec<Arc<RuleRef>>,
    /// What the listed ops do at O1 and at level auto, if any are listed.
    ops: Option<Arc<OpRules>>,
}

impl Surroundings {
    /// Nothing surrounds the root.
    pub fn of_root() -> Self {
        Surroundings { run: Region::AsIs, decided_by: None }
    }

    /// The surroundings of the children of a cell that stands here.
    pub fn inside(&self, verdict: &Verdict, path: &str) -> Self {
        let decided_by = match &verdict.because {
            Reason::Level(_) => None,
            Reason::Inside(owner) => Some(owner.clone()),
            _ => Some(path.into()),
        };
        Surroundings { run: verdict.run, decided_by }
    }
}

impl<'a> Laid<'a> {
    pub fn new(policy: &'a Policy) -> Result<Self> {
        check_low(policy.dtype)?;
        Ok(Laid {
            policy,
            rules: policy.rules.iter().map(|rule| Arc::new(RuleRef::from(rule))).collect(),
            ops: op_rules(policy).map(Arc::new),
        })
    }

    /// The treatment of listed ops.
    pub fn ops(&self) -> Option<&OpRules> {
        self.ops.as_deref()
    }

    /// As [`ops`](Laid::ops), to be kept.
    pub fn into_ops(self) -> Option<Arc<OpRules>> {
        self.ops
    }

    /// What goes into the slot: something only where the precision changes.
    ///
    /// Outputs leave in the dtype of what surrounds the cell. A root that only `to_float` lowers is surrounded by nothing
    /// and returns what it computed; levels O2 and O3 promise f32.
    pub fn adapter(&self, facts: &Facts<'_>, around: &Surroundings, verdict: &Verdict) -> Option<Adapter> {
        if self.policy.level == Level::O0 || verdict.run == around.run {
            return None;
        }
        match verdict.run {
            Region::AsIs => None,
            Region::Ops(_) | Region::Auto(_) => self.ops.clone().map(Adapter::Ops),
            Region::Fixed(inward) => {
                let promises_f32 = matches!(self.policy.level, Level::O2 | Level::O3);
                let bare_root = facts.is_root && !promises_f32 && matches!(verdict.because, Reason::ToFloat(_));
                let outward = match around.run {
                    Region::Fixed(dtype) => dtype,
                    _ if bare_root => inward,
                    _ => DType::F32,
                };
                Some(Adapter::Cast(Cast { inward, outward }))
            }
        }
    }
}

/// Decides for one cell, which the rules of these numbers match. The order of claims is the numbered list at [`Policy`].
pub(super) fn decide(laid: &Laid<'_>, facts: &Facts<'_>, matching: &[usize], around: &Surroundings) -> Verdict {
    let policy = laid.policy;
    let low = Region::Fixed(policy.dtype);
    let full = Region::Fixed(DType::F32);
    let mut claims: Vec<(Region, Reason)> = Vec::new();

    if let Some(dtype) = facts.to_float {
        claims.push((Region::Fixed(dtype), Reason::ToFloat(dtype)));
    }
    let matching = || matching.iter().map(|&i| (&policy.rules[i], &laid.rules[i]));
    let exact = matching().filter(|(rule, _)| rule.select.is_exact_path());
    let others = matching().filter(|(rule, _)| !rule.select.is_exact_path());
    let rules = exact.chain(others);
    if policy.level != Level::O0 {
        for (rule, reason) in rules {
            let run = match rule.run {
                Run::Full => full,
                Run::Low => low,
                Run::Inherit => around.run,
            };
            claims.push((run, Reason::Rule(reason.clone())));
        }
        if let Some(owner) = &around.decided_by {
            claims.push((around.run, Reason::Inside(owner.clone())));
        }
        match policy.level {
            Level::O1 => {
                if let Some(origin) = policy.white.cells().get(facts.kind) {
                    claims.push((low, Reason::White(origin.clone())));
                }
            }
            Level::O2 => {
                if let Some(origin) = policy.black.cells().get(facts.kind) {
                    claims.push((full, Reason::Black(origin.clone())));
                }
            }
            _ => {}
        }
    } else {
        // O0 lowers nothing, whatever the rules say; they are told as beaten.
        match &around.decided_by {
            Some(owner) => claims.push((around.run, Reason::Inside(owner.clone()))),
            None => claims.push((Region::AsIs, Reason::Level(Level::O0))),
        }
        claims.extend(rules.map(|(_, reason)| (Region::AsIs, Reason::Rule(reason.clone()))));
    }

    let mut claims = claims.into_iter();
    match claims.next() {
        Some((run, because)) => Verdict { run, because, beaten: claims.map(|(_, reason)| reason).collect() },
        None => {
            let run = match policy.level {
                _ if !facts.is_root => around.run,
                Level::O1 if laid.ops.is_some() => Region::Ops(policy.dtype),
                Level::Auto if laid.ops.is_some() => Region::Auto(policy.dtype),
                Level::O0 | Level::O1 | Level::Auto => Region::AsIs,
                Level::O2 | Level::O3 => low,
            };
            Verdict { run, because: Reason::Level(policy.level), beaten: Vec::new() }
        }
    }
}
