//! The results of training runs, as JSON and as files.

use std::{
    collections::BTreeSet,
    fs,
    io::Read as _,
    path::{Path, PathBuf},
};

use precast::{DType, Level, Outcome, Plan, observe::Edge, optim::Schedule, policy::Rule};
use precast_base::{files, printable};
use precast_train::{
    Epoch, History,
    report::{TrainingRun, joint_name, same_course, save_chart},
};
use serde::Serialize;

use super::{Failure, Result, inputs::shown};

/// The results of a comparison of runs.
#[derive(Serialize)]
pub(super) struct Results<R> {
    pub model: String,
    pub data: Data,
    pub options: Options,
    pub runs: Vec<R>,
}

/// The data of the runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Data {
    pub train_examples: usize,
    pub test_examples: usize,
    pub shape: Vec<usize>,
}

/// The options of the runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Options {
    pub epochs: usize,
    pub batch: usize,
    pub lr: f64,
    pub schedule: Schedule,
    pub warm_up: usize,
    pub seed: u64,
    pub optimizer: &'static str,
}

/// The result of one run.
#[derive(Clone, Serialize)]
pub(super) struct RunResult {
    pub name: String,
    /// The file or the name of the policy.
    pub policy: String,
    pub level: Level,
    pub dtype: DType,
    /// Accuracy on the test examples after the last epoch, from 0 to 1.
    pub accuracy: Option<f64>,
    /// Mean loss of the last epoch.
    pub last_loss: Option<f64>,
    pub steps: usize,
    pub skipped: usize,
    pub last_scale: Option<f32>,
    /// Median time of a step, in seconds.
    pub seconds_per_step: Option<f64>,
    /// Time of a step relative to the first run; see [`History::relative_time`].
    pub relative_time: Option<f64>,
    pub activation_bytes: usize,
    pub parameter_bytes: usize,
    pub casts_per_step: usize,
    /// The reason why the run stalled, if it did.
    pub stalled: Option<String>,
}

/// A result with its plan and its history.
#[derive(Serialize)]
struct FullRun<'a> {
    #[serde(flatten)]
    result: &'a RunResult,
    plan: &'a Plan,
    history: &'a History,
}

/// A completed run.
pub(super) struct Finished<'a> {
    pub run: TrainingRun<'a>,
    pub policy: String,
    pub plan: &'a Plan,
}

impl Finished<'_> {
    /// Returns the result; `first` is the history of the first run.
    pub fn result(&self, first: &History) -> RunResult {
        let history = self.run.history;
        RunResult {
            name: self.run.name.to_string(),
            policy: self.policy.clone(),
            level: self.plan.policy.level,
            dtype: self.plan.policy.dtype,
            accuracy: history.accuracy(),
            last_loss: history.epochs.last().map(|epoch| epoch.loss),
            steps: history.steps.len(),
            skipped: history.skipped(),
            last_scale: history.steps.last().map(|step| step.scale),
            seconds_per_step: history.median_seconds(),
            relative_time: history.relative_time(first),
            activation_bytes: history.tape_bytes,
            parameter_bytes: history.param_bytes,
            casts_per_step: history.casts,
            stalled: why_stalled(history),
        }
    }
}

pub(super) fn why_stalled(history: &History) -> Option<String> {
    Some(stalled(history)? + &not_raised(history).unwrap_or_default())
}

/// Describes the end of a run that stalled, without a cure.
pub(super) fn stalled(history: &History) -> Option<String> {
    let Outcome::Stalled { cause, skipped } = &history.stalled()?.outcome else { return None };
    Some(format!("stalled at step {}: the last {skipped} changed nothing; {cause}", history.steps.len()))
}

/// Returns the rule that would raise the cell that stalled a run, if float32 has its numbers and no rule raised it.
fn not_raised(history: &History) -> Option<String> {
    let Edge { cell, dtype, good_inputs, .. } = &history.stalled()?.fault()?.edge;
    if !dtype.is_low() || !good_inputs || history.raised.iter().any(|raised| raised.origin.edge.cell == *cell) {
        return None;
    }
    let path = if cell.is_empty() { "**" } else { cell };
    let named = if cell.is_empty() { "the root cell".into() } else { format!("`{cell}`") };
    let rule = Rule::raise_after_stall(path).ok()?.to_line();
    Some(format!("; no rule raises {named}: write `rules: [{rule}]`"))
}

