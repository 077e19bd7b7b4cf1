//! What training runs came to, as JSON and as files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use precast::{
    DType, Level, Outcome, Plan,
    report::{TrainingRun, save_chart},
    train::{History, Schedule},
};
use serde::Serialize;

use super::{Failure, Result};

/// Everything about a comparison of runs.
#[derive(Serialize)]
pub(super) struct Results<R> {
    pub model: String,
    pub data: Data,
    pub options: Options,
    pub runs: Vec<R>,
}

/// What was trained with.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Data {
    pub train_examples: usize,
    pub test_examples: usize,
    pub shape: Vec<usize>,
}

/// How it was trained.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Options {
    pub epochs: usize,
    pub batch: usize,
    pub lr: f64,
    pub schedule: Schedule,
    pub seed: u64,
    pub optimizer: &'static str,
}

/// What one run came to.
#[derive(Clone, Serialize)]
pub(super) struct RunResult {
    pub name: String,
    /// The file or the name of the policy.
    pub policy: String,
    pub level: Level,
    pub dtype: DType,
    /// Share of the test examples classified rightly after the last epoch, from 0 to 1.
    pub accuracy: Option<f64>,
    /// Mean loss of the last epoch.
    pub last_loss: Option<f64>,
    pub steps: usize,
    pub skipped: usize,
    pub last_scale: Option<f32>,
    /// Median.
    pub seconds_per_step: Option<f64>,
    /// Time of a step as a multiple of the first run's, paired by epoch.
    pub relative_time: Option<f64>,
    pub activation_bytes: usize,
    pub parameter_bytes: usize,
    pub casts_per_step: usize,
    /// Why the run ended early, if it did.
    pub stalled: Option<String>,
}

/// A run with everything that is known of it.
#[derive(Serialize)]
struct FullRun<'a> {
    #[serde(flatten)]
    result: &'a RunResult,
    plan: &'a Plan,
    history: &'a History,
}

/// What a result is made from.
pub(super) struct Finished<'a> {
    pub run: TrainingRun<'a>,
    pub policy: String,
    pub plan: &'a Plan,
}

impl Finished<'_> {
    /// The result, beside that of the first run.
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

fn why_stalled(history: &History) -> Option<String> {
    let Outcome::Stalled { cause, first, skipped } = &history.stalled()?.outcome else { return None };
    Some(format!(
        "stalled at step {}: the last {skipped} changed nothing; {cause}, first in `{first}`",
        history.steps.len()
    ))
}

/// Writes `metrics.json`, `plans.txt` and `curves.svg` into a folder, and returns what was written.
pub(super) fn write(folder: &Path, results: &Results<RunResult>, finished: &[Finished<'_>]) -> Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    let mut put = |name: &str, text: String| -> Result {
        let file = folder.join(name);
        fs::write(&file, text).map_err(|error| Failure::work(format_args!("{}: {error}", file.display())))?;
        written.push(file);
        Ok(())
    };
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
    put("metrics.json", serde_json::to_string(&full).map_err(Failure::work)?)?;
    let plans: Vec<String> = finished.iter().map(|finished| format!("{}\n", finished.plan)).collect();
    put("plans.txt", plans.join("\n"))?;
    let runs: Vec<TrainingRun<'_>> = finished.iter().map(|finished| finished.run).collect();
    // A run whose every loss was NaN has no curve.
    if runs.iter().flat_map(|run| &run.history.steps).any(|step| step.loss.is_finite()) {
        let file = folder.join("curves.svg");
        save_chart(&file, &runs).map_err(Failure::work)?;
        written.push(file);
    }
    Ok(written)
}
