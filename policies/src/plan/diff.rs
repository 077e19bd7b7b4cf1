//! Differences between two plans, or two graphs.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
};

use precast_base::{path::shown, printable::printable};
use serde::Serialize;

use super::{Decision, Plan};

/// Decision that a [`Diff`] compares with another one: about a cell, or about a node of a graph.
pub trait Decided: Clone {
    /// Noun for one place that is decided about, and for several.
    const NOUNS: [&'static str; 2];

    /// Returns the path of the cell, or the name of the node.
    fn path(&self) -> &str;

    /// Returns the kind of the cell, or the op of the node.
    fn kind(&self) -> &str;

    /// Returns the effect in a few words: `runs f16`.
    fn effect(&self) -> String;

    /// Returns the reasons in words, if any are known.
    fn why(&self) -> Option<String>;

    /// Returns whether another decision about the same place has the same effect.
    fn is_like(&self, other: &Self) -> bool;

    /// Returns whether the place is compared at all.
    fn is_compared(&self) -> bool {
        true
    }
}

impl Decided for Decision {
    const NOUNS: [&'static str; 2] = ["cell", "cells"];

    fn path(&self) -> &str {
        &self.path
    }

    fn kind(&self) -> &str {
        &self.kind
    }

    fn effect(&self) -> String {
        Decision::effect(self)
    }

    fn why(&self) -> Option<String> {
        Some(self.reasons(&mut HashSet::new()))
    }

    fn is_like(&self, other: &Self) -> bool {
        let what = |d: &Decision| {
            (d.run, d.adapter.clone(), d.recompute.is_some(), d.wide_weight_grads, d.kind.clone(), d.quantized())
        };
        let later = |d: &Decision| -> Vec<(usize, String)> {
            d.later.iter().map(|later| (later.after, later.effect.clone())).collect()
        };
        what(self) == what(other)
            && self.kept() == other.kept()
            && self.raise_after_stall == other.raise_after_stall
            && later(self) == later(other)
    }
}

/// The cells or nodes about which two plans or graphs decide differently.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Diff<D = Decision> {
    /// Name of the first plan's policy.
    pub before: String,
    /// Name of the second plan's policy.
    pub after: String,
    /// The differences, in the order of the second plan, followed by the places that only the first one has.
    pub changes: Vec<Change<D>>,
    /// Number of cells or nodes in both.
    pub compared: usize,
}

/// One cell or node with different decisions.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Change<D = Decision> {
    /// Path of the cell, or name of the node.
    pub path: String,
    /// The first decision; `None` when there is no such place.
    pub before: Option<D>,
    /// The second decision; `None` when there is no such place.
    pub after: Option<D>,
}

impl Plan {
    /// Compares the decisions of two plans for cells of the same path. Different reasons for the same precision do not
    /// count.
    pub fn diff(&self, other: &Plan) -> Diff {
        let (before, after) = (self.policy.to_string(), other.policy.to_string());
        Diff::between((&before, &self.decisions), (&after, &other.decisions))
    }
}

impl<D: Decided> Diff<D> {
    /// Compares decisions about cells of the same path, or about nodes of the same name, each with the name of its
    /// policy. Different reasons for the same precision do not count.
    pub fn between((before, these): (&str, &[D]), (after, those): (&str, &[D])) -> Self {
        let (these, those) = [these, those].map(|all| all.iter().filter(|d| d.is_compared())).into();
        let mut only: BTreeMap<&str, &D> = these.clone().map(|d| (d.path(), d)).collect();
        let (mut changes, mut compared) = (Vec::new(), 0);
        for after in those {
            let before = only.remove(after.path());
            compared += usize::from(before.is_some());
            if !before.is_some_and(|before| before.is_like(after)) {
                let path = after.path().to_string();
                changes.push(Change { path, before: before.cloned(), after: Some(after.clone()) });
            }
        }
        let gone = these.filter(|d| only.contains_key(d.path()));
        changes.extend(gone.map(|d| Change { path: d.path().into(), before: Some(d.clone()), after: None }));
        Diff { before: before.into(), after: after.into(), changes, compared }
    }
}

/// Places with the same change.
struct Group<'a, D> {
    /// Effects and reasons before and after; `None` where there is no such place.
    words: [Option<String>; 2],
    changes: Vec<&'a Change<D>>,
}

/// Maximum number of places of a group that are named.
const SHOWN: usize = 8;

/// Formats the first places of a group, by path and kind.
fn some_of<D: Decided>(changes: &[&Change<D>]) -> String {
    let name = |change: &&Change<D>| {
        let kind = change.after.as_ref().or(change.before.as_ref()).map_or("", Decided::kind);
        format!("{} ({})", shown(&change.path), printable(kind))
    };
    let some: Vec<String> = changes.iter().take(SHOWN).map(name).collect();
    match changes.len().saturating_sub(SHOWN) {
        0 => some.join(", "),
        more => format!("{}, and {more} more", some.join(", ")),
    }
}

/// Formats a number of places: `1 cell`, `2 cells`.
fn counted<D: Decided>(count: usize) -> String {
    format!("{count} {}", D::NOUNS[usize::from(count != 1)])
}

impl<D: Decided> Diff<D> {
    /// Returns the changes, grouped by effect and reason, in order of first occurrence.
    fn groups(&self) -> Vec<Group<'_, D>> {
        let mut groups: Vec<Group<'_, D>> = Vec::new();
        for change in &self.changes {
            let both = change.before.as_ref().zip(change.after.as_ref());
            let one_kind = both.is_none_or(|(before, after)| before.kind() == after.kind());
            let words = [&change.before, &change.after].map(|decision| {
                let decision = decision.as_ref()?;
                let kind = if one_kind { String::new() } else { format!("{} ", printable(decision.kind())) };
                let because = decision.why().map_or(String::new(), |because| format!(": {because}"));
                Some(format!("{kind}{}{because}", decision.effect()))
            });
            match groups.iter_mut().find(|group| group.words == words) {
                Some(group) => group.changes.push(change),
                None => groups.push(Group { words, changes: vec![change] }),
            }
        }
        groups
    }

    /// Returns whether the two have the same effect.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

impl<D: Decided> fmt::Display for Diff<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "from  {}\nto    {}", self.before, self.after)?;
        if self.is_empty() {
            return write!(f, "no difference in {}", counted::<D>(self.compared));
        }
        for group in self.groups() {
            match group.changes.len() {
                1 => writeln!(f, "{}", some_of(&group.changes))?,
                several => writeln!(f, "{}: {}", counted::<D>(several), some_of(&group.changes))?,
            }
            for (sign, words) in [("-", &group.words[0]), ("+", &group.words[1])] {
                match words {
                    Some(words) => writeln!(f, "  {sign} {words}")?,
                    None => writeln!(f, "  {sign} no such {}", D::NOUNS[0])?,
                }
            }
        }
        let (changes, compared) = (self.changes.len(), self.compared.max(self.changes.len()));
        write!(f, "{changes} of {} {}", counted::<D>(compared), if changes == 1 { "differs" } else { "differ" })
    }
}
