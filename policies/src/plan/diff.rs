//! Differences between two plans.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use super::{Decision, Plan, display::cells};
use crate::{path::shown, printable::printable};

/// The cells for which two plans decide differently.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Diff {
    /// Name of the first plan's policy.
    pub before: String,
    /// Name of the second plan's policy.
    pub after: String,
    /// The differences, in the order of the second plan, followed by the cells that only the first one has.
    pub changes: Vec<Change>,
    /// Number of cells in both plans.
    pub compared: usize,
}

/// One cell with different decisions.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Change {
    /// Path of the cell.
    pub path: String,
    /// The first plan's decision; `None` when it has no such cell.
    pub before: Option<Decision>,
    /// The second plan's decision; `None` when it has no such cell.
    pub after: Option<Decision>,
}

impl Plan {
    /// Compares the decisions of two plans for cells of the same path. Different reasons for the same precision do not
    /// count.
    pub fn diff(&self, other: &Plan) -> Diff {
        let mut before: BTreeMap<&str, &Decision> = self.decisions.iter().map(|d| (d.path.as_str(), d)).collect();
        let mut changes = Vec::new();
        let mut compared = 0;
        for after in &other.decisions {
            let before = before.remove(after.path.as_str());
            compared += usize::from(before.is_some());
            let what =
                |d: &Decision| (d.run, d.adapter.clone(), d.recompute.is_some(), d.wide_weight_grads, d.kind.clone());
            let same = |b: &Decision| what(b) == what(after);
            if !before.is_some_and(same) {
                let path = after.path.clone();
                changes.push(Change { path, before: before.cloned(), after: Some(after.clone()) });
            }
        }
        let gone = self.decisions.iter().filter(|d| before.contains_key(d.path.as_str()));
        changes.extend(gone.map(|d| Change { path: d.path.clone(), before: Some(d.clone()), after: None }));
        Diff { before: self.policy.to_string(), after: other.policy.to_string(), changes, compared }
    }
}

/// Cells with the same change.
struct Group<'a> {
    /// Effects and reasons before and after; `None` where there is no such cell.
    words: [Option<String>; 2],
    cells: Vec<&'a Change>,
}

/// Maximum number of cells of a group that are named.
const SHOWN: usize = 8;

/// Formats the first cells of a group, by path and kind.
fn some_of(changes: &[&Change]) -> String {
    let name = |change: &&Change| {
        let kind = change.after.as_ref().or(change.before.as_ref()).map_or("", |decision| &decision.kind);
        format!("{} ({})", shown(&change.path), printable(kind))
    };
    let some: Vec<String> = changes.iter().take(SHOWN).map(name).collect();
    match changes.len().saturating_sub(SHOWN) {
        0 => some.join(", "),
        more => format!("{}, and {more} more", some.join(", ")),
    }
}

impl Diff {
    /// Returns the changes, grouped by effect and reason, in order of first occurrence.
    fn groups(&self) -> Vec<Group<'_>> {
        let mut groups: Vec<Group<'_>> = Vec::new();
        for change in &self.changes {
            let both = change.before.as_ref().zip(change.after.as_ref());
            let one_kind = both.is_none_or(|(before, after)| before.kind == after.kind);
            let words = [&change.before, &change.after].map(|decision| {
                let decision = decision.as_ref()?;
                let kind = if one_kind { String::new() } else { format!("{} ", printable(&decision.kind)) };
                Some(format!("{kind}{}: {}", decision.effect(), decision.because))
            });
            match groups.iter_mut().find(|group| group.words == words) {
                Some(group) => group.cells.push(change),
                None => groups.push(Group { words, cells: vec![change] }),
            }
        }
        groups
    }

    /// Returns whether the two plans have the same effect.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "from  {}\nto    {}", self.before, self.after)?;
        if self.is_empty() {
            return write!(f, "no difference in {}", cells(self.compared));
        }
        for group in self.groups() {
            match group.cells.len() {
                1 => writeln!(f, "{}", some_of(&group.cells))?,
                several => writeln!(f, "{}: {}", cells(several), some_of(&group.cells))?,
            }
            for (sign, words) in [("-", &group.words[0]), ("+", &group.words[1])] {
                writeln!(f, "  {sign} {}", words.as_deref().unwrap_or("no such cell"))?;
            }
        }
        let (changes, compared) = (self.changes.len(), self.compared.max(self.changes.len()));
        write!(f, "{changes} of {} {}", cells(compared), if changes == 1 { "differs" } else { "differ" })
    }
}
