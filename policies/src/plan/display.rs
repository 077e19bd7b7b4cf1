//! Plans as text: the tree with reasons, and the explanation of one cell.

use std::{collections::HashSet, fmt, sync::Arc};

use precast_base::{
    Result,
    path::shown,
    printable::{bytes, printable, time},
};
use serde::Serialize;

use super::{
    cost::{Cost, Forecast, Predicted},
    decision::{ByRule, Decision, Later, Quantization, Reason},
    plan::{Plan, Summary},
    region::Region,
    words::cells,
};
use crate::{
    adapter::Adapter,
    policy::{Entry, GraphLevel, GraphList, GraphPolicy, Operands, PolicyFile, Prefer, Scaler},
};

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefers = if self.prefer == Prefer::Speed { ", prefers speed" } else { "" };
        let what = format!("level {}, {}", self.level, self.dtype.long_name());
        f.write_str(&summary(self.name.as_deref(), &what, self.pack.as_deref(), prefers, self.scaler))
    }
}

impl fmt::Display for GraphPolicy {
    /// Formats it in a line, as in `graph: graph, float16, lists of precast-1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = if self.level == GraphLevel::Usual { String::new() } else { format!(" ({})", self.level) };
        let what = format!("graph{level}, {}", self.dtype.long_name());
        f.write_str(&summary(self.name.as_deref(), &what, self.pack.as_deref(), "", self.scaler))
    }
}

impl fmt::Display for PolicyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyFile::Cells(policy) => Summary::from(policy).fmt(f),
            PolicyFile::Graph(policy) => policy.fmt(f),
        }
    }
}

fn summary(name: Option<&str>, what: &str, pack: Option<&str>, prefers: &str, scaler: Scaler) -> String {
    let name = name.map_or(String::new(), |name| format!("{}: ", printable(name)));
    let pack = pack.map_or("your own".into(), printable);
    let required = if scaler == Scaler::Required { ", scaler required" } else { "" };
    format!("{name}{what}, lists of {pack}{prefers}{required}")
}

/// Length above which the reason of a rule or a list is shown only once in a plan.
const LONG: usize = 40;

impl Reason {
    /// Returns the author's reason for the rule or the list.
    fn words(&self) -> Option<&str> {
        match self {
            Reason::Rule(rule) => rule.because.as_deref(),
            Reason::Listed(entry) => entry.because.as_deref(),
            _ => None,
        }
    }
}

/// Returns a reason, whose author's words, if long, are only in the first of those that have it; `said` has all that were
/// formatted before.
fn said_once(whole: String, words: Option<&str>, said: &mut HashSet<String>) -> String {
    let words = words.map(printable).filter(|words| words.chars().count() > LONG);
    match words {
        Some(words) if !said.insert(whole.clone()) => whole.replace(&format!(": {words}"), ", as above"),
        _ => whole,
    }
}

impl<T> ByRule<T> {
    /// Formats the rule, with what it says in brackets, its place, and the author's reason.
    fn said(&self, says: &str) -> String {
        let because = self.because.as_ref().map_or(String::new(), |because| format!(": {}", printable(because)));
        format!("rule {}{says}, {}{because}", self.select, self.origin)
    }
}

impl fmt::Display for ByRule<Quantization> {
    /// Formats the reason for the operands: the size that is too small, the rule, its place, and the author's reason.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Quantization { operands, left_out } = &self.says;
        if let Some(left_out) = left_out {
            write!(f, "not quantized, {left_out}: ")?;
        }
        f.write_str(&self.said(&format!(" (operands: {operands})")))
    }
}

