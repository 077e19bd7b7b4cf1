//! The result of a search.

use std::{borrow::Cow, collections::BTreeMap, fmt, path::Path};

use serde::Serialize;

use precast::{DType, Op, Policy, error::Result, io::files, policy::Operands};
use precast_base::path::named;

/// The result of a [search](super::Tune): a policy, and how it was found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Tuned {
    /// The policy: the one given, with a rule for each cell that is kept in f32, or whose operands are not quantized, and without
    /// its name.
    pub policy: Policy,
    /// Name of the metric.
    pub metric: &'static str,
    /// The largest error allowed.
    pub budget: f64,
    /// The error of the policy, the largest over the batches.
    pub error: f64,
    /// The cells that the policy given could lower, in the order of a walk.
    pub cells: Vec<TunedCell>,
    /// Reason for which the policy keeps the root in f32, so that the inputs of the network are not rounded.
    pub inputs: Option<String>,
    /// The sets that were run, in order; the empty one is the floor of the error.
    pub runs: Vec<TuneRun>,
    /// `true` when the search ended by itself; `false` when it reached its limit of runs or minutes.
    pub complete: bool,
}

/// A cell that could be lowered.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TunedCell {
    /// Path of the cell.
    pub path: String,
    /// Kind of the cell.
    pub kind: Cow<'static, str>,
    /// The operands of its products, in a search for the cells whose operands are quantized.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operands: Option<Operands>,
    /// `true` when the policy found lowers it, or quantizes its operands.
    pub low: bool,
    /// Position in the order in which the search lowers cells; `None` for a cell that it keeps in any case.
    pub rank: Option<usize>,
    /// Predicted error if this cell alone is lowered; `None` where the score has another unit than the metric, or is
    /// not finite.
    pub predicted: Option<f64>,
    /// Error that the cell added to a set within the budget, where this was measured. It may be infinite.
    pub measured: Option<f64>,
    /// The first op in it that is not finite in the low dtype, if the cell's results are not.
    pub overflows: Option<Op>,
    /// Predicted nanoseconds that lowering saves, in a search for the [fastest](super::Tune::fastest) policy.
    pub saves: Option<f64>,
}

/// One set that was run.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct TuneRun {
    /// Number of cells lowered.
    pub low: usize,
    /// The error, the largest over the batches up to the first beyond the budget; infinite if it was not finite.
    pub error: f64,
    /// Seconds that it took.
    pub seconds: f64,
    /// `true` when it was read from the journal.
    pub known: bool,
}

/// Number of lowered cells that a policy names in its comments.
const NAMED: usize = 8;

/// A function that is called after each run.
#[derive(Clone, Copy)]
pub(super) struct Watch<'a>(pub &'a dyn Fn(&TuneRun));

impl fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

impl Tuned {
    /// Line in the policy file of a search that is not [complete](Tuned::complete).
    pub const UNFINISHED: &str = "# The search has not ended: the same command continues it, and replaces this file.";

    /// Returns the number of cells that the policy lowers.
    pub fn lowered(&self) -> usize {
        self.cells.iter().filter(|cell| cell.low).count()
    }

    /// Returns the policy as the text of a file, with the result of the search and the largest predicted errors among
    /// the lowered cells as comments.
    ///
    /// # Errors
    /// As [`Policy::to_yaml`] and [`Policy::parse`].
    pub fn to_yaml(&self) -> Result<String> {
        let mut text = format!("# {}\n", self.summary());
        if !self.complete {
            text += &format!("{}\n", Tuned::UNFINISHED);
        }
        let low = self.cells.iter().filter(|cell| cell.low);
        let mut predicted: Vec<(&String, f64)> = low.filter_map(|cell| Some((&cell.path, cell.predicted?))).collect();
        predicted.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        for (path, error) in predicted.iter().take(NAMED) {
            text += &format!("#   {error:.1e} predicted for {}\n", named(path));
        }
        if predicted.len() > NAMED {
            text += &format!("#   less for the other {}\n", predicted.len() - NAMED);
        }
        text += &self.policy.to_yaml()?;
        // With its comments as well, it must be short enough to be read.
        Policy::parse(&text, "the policy that was found").map(|_| text)
    }

