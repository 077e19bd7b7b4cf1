//! The rules that findings propose: the cells to keep in f32, verified by a lint under these rules.

use super::finding::{Finding, Severity};
use crate::{
    Policy,
    diagnose::{Cure, rules_keeping},
    error::Result,
    policy::{Rule, RunAs},
};

/// Number of times that the rules may grow. Each round keeps the cells that read numbers which still do not fit.
const ROUNDS: usize = 8;

/// Returns rules that keep these cells in f32 with their results, and lower the others. `more` says whether there are
/// others, if the root is among the cells.
fn rules(cells: &[String], run: RunAs, more: bool) -> Result<Vec<Rule>> {
    let (named, root): (Vec<&String>, Vec<&String>) = cells.iter().partition(|cell| !cell.is_empty());
    let in_order = named.into_iter().chain(root.into_iter().take(1));
    Ok(in_order.map(|cell| rules_keeping(cell, run, more)).collect::<Result<Vec<_>>>()?.concat())
}

/// Formats the rules of [`rules`] as a line of a policy file.
pub(super) fn line(cells: &[String], run: RunAs, more: bool) -> String {
    let rules = rules(cells, run, more).unwrap_or_default();
    let rule = |rule: &Rule| {
        let path = rule.select.to_string();
        let path = path.strip_prefix("path ").unwrap_or(&path);
        format!("{{ path: {path:?}, run: {} }}", rule.run.unwrap_or(run))
    };
    format!("rules: [{}]", rules.iter().map(rule).collect::<Vec<_>>().join(", "))
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

/// Verifies the rules of findings by a lint under them, and extends them to the cells that this lint names, until it
/// names none. `lint` lints the network under a policy.
pub(super) fn verified(
    policy: &Policy,
    mut found: Vec<Finding>,
    mut lint: impl FnMut(&Policy) -> Result<Vec<Finding>>,
) -> Vec<Finding> {
    let run = policy.keeps();
    let first = kept(&found);
    let mut cells = first.clone();
    let mut more = true;
    let mut left = None;
    for _ in 0..ROUNDS {
        if cells.is_empty() {
            return found;
        }
        let mut under = |more: bool| {
            let cure = Cure { rules: rules(&cells, run, more)?, loss_scale: None };
            // A cure has no name, and neither has an origin that the rules could refer to.
            lint(&cure.apply(policy)?)
        };
        // Where the rules keep every cell, there are no others to lower, and a rule for them is refused.
        let found = under(true).map(|found| (true, found)).or_else(|_| under(false).map(|found| (false, found)));
        let Ok((others, next)) = found else { break };
        more = others;
        let next_cells: Vec<String> = kept(&next).into_iter().filter(|cell| !cells.contains(cell)).collect();
        left = next.into_iter().find(|finding| finding.severity > Severity::Information && !finding.keep.is_empty());
        if next_cells.is_empty() {
            break;
        }
        cells.extend(next_cells);
    }
    let doubt = match (&left, cells == first) {
        (None, true) => return found,
        (None, false) => String::new(),
        (Some(left), _) => format!(" (not verified: with these rules, {})", left.what),
    };
    let mut proposals = found.iter_mut().filter(|finding| !finding.keep.is_empty());
    if let Some(finding) = proposals.next() {
        finding.write = line(&cells, run, more) + &doubt;
    }
    proposals.for_each(|finding| finding.write = "the rules of the first finding".into());
    found
}
