//! Policies that keep a set of cells in f32, or from quantized operands.

use std::collections::BTreeMap;

use precast::{
    DType, Policy,
    cell::{AsCell, Child, Outline},
    error::{Error, Result},
    plan::{Decision, Plan, Reason, Region},
    policy::{Operands, Rule, RunAs, Select},
    precision::Frame,
};

use super::dry::{Lowering, Rounding};

/// The plan of a policy for a network, with what is needed to change it.
pub(crate) struct Base<'a> {
    pub policy: &'a Policy,
    pub plan: Plan,
    pub outline: Outline,
    /// The parent of each cell.
    pub above: Vec<Option<usize>>,
    /// `true` when the plan quantizes operands: what a search keeps is kept from that.
    pub quantizes: bool,
    /// The operands of the cells that a search keeps.
    pub before: Operands,
    leaf: Vec<bool>,
}

impl<'a> Base<'a> {
    pub fn new<C: ?Sized + AsCell>(policy: &'a Policy, net: &Child<C>) -> Result<Self> {
        let (plan, outline) = (policy.plan(net)?, net.outline());
        let quantizes = plan.decisions.iter().any(|decision| decision.quantized().is_some());
        check_scales(&plan)?;
        let (mut above, mut open) = (Vec::new(), Vec::<usize>::new());
        let mut leaf = vec![true; plan.decisions.len()];
        for (i, cell) in outline.cells().iter().enumerate() {
            open.truncate(cell.depth);
            open.last().into_iter().for_each(|&parent| leaf[parent] = false);
            above.push(open.last().copied());
            open.push(i);
        }
        Ok(Base { policy, plan, outline, above, quantizes, before: Operands::NONE, leaf })
    }

    /// Returns what a plan of the network does in each cell and a search takes away, with rules: the quantization of operands
    /// by `recipe`, or by all without one, if the policy given quantizes any, and else the rounding.
    pub fn sought(&self, plan: &Plan, recipe: Option<Operands>) -> Vec<Lowering> {
        let mut all = self.lowerings(plan);
        if self.quantizes {
            for lowering in &mut all {
                lowering.rounding = Rounding::None;
                lowering.operands = lowering.operands.filter(|of| recipe.is_none_or(|recipe| recipe == *of));
            }
        }
        all
    }

    /// Returns what a plan of the network does in each cell and a rule can take away.
    pub fn lowerings(&self, plan: &Plan) -> Vec<Lowering> {
        let mut frames = Vec::<Frame>::new();
        for (decision, above) in plan.decisions.iter().zip(&self.above) {
            let around = above.map_or(Frame::Off, |above| frames[above].clone());
            frames.push(decision.adapter.as_ref().map_or(around, |adapter| adapter.frame()));
        }
        let rounding = |i: usize| {
            let decision = &plan.decisions[i];
            match decision.run {
                _ if matches!(decision.because, Reason::ToFloat(_)) => Rounding::None,
                // Rules cannot restore the lists in a cell inside one that is kept.
                Region::Lists(_) if !self.leaf[i] => Rounding::None,
                run if run.lowers() => Rounding::Ops(frames[i].clone()),
                _ => border(decision).map_or(Rounding::None, Rounding::Border),
            }
        };
        let lowering = |i: usize| Lowering { rounding: rounding(i), operands: plan.decisions[i].quantized() };
        (0..frames.len()).map(lowering).collect()
    }

    /// Returns whether the root rounds the inputs of the network, so that even cells in f32 get rounded ones.
    pub fn rounds_input(&self) -> bool {
        let cast = self.plan.decisions.first().and_then(|root| root.adapter.as_ref()?.cast());
        cast.is_some_and(|cast| cast.inward.is_low())
    }

