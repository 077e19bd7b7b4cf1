//! The rules that findings propose: the cells to keep in f32, verified by a lint under these rules.

use precast::{
    Policy,
    error::Result,
    policy::{Rule, RunAs},
};
use precast_base::path::named;

use super::{
    Found,
    finding::{Finding, Severity},
};
use crate::{Cure, rules_keeping};

/// Number of times that the rules may grow. Each round keeps the cells that read numbers which still do not fit.
const ROUNDS: usize = 8;

/// Returns rules that keep these cells in f32 with their results, and lower the others. `more` says whether there are
/// others, if the root is among the cells.
fn rules(cells: &[String], run: RunAs, more: bool) -> Result<Vec<Rule>> {
    let (named, root): (Vec<&String>, Vec<&String>) = cells.iter().partition(|cell| !cell.is_empty());
    let in_order = named.into_iter().chain(root.into_iter().take(1));
    Ok(in_order.map(|cell| rules_keeping(cell, run, more)).collect::<Result<Vec<_>>>()?.concat())
}

/// Formats rules as a line of a policy file, without those that a policy has.
fn line(rules: &[Rule], policy: Option<&Policy>) -> String {
    let is_set = |rule: &Rule| {
        let mut set = policy.iter().flat_map(|policy| &policy.rules).filter(|set| set.until.is_none());
        set.any(|set| (&set.select, set.run) == (&rule.select, rule.run))
    };
    let new: Vec<String> = rules.iter().filter(|rule| !is_set(rule)).map(Rule::to_line).collect();
    match new.len() {
        0 => "other code: the policy has the rules that keep these cells in float32".into(),
        _ => format!("rules: [{}]", new.join(", ")),
    }
}

/// Returns the cells that findings want to keep, each once.
fn kept(found: &[Finding]) -> Vec<String> {
    let mut cells: Vec<String> = Vec::new();
    for cell in found.iter().filter(|finding| finding.severity > Severity::Information).flat_map(|of| &of.keep) {
        if !cells.contains(cell) {
            cells.push(cell.clone());
        }
    }
    cells
}

/// Writes the rules that keep the cells of findings in f32 into the first of these findings.
pub(super) fn proposed(mut found: Found, run: RunAs) -> Vec<Finding> {
    let cells = kept(&found.findings);
    let more = found.has_others_low(&cells);
    write(&mut found.findings, || line(&rules(&cells, run, more).unwrap_or_default(), None));
    found.findings
}

impl Found {
    /// Returns whether cells other than these have low results.
    fn has_others_low(&self, cells: &[String]) -> bool {
        self.low.iter().any(|cell| !cells.contains(cell))
    }
}

fn write(found: &mut [Finding], line: impl FnOnce() -> String) {
    if let Some(finding) = found.iter_mut().find(|finding| !finding.keep.is_empty()) {
        finding.write = line();
    }
}

/// Writes rules as [`proposed`] does, verified by a lint under them, and extended to the cells that this lint names,
/// until it names none. `lint` lints the network under a policy.
pub(super) fn verified(policy: &Policy, found: Found, mut lint: impl FnMut(&Policy) -> Result<Found>) -> Vec<Finding> {
    let run = policy.keeps();
    let mut cells = kept(&found.findings);
    let (mut more, mut left) = (found.has_others_low(&cells), None);
    for _ in 0..ROUNDS {
        if cells.is_empty() {
            break;
        }
        let mut under = |more: bool| {
            let cure = Cure { rules: rules(&cells, run, more)?, loss_scale: None };
            // A cure has no name, and neither has an origin that the rules could refer to.
            lint(&cure.apply(policy)?)
        };
        // Where the rules keep every low cell, there are no others to lower, and a rule for them may be refused.
        more &= found.has_others_low(&cells);
        let mut next = under(more);
        if next.is_err() && more {
            (more, next) = (false, under(false));
        }
        let Ok(Found { findings: next, .. }) = next else { break };
        let next_cells: Vec<String> = kept(&next).into_iter().filter(|cell| !cells.contains(cell)).collect();
        left = next.into_iter().find(|finding| finding.severity > Severity::Information && !finding.keep.is_empty());
        if next_cells.is_empty() {
            break;
        }
        cells.extend(next_cells);
    }
    let doubt = left.map_or(String::new(), |left| format!(" (not verified: with these rules, {})", left.what));
    let mut findings = found.findings;
    write(&mut findings, || line(&rules(&cells, run, more).unwrap_or_default(), Some(policy)) + &doubt);
    findings
}

/// Leaves each cure at the first of the findings that share it, with the cells of all.
pub(super) fn once(mut found: Vec<Finding>) -> Vec<Finding> {
    for first in 0..found.len() {
        let mut cells = vec![found[first].cell.clone()];
        let write = found[first].write.clone();
        for finding in found[first + 1..].iter_mut().filter(|finding| !write.is_empty() && finding.write == write) {
            if !cells.contains(&finding.cell) {
                cells.push(finding.cell.clone());
            }
            finding.write.clear();
        }
        if cells.len() > 1 {
            let cells: Vec<_> = cells.iter().map(|cell| named(cell)).collect();
            found[first].write += &format!("; for {}", cells.join(", "));
        }
    }
    found
}