impl Decision {
    /// Formats the reasons of a cell for a list of cells: that of its precision, and those of its operands and of what it keeps. The author's
    /// words, if long, are only in the first of those that have them; `said` has all that were formatted before.
    pub fn reasons(&self, said: &mut HashSet<String>) -> String {
        let because = said_once(self.because.to_string(), self.because.words(), said);
        let kept = self.kept.as_ref().filter(|kept| kept.says.format().is_some());
        let kept = kept.map(|by| (by.said(&format!(" (kept: {})", by.says)), &by.because));
        let others = self.operands.as_ref().map(|of| (of.to_string(), &of.because)).into_iter().chain(kept);
        others.fold(because, |all, (words, because)| format!("{all}; {}", said_once(words, because.as_deref(), said)))
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::ToFloat(dtype) => write!(f, "to_float({dtype})"),
            Reason::Rule(rule) => {
                let until = rule.until.map_or(String::new(), |step| format!(" until step {step}"));
                write!(f, "rule {} (run: {}{until}), {}", rule.select, rule.run, rule.origin)?;
                match &rule.because {
                    Some(because) => write!(f, ": {}", printable(because)),
                    None => Ok(()),
                }
            }
            Reason::Inside(owner) => write!(f, "inside {}", shown(owner)),
            Reason::Listed(Entry { treatment, because, origin, .. }) => {
                write!(f, "{} list, {origin}", treatment.name())?;
                because.as_ref().map_or(Ok(()), |because| write!(f, ": {}", printable(because)))
            }
            Reason::Level(level) => write!(f, "level {level}"),
            Reason::Cost(Cost { region, lowered, full }) => {
                let (lowered, full) = (time(*lowered), time(*full));
                write!(f, "cost: {region} would take {lowered}, f32 {full}")
            }
            Reason::OnList(list @ (GraphList::Allow | GraphList::Deny)) => write!(f, "on the {list} list"),
            Reason::OnList(GraphList::Infer) => {
                f.write_str("on the infer list, and not between two nodes on the allow list")
            }
            Reason::OnList(list) => write!(f, "on the {list} list, and no neighbour makes it low"),
            Reason::Follows { list, node } => {
                let position = if *list == GraphList::Infer { "after" } else { "next to" };
                write!(f, "on the {list} list, {position} {}, which is low", printable(node))
            }
            Reason::Between { above, below } => {
                write!(f, "between {} and {}, which are on the allow list", printable(above), printable(below))
            }
            Reason::AfterDenied(node) => write!(f, "after {}, which is denied", printable(node)),
            Reason::ReadBy(nodes) if nodes.is_empty() => f.write_str("read by nothing"),
            Reason::ReadBy(nodes) => write!(f, "read by {}", printable(&nodes.join(", "))),
            Reason::Words(words) => f.write_str(&printable(words)),
        }
    }
}

impl Decision {
    /// Returns the effect on the cell, in a few words: `runs f16, returns f32`, and those that follow in a run: `runs
    /// f32 until step 500, then runs f16`.
    pub fn effect(&self) -> String {
        let mut effect = self.first_effect();
        for Later { after, effect: next, .. } in &self.later {
            effect += &format!(" until step {after}, then {next}");
        }
        if self.raise_after_stall {
            effect += ", raised if it stalls";
        }
        effect
    }

    /// Returns the effect on the cell until a rule ends.
    pub(super) fn first_effect(&self) -> String {
        let precision = match (&self.adapter, self.run) {
            (Some(Adapter::Cast(cast) | Adapter::CastOps(cast, _)), _) if cast.inward != cast.outward => {
                cast.to_string()
            }
            (_, Region::AsIs) => "runs as is".to_string(),
            (_, Region::Lists(dtype)) => format!("ops by list, low is {dtype}"),
            (_, run @ (Region::Fixed(_) | Region::Except(_))) => format!("runs {run}"),
        };
        let grads = if self.wide_weight_grads && self.run.lowers() { ", weight gradients f32" } else { "" };
        let again = if self.recompute.is_some() { ", recomputed" } else { "" };
        let operands = self.quantized().map_or(String::new(), |of| format!(", operands {}", of.words()));
        let keeps = match &self.keeps[..] {
            [] => String::new(),
            some @ ([_] | [_, _]) => format!(", keeps {}", printable(&some.join(" and "))),
            more => format!(", keeps {} tensors", more.len()),
        };
        let kept = self.kept().map_or(String::new(), |kept| format!(", activations {kept}"));
        format!("{precision}{operands}{kept}{grads}{again}{keeps}")
    }
}

impl fmt::Display for Plan {
    /// Prints the tree of cells: name, kind, effect, reason. Cells that get an adapter are marked with `*`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_within(f, usize::MAX)
    }
}

/// Fewest columns of a reason beside its cell; on a narrower line, it is below the cell.
const NARROW: usize = 24;

impl Plan {
    /// Returns the plan as printed, in lines of at most `width` columns, as far as names and effects allow. A reason that
    /// is longer is continued below its first line.
    pub fn tree_within(&self, width: usize) -> String {
        let mut text = String::new();
        self.write_within(&mut text, width).map_or_else(|_| String::new(), |()| text)
    }