    /// Returns the cells that are kept along with these: those that have nothing of their own to lower, and contain
    /// only cells that are kept.
    fn covered(&self, keep: &[bool], rounds: &[bool]) -> Vec<bool> {
        let mut all = keep.to_vec();
        let mut inside = vec![0; keep.len()];
        let mut lowered: Vec<bool> = (0..keep.len()).map(|i| rounds[i] && !keep[i]).collect();
        for i in (1..keep.len()).rev() {
            all[i] |= !lowered[i] && inside[i] > 1;
            if let Some(above) = self.above[i] {
                lowered[above] |= lowered[i];
                inside[above] += if keep[i] { 1 } else { inside[i] };
            }
        }
        all
    }

    /// Returns a policy that takes away from these cells what is sought, and treats all others as this one: it keeps them in
    /// f32, or their operands as they are. As [`keeping`](Base::keeping).
    pub fn without(
        &self,
        keep: &[bool],
        rounds: &[bool],
        because: &dyn Fn(usize) -> Option<String>,
    ) -> Result<(Policy, Plan)> {
        if self.quantizes { self.unquantizing(keep, because) } else { self.keeping(keep, rounds, because) }
    }

    /// Returns a policy that keeps these cells in f32 with outputs in f32, and treats all others as this one. `rounds`
    /// are the cells that have something to keep; `because` gives the reason for a cell that is kept.
    ///
    /// # Errors
    /// [`ErrorKind::Plan`](precast::ErrorKind::Plan) when no rules express this.
    pub fn keeping(
        &self,
        keep: &[bool],
        rounds: &[bool],
        because: &dyn Fn(usize) -> Option<String>,
    ) -> Result<(Policy, Plan)> {
        let (named, keep) = (keep, self.covered(keep, rounds));
        let mut policy = self.policy.clone();
        let mut runs = Vec::<Region>::new();
        let mut ours = Vec::<bool>::new();
        let (mut rules, mut of_all) = (Vec::new(), None);
        for (i, decision) in self.plan.decisions.iter().enumerate() {
            let above = self.above[i];
            let own = matches!(decision.because, Reason::Rule(_) | Reason::ToFloat(_));
            let inherits = above.is_some_and(|above| ours[above]) && !own;
            let full = Region::Fixed(DType::F32);
            let given = match above {
                // A rule for all cells decides for each that has none of its own.
                Some(_) if of_all.is_some() && !own => full,
                Some(above) if inherits => runs[above],
                _ => decision.run,
            };
            let wanted = match keep[i] {
                true => full,
                false if decision.run.lowers() => decision.run,
                false => given,
            };
            // A cell in f32 inside a low one rounds its outputs.
            let rounds = keep[i] && border(decision).is_some() && above.is_some_and(|above| runs[above].lowers());
            // A rule for all cells says nothing of this one.
            let unnamed = of_all.is_some() && named[i];
            let rule = given != wanted || rounds || unnamed;
            if rule {
                let run = if keep[i] { self.policy.keeps() } else { RunAs::Low };
                let pattern = if decision.path.is_empty() { "**" } else { &decision.path };
                let mut rule = Rule::path(pattern, run)?;
                rule.because = if keep[i] { because(i) } else { None };
                match decision.path.is_empty() {
                    true => of_all = Some(rule),
                    false => rules.push(rule),
                }
            }
            runs.push(wanted);
            ours.push(rule || inherits);
        }
        for rule in rules.iter_mut().chain(&mut of_all) {
            // A path has one rule.
            let same = |other: &Rule| matches!(&other.select, Select::Path(_)) && other.select == rule.select;
            if let Some(at) = policy.rules.iter().position(same) {
                let before = policy.rules.remove(at);
                (rule.checkpoint, rule.kept) = (before.checkpoint, before.kept);
            }
        }
        policy.rules.splice(0..0, rules);
        policy.rules.extend(of_all);
        let plan = policy.plan_outline(self.outline.clone())?;
        match plan.decisions.iter().zip(&runs).find(|(decision, run)| decision.run != **run) {
            None => Ok((policy, plan)),
            Some((decision, _)) => {
                let path = precast_base::path::named(&decision.path);
                Err(Error::plan(format!("rules cannot keep some cells in float32 and lower the others: see {path}")))
            }
        }
    }