const METRICS: &str = "metrics.json";
const PLANS: &str = "plans.txt";
const CURVES: &str = "curves.svg";

/// First bytes of `metrics.json`.
const FIRST: &[u8; 10] = b"{\"model\":\"";

/// Returns the file name for the weights of a run.
pub(super) fn weights_file(run: &str) -> String {
    format!("{run}.safetensors")
}

/// Creates the output folder and checks, before any training, that each file can be written and replaces none of others.
pub(super) fn prepare(folder: &Path, more: &[String]) -> Result {
    fs::create_dir_all(folder).map_err(|error| Failure::Usage(format!("--output {}: {error}", shown(folder))))?;
    let own = has_results(folder);
    for name in [METRICS, PLANS, CURVES].into_iter().chain(more.iter().map(String::as_str)) {
        if folder.join(name).is_file() && !own {
            return Err(Failure::Usage(format!(
                "--output: `{}` already exists, in a folder without results of `train`; write them elsewhere",
                shown(&folder.join(name))
            )));
        }
        files::check_writable(folder.join(name))
            .map_err(|error| Failure::Usage(format!("--output {}: cannot write {error}", shown(folder))))?;
    }
    Ok(())
}

/// Returns whether a folder has results of an earlier comparison, which are replaced.
fn has_results(folder: &Path) -> bool {
    let mut first = [0; FIRST.len()];
    let read = fs::File::open(folder.join(METRICS)).and_then(|mut file| file.read_exact(&mut first));
    read.is_ok() && first == *FIRST
}

/// The files that were written, and the errors of those that were not: a failure does not prevent the next file.
#[derive(Default)]
pub(super) struct Written {
    pub files: Vec<PathBuf>,
    pub failures: Vec<String>,
}

impl Written {
    /// Writes a file.
    pub fn put(&mut self, file: PathBuf, write: impl FnOnce(&Path) -> precast::Result<()>) {
        match write(&file) {
            Ok(()) => self.files.push(file),
            Err(error) => self.failures.push(error.to_string()),
        }
    }
}

/// Writes `metrics.json`, `plans.txt` and `curves.svg` into a folder.
pub(super) fn write(folder: &Path, results: &Results<RunResult>, finished: &[Finished<'_>]) -> Written {
    let full = Results {
        model: results.model.clone(),
        data: results.data.clone(),
        options: results.options.clone(),
        runs: results
            .runs
            .iter()
            .zip(finished)
            .map(|(result, finished)| FullRun { result, plan: finished.plan, history: finished.run.history })
            .collect(),
    };
    let mut written = Written::default();
    written.put(folder.join(METRICS), |file| {
        let json = serde_json::to_string(&full).map_err(|error| precast::Error::value(error.to_string()))?;
        files::replace(file, json.as_bytes())
    });
    let plans: Vec<String> = finished.iter().map(|finished| format!("{}\n", finished.plan)).collect();
    written.put(folder.join(PLANS), |file| files::replace(file, plans.join("\n").as_bytes()));
    let runs: Vec<TrainingRun<'_>> = finished.iter().map(|finished| finished.run).collect();
    // Runs without a finite loss have no curve. A picture of earlier runs must not remain next to these metrics.
    if runs.iter().flat_map(|run| &run.history.steps).any(|step| step.loss.is_finite()) {
        written.put(folder.join(CURVES), |file| save_chart(file, &runs));
    } else {
        let _ = std::fs::remove_file(folder.join(CURVES));
    }
    written
}

/// Describes an epoch with steps or outputs that are not finite; `examples` are those scored after it.
pub(super) fn spoilt(epoch: &Epoch, examples: &str) -> Option<String> {
    let (number, score) = (epoch.epoch + 1, epoch.score);
    if !epoch.loss.is_finite() {
        return Some(format!("no step of epoch {number} was taken, so it has no loss"));
    }
    let answers = if score.not_finite() == 1 { "1 answer is" } else { &format!("{} answers are", score.not_finite()) };
    (score.not_finite() > 0).then(|| format!("{answers} not finite on the {examples} examples after epoch {number}"))
}

/// Returns the cure of a run that took no step of its last epoch, or whose last answers are not finite.
pub(super) fn cure(history: &History) -> &'static str {
    match &history.steps[..] {
        [first, .., last] if history.skipped() == history.steps.len() && last.scale < first.scale => {
            "; the loss scale was still falling, so the run is too short to tell why"
        }
        [one] if one.is_skipped() => "; one step is too short a run to tell why",
        _ => "; try a lower --lr",
    }
}