    fn write_within(&self, f: &mut impl fmt::Write, width: usize) -> fmt::Result {
        writeln!(f, "{}", self.policy)?;
        let rows: Vec<(String, &Decision)> = self.branches().into_iter().zip(&self.decisions).collect();
        let widest = |of: &dyn Fn(&(String, &Decision)) -> usize| rows.iter().map(of).max().unwrap_or(0);
        let names = widest(&|(name, _)| name.chars().count());
        let kinds = widest(&|(_, d)| printable(&d.kind).chars().count());
        let effects = widest(&|(_, d)| d.effect().chars().count());
        let times = widest(&|(_, d)| d.predicted.map_or(0, |p| time(p.nanos).len()));
        let sizes = widest(&|(_, d)| d.predicted.map_or(0, |p| bytes(p.kept).len()));
        let mut said = HashSet::new();
        for (name, decision) in &rows {
            let mark = if decision.adapter.is_some() { '*' } else { ' ' };
            let (kind, effect) = (printable(&decision.kind), decision.effect());
            let because = decision.reasons(&mut said);
            let cell = format!("{name:names$}  {kind:kinds$} {mark} {effect}");
            if cell.chars().count() > width {
                // Not even the effect fits beside the cell.
                writeln!(f, "{}", format!("{name}  {kind} {mark}").trim_end())?;
                writeln!(f, "{}\n{}", wrapped(&effect, 4, width), wrapped(&because, 6, width))?;
                continue;
            }
            let mut cell = format!("{name:names$}  {kind:kinds$} {mark} {effect:effects$}  ");
            if let Some(Predicted { nanos, kept }) = decision.predicted {
                cell += &format!("{:>times$}  {:>sizes$}  ", time(nanos), bytes(kept));
            }
            let column = cell.chars().count();
            if column + because.chars().count() <= width {
                writeln!(f, "{cell}{because}")?;
            } else if column + NARROW <= width {
                writeln!(f, "{cell}{}", wrapped(&because, column, width).trim_start())?;
            } else {
                writeln!(f, "{}\n{}", cell.trim_end(), wrapped(&because, 6, width))?;
            }
        }
        for (name, rule) in &self.tensors {
            let stored =
                if rule.stores_low() { format!("stored {}", self.policy.dtype) } else { "stays as it is".into() };
            let line = format!("tensor {}  {stored}  {}", printable(name), Reason::Rule(Arc::new(rule.clone())));
            writeln!(f, "{}", if line.chars().count() > width { wrapped(&line, 6, width) } else { line })?;
        }
        let counts: Vec<String> = self.counts().into_iter().map(|(run, n)| format!("{n} {run}")).collect();
        let line = format!("{} ({}), {} wrapped", cells(self.decisions.len()), counts.join(", "), self.wrapped());
        f.write_str(&if line.chars().count() > width { wrapped(&line, 0, width) } else { line })?;
        match &self.prediction {
            None => Ok(()),
            Some(prediction) => write!(f, "\n{prediction}"),
        }
    }
}

/// Returns a text in lines of at most `width` columns, each with this indentation. A longer word has a line of its own.
fn wrapped(text: &str, indent: usize, width: usize) -> String {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split_whitespace() {
        let more = indent + line.chars().count() + 1 + word.chars().count();
        if !line.is_empty() && more > width {
            lines.push(std::mem::take(&mut line));
        }
        line = if line.is_empty() { word.to_string() } else { format!("{line} {word}") };
    }
    lines.push(line);
    lines.iter().map(|line| format!("{:indent$}{line}", "")).collect::<Vec<_>>().join("\n")
}

impl fmt::Display for Forecast {
    /// Prints one line for the cost of each choice, followed by the machine.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines =
            vec![("this plan", self.planned), ("as the level lowers", self.lowered), ("all in f32", self.full)];
        if self.planned == self.lowered {
            lines.remove(1);
        }
        for (what, Predicted { nanos, kept }) in lines {
            writeln!(f, "predicted {:>9}, {:>9} kept  {what}", time(nanos), bytes(kept))?;
        }
        write!(f, "speeds of {}", printable(&self.host))
    }
}

impl Plan {
    /// Returns the left column of the tree: `├─ name` with the trunk of every open branch above it.
    fn branches(&self) -> Vec<String> {
        // The last name of a path may itself contain dots (`layers.3`), so parents are found by prefix.
        let mut open: Vec<usize> = Vec::new();
        let parents: Vec<Option<usize>> = (0..self.decisions.len())
            .map(|i| {
                let is_below = |&p: &usize| {
                    let (parent, path) = (&self.decisions[p].path, &self.decisions[i].path);
                    parent.is_empty() || path.strip_prefix(parent.as_str()).is_some_and(|rest| rest.starts_with('.'))
                };
                while open.last().is_some_and(|p| !is_below(p)) {
                    open.pop();
                }
                let parent = open.last().copied();
                open.push(i);
                parent
            })
            .collect();
        let mut last_child = vec![None; self.decisions.len()];
        for (i, parent) in parents.iter().enumerate() {
            if let Some(parent) = parent {
                last_child[*parent] = Some(i);
            }
        }
        let is_last = |i: usize| parents[i].is_none_or(|p| last_child[p] == Some(i));
        (0..self.decisions.len())
            .map(|i| {
                let Some(parent) = parents[i] else { return shown("").to_string() };
                let prefix = &self.decisions[parent].path;
                let name = self.decisions[i].path[prefix.len()..].trim_start_matches('.');
                let mut trunk = Vec::new();
                let mut up = parent;
                while let Some(above) = parents[up] {
                    trunk.push(if is_last(up) { "   " } else { "│  " });
                    up = above;
                }
                let trunk: String = trunk.into_iter().rev().collect();
                format!("{trunk}{}{}", if is_last(i) { "└─ " } else { "├─ " }, printable(name))
            })
            .collect()
    }

