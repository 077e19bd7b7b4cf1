//! `prefer: speed`, settled: what was decided for a machine, as rules that hold on any.

use super::Plan;
use crate::{
    Policy,
    error::{Error, Result},
    host::Timed,
    policy::{Prefer, Rule, Run},
};

impl Policy {
    /// The policy that plans for a network on every machine as this one, which [prefers speed](Prefer::Speed), plans for it on
    /// the machine of these speeds: it prefers memory, and has a rule for each cell that is faster in f32. A policy that
    /// prefers memory is returned as it is.
    ///
    /// # Errors
    /// As [`Policy::plan_for`], and [`ErrorKind::Plan`](crate::ErrorKind::Plan) when no rules say what was decided.
    pub fn settled<N: ?Sized + Timed>(&self, net: &N, trace: &N::Trace, speeds: &N::Speeds) -> Result<Policy> {
        if self.prefer == Prefer::Memory {
            return Ok(self.clone());
        }
        let wanted = self.plan_for(net, trace, speeds)?;
        let host = wanted.prediction.as_ref().map_or("", |prediction| &prediction.host);
        let mut settled = Policy { prefer: Prefer::Memory, ..self.clone() };
        // From the root inwards: a rule for a cell speaks for those inside it, too.
        for _ in 0..=wanted.decisions.len() {
            let Some(path) = first_difference(&settled.plan(net)?, &wanted) else { return Ok(settled) };
            let full = wanted.decision(&path)?.run.dtype().is_some_and(|dtype| !dtype.is_low());
            let (run, why) = match full {
                true => (Run::Full, "faster in float32"),
                false => (Run::Low, "faster in the low dtype"),
            };
            // No path names the root alone, so it has a rule for all cells, which exact ones win over.
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

/// The path of the first cell that two plans of a network treat differently.
fn first_difference(plan: &Plan, other: &Plan) -> Option<String> {
    let pairs = plan.decisions.iter().zip(&other.decisions);
    pairs.into_iter().find(|(a, b)| a.run != b.run || a.planned() != b.planned()).map(|(a, _)| a.path.clone())
}