/// Ignores a closed standard output, which does not end a run: its results are also written to files, and its exit
/// status reports the outcome.
pub(super) fn unless_unread(printed: Result) -> Result {
    match printed {
        Err(Failure::Unread) => Ok(()),
        other => other,
    }
}

/// Describes the losses of runs that have the same ones.
fn same_loss(history: &History) -> String {
    let steps = &history.steps;
    match steps.iter().rposition(|step| step.loss.is_finite()).map_or(0, |last| last + 1) {
        all if all == steps.len() => "the same loss at every step, bit for bit".into(),
        0 => "no step has a finite loss".into(),
        last => format!("the same loss up to step {last}, bit for bit; from step {} on, no loss is finite", last + 1),
    }
}

/// Returns the legend of the table, the runs that were identical, and those that took steps with numbers that were not
/// finite. The times of runs that did not alternate are not compared.
pub(super) fn notes(runs: &[TrainingRun<'_>], alternated: bool) -> String {
    let validated = runs.iter().filter(|run| run.history.validated).count();
    let name = match runs.iter().filter_map(|run| run.history.measure()).collect::<BTreeSet<_>>() {
        names if names.len() == 1 => names.into_iter().next().unwrap_or("score"),
        _ => "score",
    };
    let mut score = match validated {
        0 => format!("{name}: on the test examples"),
        all if all == runs.len() => format!("{name}: on the validation examples, after the last epoch"),
        _ => format!("{name}: on the validation examples of runs that have them, after the last epoch"),
    };
    if runs.iter().any(|run| run.history.test.is_some()) {
        score += "; test: on the test examples, once, with the best weights";
    }
    let time = match alternated {
        true => format!(" time: of a step, relative to {};", printable(runs[0].name)),
        false => String::new(),
    };
    let mut notes =
        format!("{score};{time} activations: kept for the backward pass; activations and casts: of the first step");
    let ran = |group: &&Vec<TrainingRun<'_>>| group.len() > 1 && !group[0].history.steps.is_empty();
    for group in same_course(runs).iter().filter(ran) {
        notes += &format!("\n{}: {}", joint_name(group), same_loss(group[0].history));
    }
    for TrainingRun { name, history } in runs {
        let raised = history.raised.iter().map(ToString::to_string);
        for change in raised.chain(history.ended.iter().map(ToString::to_string)) {
            notes += &format!("\n{}: {}", printable(name), printable(&change));
        }
        let mut swallowed = history.swallowed();
        if let Some((at, origin)) = swallowed.next() {
            let (name, more) = (printable(name), swallowed.count());
            let more = if more > 0 { format!(", and {more} more") } else { String::new() };
            let origin = printable(&origin.to_string()).into_owned();
            notes += &format!("\n{name}: step {}{more}, taken although a number was not finite: {origin}", at + 1);
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use precast_train::Step;

    fn run_of(losses: &[f64]) -> History {
        let step = r#"{"epoch": 0, "loss": null, "scale": 1.0, "outcome": "stepped", "seconds": 0.0}"#;
        let step = |loss: &f64| {
            let mut step: Step = serde_json::from_str(step).unwrap();
            step.loss = *loss;
            step
        };
        let mut history = History::default();
        history.steps = losses.iter().map(step).collect();
        history
    }

    /// Losses that are not finite are not called the same bit for bit, whatever their bits.
    #[test]
    fn runs_that_end_without_a_finite_loss_are_said_to() {
        let same = "the same loss at every step, bit for bit";
        for (losses, words) in [
            (&[2.0, 1.0][..], same),
            (&[2.0, f64::NAN, 1.0], same),
            (&[2.0, 1.0, f64::NAN, f64::NAN], "up to step 2, bit for bit; from step 3 on, no loss is finite"),
            (&[f64::NAN, f64::INFINITY], "no step has a finite loss"),
        ] {
            let (one, mut other) = (run_of(losses), run_of(losses));
            other.steps.iter_mut().filter(|step| !step.loss.is_finite()).for_each(|step| step.loss = -f64::NAN);
            let runs = [("a", &one), ("b", &other)].map(|(name, history)| TrainingRun { name, history });
            let said = notes(&runs, true);
            assert!(said.lines().any(|line| line.starts_with("a = b: ") && line.ends_with(words)), "{said}");
        }
    }
}