    /// Returns a policy that leaves the operands of these cells as they were before the search, and treats all others as this one.
    fn unquantizing(&self, keep: &[bool], because: &dyn Fn(usize) -> Option<String>) -> Result<(Policy, Plan)> {
        let before = Some(self.before).filter(|before| before.recipe().is_some());
        let wanted = |i: usize| if keep[i] { before } else { self.plan.decisions[i].quantized() };
        let mut ours = BTreeMap::new();
        let deepest = self.outline.cells().iter().map(|cell| cell.depth).max().unwrap_or(0);
        // A rule for a cell holds for what is inside it as well, which then needs a rule of its own.
        for _ in 0..deepest + 2 {
            let policy = self.with_operands(&ours)?;
            let plan = policy.plan_outline(self.outline.clone())?;
            let differs = |i: &usize| plan.decisions[*i].quantized() != wanted(*i);
            let differing: Vec<usize> = (0..keep.len()).filter(differs).collect();
            if differing.is_empty() {
                return Ok((policy, plan));
            }
            ours.extend(differing.into_iter().map(|i| {
                let because = because(i).filter(|_| keep[i]);
                (i, (wanted(i).unwrap_or(Operands::NONE), because))
            }));
        }
        Err(Error::plan("rules cannot quantize the operands of some cells and not those of others"))
    }

    /// Returns the policy with these operands, and reasons, of cells in front of its rules: that of the root, which is for all
    /// cells, behind the others. What decides for no cell any more is left out of the rules, where it is an error.
    pub fn with_operands(&self, ours: &BTreeMap<usize, (Operands, Option<String>)>) -> Result<Policy> {
        let mut rules = Vec::new();
        for (&i, (operands, because)) in ours {
            let path = &self.plan.decisions[i].path;
            let mut rule = Rule::operands(if path.is_empty() { "**" } else { path }, *operands)?;
            rule.because.clone_from(because);
            rules.push(rule);
        }
        rules.rotate_left(usize::from(ours.contains_key(&0)));
        let others = self.plan.decisions.iter().enumerate().filter(|(i, _)| !ours.contains_key(i));
        let others: Vec<_> = others.filter_map(|(_, decision)| decision.operands.as_ref()).collect();
        let mut policy = self.policy.clone();
        for rule in policy.rules.iter_mut().filter(|rule| rule.operands.is_some()) {
            let select = rule.select.to_string();
            let decides = others.iter().any(|by| by.origin == rule.origin && by.select == select);
            let replaced = ours.contains_key(&0) || rules.iter().any(|ours| ours.select == rule.select);
            if replaced || !decides {
                (rule.operands, rule.min_k, rule.min_n) = (None, 0, 0);
            }
        }
        policy.rules.retain(|rule| {
            let of_cells = rule.run.is_some() || rule.checkpoint.is_some() || rule.raise_after_stall;
            of_cells || rule.operands.is_some() || rule.kept.is_some()
        });
        policy.rules.splice(0..0, rules);
        Ok(policy)
    }
}

/// Refuses delayed scales: those of a network that is measured would depend on the passes before.
fn check_scales(plan: &Plan) -> Result<()> {
    let is_delayed =
        |decision: &&Decision| decision.quantized().and_then(Operands::recipe).is_some_and(|of| of.is_delayed());
    match plan.decisions.iter().find(is_delayed) {
        None => Ok(()),
        Some(Decision { path, .. }) => Err(Error::unsupported(format!(
            "the operands of {} have delayed scales, which depend on the steps before, so that one pass says nothing of them; \
             `operands: tensorwise` has the same formats",
            precast_base::path::named(path)
        ))),
    }
}

/// Returns the low dtype to which a cell in f32 rounds its outputs.
fn border(decision: &Decision) -> Option<DType> {
    let cast = decision.adapter.as_ref()?.cast()?;
    Some(cast.outward).filter(|outward| outward.is_low() && cast.inward == DType::F32)
}