    /// Writes [`to_yaml`](Tuned::to_yaml) to a file, in one step.
    ///
    /// # Errors
    /// As [`Policy::save`].
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        files::replace(path, self.to_yaml()?.as_bytes())
    }

    /// Returns the verb for what the search did to cells: `lowered`, or `quantized`.
    pub fn verb(&self) -> &'static str {
        self.cells.first().map_or("lowered", TunedCell::verb)
    }

    /// Returns the numbers of cells by recipe, in parentheses.
    fn by_recipe(&self) -> String {
        let mut counts = BTreeMap::<String, usize>::new();
        for operands in self.cells.iter().filter(|cell| cell.low).filter_map(|cell| cell.operands) {
            *counts.entry(operands.to_string()).or_default() += 1;
        }
        let counts: Vec<String> = counts.iter().map(|(recipe, count)| format!("{count} {recipe}")).collect();
        if counts.is_empty() { String::new() } else { format!(" ({})", counts.join(", ")) }
    }

    fn summary(&self) -> String {
        let sets = || self.runs.iter().filter(|run| run.low > 0);
        let (all, known) = (sets().count(), sets().filter(|run| run.known).count());
        let mut runs = format!("{all} {}", if all == 1 { "run" } else { "runs" });
        match known {
            0 => {}
            known if known == all && self.runs.iter().all(|run| run.known) => runs += ", all known before",
            known => runs += &format!(", {known} known before"),
        }
        if known < all {
            // A run that was known took no time.
            runs += &format!(", {:.1} s", self.runs.iter().map(|run| run.seconds).sum::<f64>());
        }
        format!(
            "{} of {} cells {}{}, {} {:.2e} of {:.2e}; {runs}",
            self.lowered(),
            self.cells.len(),
            self.verb(),
            self.by_recipe(),
            self.metric,
            self.error,
            self.budget
        )
    }
}

impl TunedCell {
    /// Returns the verb for what the search does to cells: `lowered`, or `quantized`.
    pub fn verb(&self) -> &'static str {
        if self.operands.is_some() { "quantized" } else { "lowered" }
    }

    /// Returns the reason for keeping the cell.
    pub(super) fn because(&self, metric: &str, low: DType) -> Option<String> {
        let format = self.operands.map_or(low.long_name().to_string(), |operands| operands.to_string());
        let when = if self.operands.is_some() { format!("as {format}") } else { "when lowered".into() };
        let predicted = self.predicted.map(|error| format!("predicted {error:.1e}"));
        Some(match (self.overflows, self.measured, predicted) {
            (Some(op), ..) => format!("not finite in {format}: {op}"),
            _ if self.saves.is_some_and(|saves| saves <= 0.0) => "not faster when lowered".into(),
            (_, Some(error), _) if error.is_infinite() => format!("not finite {when} ({metric}, measured)"),
            (_, Some(error), Some(predicted)) => format!("adds {error:.1e} of {metric} {when} ({predicted})"),
            (_, Some(error), None) => format!("adds {error:.1e} of {metric} {when}"),
            (_, None, Some(predicted)) => format!("{predicted} of {metric} {when}"),
            (_, None, None) => format!("beyond the budget of {metric} {when}"),
        })
    }
}

impl fmt::Display for Tuned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.summary())?;
        if !self.complete {
            writeln!(f, "the search reached its limit; more runs may find more cells")?;
        }
        let kept = self.cells.iter().filter(|cell| !cell.low);
        let of_cell = |cell: &TunedCell| {
            let why = cell.because(self.metric, self.policy.dtype).unwrap_or_default();
            (format!("{} ({})", named(&cell.path), cell.kind), why)
        };
        let inputs = self.inputs.iter().map(|why| ("(inputs)".to_string(), why.clone()));
        let lines: Vec<(String, String)> = inputs.chain(kept.map(of_cell)).collect();
        let width = lines.iter().map(|(cell, _)| cell.chars().count()).max().unwrap_or(0);
        for (cell, why) in lines {
            write!(f, "\nkept {cell:width$}  {why}")?;
        }
        Ok(())
    }
}
