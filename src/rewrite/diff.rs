//! What changes from one plan to another.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use super::{Decision, Plan, display::cells};
use crate::printable::printable;

/// The cells for which two plans decide differently.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diff {
    /// Name of the first plan's policy.
    pub before: String,
    /// Name of the second plan's policy.
    pub after: String,
    /// The differences, in the order of the second plan; cells that only the first has come last.
    pub changes: Vec<Change>,
    /// How many cells both have.
    pub compared: usize,
}

/// One cell that is decided differently.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Path of the cell.
    pub path: String,
    /// What the first plan says; `None` when it has no such cell.
    pub before: Option<Decision>,
    /// What the second plan says; `None` when it has no such cell.
    pub after: Option<Decision>,
}

impl Plan {
    /// Compares what two plans do to cells of the same path. Different reasons for the same precision are no change.
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

impl Diff {
    /// Whether the two plans do the same.
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
        for change in &self.changes {
            let path = super::display::shown(&change.path);
            writeln!(f, "{path}")?;
            for (sign, decision) in [("-", &change.before), ("+", &change.after)] {
                match decision {
                    Some(d) => writeln!(f, "  {sign} {} {}: {}", printable(&d.kind), d.effect(), d.because)?,
                    None => writeln!(f, "  {sign} no such cell")?,
                }
            }
        }
        let (changes, compared) = (self.changes.len(), self.compared.max(self.changes.len()));
        write!(f, "{changes} of {} {}", cells(compared), if changes == 1 { "differs" } else { "differ" })
    }
}
