//! Settling `prefer: speed`: the decisions made for one machine, as rules that apply on any machine.

use precast_base::{Error, Result};

use super::Plan;
use crate::{
    Policy,
    host::Timed,
    policy::{Prefer, Rule, RunAs},
};

impl Policy {
    /// Returns a policy that makes on every machine the plan that this one, which [prefers speed](Prefer::Speed), makes
    /// on a machine with these speeds. It prefers memory and has a rule for each cell that is faster in f32. A policy
    /// that prefers memory is returned unchanged.
    ///
    /// # Errors
    /// As [`Policy::plan_for`], and [`ErrorKind::Plan`](crate::ErrorKind::Plan) when no rules express the decisions.
    pub fn settled<N: ?Sized + Timed>(&self, net: &N, trace: &N::Trace, speeds: &N::Speeds) -> Result<Policy> {
        if self.prefer == Prefer::Memory {
            return Ok(self.clone());
        }
        let wanted = self.plan_for(net, trace, speeds)?;
        let host = wanted.prediction.as_ref().map_or("", |prediction| &prediction.host);
        let mut settled = Policy { prefer: Prefer::Memory, ..self.clone() };
        // From the root inwards: a rule for a cell also applies to those inside it.
        for _ in 0..=wanted.decisions.len() {
            let Some(path) = first_difference(&settled.plan(net)?, &wanted) else { return Ok(settled) };
            let full = wanted.decision(&path)?.run.dtype().is_some_and(|dtype| !dtype.is_low());
            let (run, why) = match full {
                true => (RunAs::FullInside, "faster in float32"),
                false => (RunAs::Low, "faster in the low dtype"),
            };
            // No path selects the root alone, so it has a rule for all cells, which rules for exact paths override.
            let rule =
                |pattern: &str| -> Result<Rule> { Ok(Rule::path(pattern, run)?.because(format!("{why} on {}", host))) };
            match path.is_empty() {
                true => settled.rules.push(rule("**")?),
                false => settled.rules.insert(0, rule(&path)?),
            }
        }
        Err(Error::plan("what `prefer: speed` decides for this network cannot be said by rules"))
    }
}

/// Returns the path of the first cell that two plans of a network treat differently.
fn first_difference(plan: &Plan, other: &Plan) -> Option<String> {
    let pairs = plan.decisions.iter().zip(&other.decisions);
    pairs.into_iter().find(|(a, b)| a.run != b.run || a.planned() != b.planned()).map(|(a, _)| a.path.clone())
}