    /// Explains the decision for the cell at a path: its reason, and the claims it overrides.
    ///
    /// # Errors
    /// [`ErrorKind::Path`](crate::ErrorKind::Path) when there is no such cell, with the nearest path.
    pub fn explain(&self, path: &str) -> Result<Explanation> {
        let decision = self.decision(path)?.clone();
        Ok(Explanation { policy: self.policy.clone(), decision, numbers: Vec::new() })
    }
}

/// The explanation of the precision of one cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// The policy of the plan.
    pub policy: Summary,
    /// The decision.
    pub decision: Decision,
    /// The range of its numbers in a run, in words.
    #[serde(skip)]
    pub numbers: Vec<String>,
}

impl Explanation {
    /// Shows the range of the cell's numbers next to the reason, in words.
    #[must_use]
    pub fn with_numbers(mut self, numbers: impl IntoIterator<Item = impl fmt::Display>) -> Self {
        self.numbers.extend(numbers.into_iter().map(|words| words.to_string()));
        self
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Decision { path, kind, adapter, recompute, kept, operands, because, overridden, predicted, later, .. } =
            &self.decision;
        writeln!(f, "{} ({})", shown(path), printable(kind))?;
        writeln!(f, "  under    {}", self.policy)?;
        writeln!(f, "  effect   {}", self.decision.effect())?;
        match adapter {
            None => writeln!(f, "  wrapped  no: the precision does not change at its border")?,
            Some(Adapter::Ops(rules)) => {
                let ops: Vec<&str> = rules.ops.keys().map(|op| op.name()).collect();
                writeln!(f, "  wrapped  yes: listed ops are cast one by one: {}", ops.join(", "))?;
            }
            Some(Adapter::Cast(cast)) => {
                writeln!(f, "  wrapped  yes: inputs are cast to {}, outputs to {}", cast.inward, cast.outward)?;
            }
            Some(Adapter::CastOps(cast, rules)) => {
                let ops: Vec<&str> = rules.ops.keys().map(|op| op.name()).collect();
                let (inward, outward) = (cast.inward, cast.outward);
                writeln!(
                    f,
                    "  wrapped  yes: inputs are cast to {inward}, outputs to {outward}; in f32: {}",
                    ops.join(", ")
                )?;
            }
        }
        if let Some(by) = recompute {
            writeln!(f, "  again    its ops run again in the backward pass: {}", by.said(""))?;
        }
        if let Some(by) = kept {
            writeln!(f, "  keeps    {}", by.said(&format!(" (kept: {})", by.says)))?;
        }
        if let Some(of) = operands {
            writeln!(f, "  operands {of}")?;
        }
        if let Some(recipe) = self.decision.quantized().and_then(Operands::recipe) {
            let rows = [
                ("output", "x", "w", Some(recipe.output)),
                ("gradient of x", "g", "w", Some(recipe.grad_input)),
                ("gradient of w", "g", "x", recipe.grad_weight),
            ];
            for (name, left, right, product) in rows {
                match product {
                    Some(of) => writeln!(f, "           {name}: {left} {}; {right} {}", of.left, of.right)?,
                    None => writeln!(f, "           {name}: not quantized")?,
                }
            }
        }
        if let Some(Predicted { nanos, kept }) = predicted {
            writeln!(f, "  takes    {}, {} kept, forward and backward, as predicted", time(*nanos), bytes(*kept))?;
        }
        write!(f, "  because  {because}")?;
        if let Reason::Level(level) = because {
            write!(f, ": {}", level.meaning())?;
        }
        for Later { after, effect, because } in later {
            write!(f, "\n  then     after step {after}, {effect}: {because}")?;
        }
        if self.decision.raise_after_stall {
            write!(f, "\n  stall    raised to f32 if it stalls a run, which then continues")?;
        }
        for reason in overridden {
            write!(f, "\n  over     {reason}")?;
        }
        for words in &self.numbers {
            write!(f, "\n  numbers  {}", printable(words))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_written_for_people() {
        assert_eq!(
            [0, 1023, 1024, 1536, 1_048_524, 1_048_525, 1 << 20, 3 << 19].map(bytes),
            ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1023.9 KiB", "1.0 MiB", "1.0 MiB", "1.5 MiB"]
        );
        assert_eq!(
            [0, 41_230, 999_949, 999_950, 999_994_999, 999_995_000, 1_234_000_000].map(time),
            ["0.0 us", "41.2 us", "999.9 us", "1.00 ms", "999.99 ms", "1.00 s", "1.23 s"]
        );
    }
}
