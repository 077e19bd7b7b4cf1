//! Policies that keep a set of cells in f32.

use precast::{
    DType, Policy,
    cell::{AsCell, Child, Outline},
    error::{Error, Result},
    plan::{Decision, Plan, Reason, Region},
    policy::{Rule, RunAs, Select},
    precision::Frame,
};

use super::dry::Rounding;

/// The plan of a policy for a network, with what is needed to change it.
pub(crate) struct Base<'a> {
    pub policy: &'a Policy,
    pub plan: Plan,
    pub outline: Outline,
    /// The parent of each cell.
    pub above: Vec<Option<usize>>,
    leaf: Vec<bool>,
}

impl<'a> Base<'a> {
    pub fn new<C: ?Sized + AsCell>(policy: &'a Policy, net: &Child<C>) -> Result<Self> {
        let (plan, outline) = (policy.plan(net)?, net.outline());
        check_unquantized(&plan)?;
        let (mut above, mut open) = (Vec::new(), Vec::<usize>::new());
        let mut leaf = vec![true; plan.decisions.len()];
        for (i, cell) in outline.cells().iter().enumerate() {
            open.truncate(cell.depth);
            open.last().into_iter().for_each(|&parent| leaf[parent] = false);
            above.push(open.last().copied());
            open.push(i);
        }
        Ok(Base { policy, plan, outline, above, leaf })
    }

    /// Returns the rounding that the plan does in each cell and that a rule can take away.
    pub fn roundings(&self) -> Vec<Rounding> {
        self.roundings_of(&self.plan)
    }

    /// Returns the rounding that another plan of the network does in each cell.
    pub fn roundings_of(&self, plan: &Plan) -> Vec<Rounding> {
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
        (0..frames.len()).map(rounding).collect()
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
}

/// Refuses quantized operands, whose errors are none of the rounding to 16 bits that is measured.
fn check_unquantized(plan: &Plan) -> Result<()> {
    match plan.decisions.iter().find(|decision| decision.quantized().is_some()) {
        None => Ok(()),
        Some(Decision { path, .. }) => Err(Error::unsupported(format!(
            "the policy quantizes operands of {}, and the errors measured here are those of 16 bits: leave `operands` out, and add it to \
             the policy that is found; `lint` counts the numbers that quantization loses",
            precast_base::path::named(path)
        ))),
    }
}

/// Returns the low dtype to which a cell in f32 rounds its outputs.
fn border(decision: &Decision) -> Option<DType> {
    let cast = decision.adapter.as_ref()?.cast()?;
    Some(cast.outward).filter(|outward| outward.is_low() && cast.inward == DType::F32)
}
