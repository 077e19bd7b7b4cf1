//! Training runs with a folder, which can be interrupted at any step and resumed.

use std::{
    collections::BTreeSet,
    fmt,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use precast::{Checkpoint, Child, Plan, Policy, error::Result, io::models::Model, storage::Decorated};

use super::{
    RunFile,
    faults::SavedFault,
    folder::Folder,
    indices,
    parts::Read,
    prepared::{Prepared, prepared},
    settled::settled,
    standardizations::Standardizations,
    steps::{Alone, Steps},
};
use crate::{
    data::{Dataset, Split, Standardization},
    training::{Epoch, Event, Fit, FitOptions, History, Loss, Score},
};

/// A training run in a folder. The folder holds the inputs of the run, its history, and checkpoints, so that the run
/// ends with the same weights and, except for times, the same metrics however often it was interrupted.
///
/// | file | what |
/// | --- | --- |
/// | `run.yaml`, `model.yaml` or `model.onnx`, `policy.yaml` | the run, complete; a copy of the model, unless it was built in code; the policy |
/// | `policy-now.yaml` | the policy of the next step, once a rule has ended or a cell was raised |
/// | `plan.txt` | what the policy decided for each cell, and how each parameter is stored if some are low |
/// | `about.json` | version, machine, start, the number of examples and their checksum |
/// | `metrics.jsonl` | a line for each step, each epoch, each [raised](crate::training::Raised) cell and each [end](crate::training::Ended) of rules, and at the end the [score](crate::training::Tested) on held-out test examples, written as they happen |
/// | `metrics.csv` | a row for each epoch, written again after each |
/// | `checkpoint-*.safetensors` | the last [`Checkpoint`](precast::Checkpoint)s |
/// | `best.safetensors`, `last.safetensors` | the weights with the best score, and those at the end; their [average](FitOptions::average) if the run has one |
/// | `scores.json` | the [`Scores`](super::Scores) of the best weights, at the end |
/// | `headroom.json` | how far the numbers of each cell were from the limits of their dtypes before the last checkpoint |
/// | `faults/step-N/` | a [`SavedFault`] for each place at which a number was not finite, to [run](super::Replay) again |
///
/// ```
/// use precast::{Policy, io::models::Model};
/// use precast_train::{EndReason, Run, RunFile};
/// use std::ops::ControlFlow;
/// # fn main() -> precast::Result<()> {
/// let text = "{version: 1, model: mlp, policy: o2-bf16, data: digits, epochs: 2, batch: 256}";
/// let file = RunFile::parse(text, "run.yaml")?;
/// let folder = std::env::temp_dir().join(format!("precast-doc-run-{}", std::process::id()));
///
/// let mut run = Run::begin(&file, file.read_model()?, &folder)?; // Run::load("run.yaml")? chooses the folder
/// let ended = run.train_with(&mut |_| ControlFlow::Break(()))?; // interrupted after the first step
/// assert_eq!(ended, EndReason::Interrupted);
/// drop(run);
///
/// let file = RunFile::of_folder(&folder)?;
/// let mut run = Run::resume(&folder, file.read_model()?)?;
/// assert_eq!(run.train()?, EndReason::Done);
/// # drop(run);
/// # std::fs::remove_dir_all(folder).unwrap();
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Run {
    pub(super) file: RunFile,
    pub(super) policy: Policy,
    pub(super) plan: Plan,
    pub(super) storage: Option<Decorated>,
    pub(super) net: Child,
    /// Examples for training, and those scored after each epoch.
    pub(super) data: Split,
    /// Test examples that are scored at the end, if others are scored after each epoch.
    pub(super) held_out: Option<Dataset>,
    pub(super) fit: Fit,
    pub(super) folder: Folder,
    pub(super) standardizations: Standardizations,
    pub(super) notes: Vec<String>,
    /// Numbers of steps after which rules end.
    pub(super) ends: BTreeSet<usize>,
}

/// Reason for the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndReason {
    /// All epochs are complete.
    Done,
    /// The score did not improve for as many epochs as the run has [patience](RunFile::patience).
    NoBetter,
    /// The run cannot recover by itself; see [`Outcome::Stalled`](precast::Outcome::Stalled).
    Stalled,
    /// The observer stopped it. It can be resumed.
    Interrupted,
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EndReason::Done => "done",
            EndReason::NoBetter => "no better",
            EndReason::Stalled => "stalled",
            EndReason::Interrupted => "interrupted",
        })
    }
}

impl Run {
    /// Begins a run in a new or empty folder. `model` is that of [`RunFile::read_model`], or one built in code from the
    /// seed of the file.
    ///
    /// A policy that [prefers speed](precast::policy::Prefer::Speed) is [settled](Policy::settled) for this machine, which is measured
    /// first if necessary: the folder gets the policy with rules for each decision, so that the run can be resumed
    /// elsewhere.
    ///
    /// # Errors
    /// [`ErrorKind::Run`](precast::ErrorKind::Run) when the folder has files already, or another process is training in
    /// it; the errors of reading the policy and the data; [`ErrorKind::Data`](precast::ErrorKind::Data) when the data
    /// does not fit the model. Nothing is written on error.
    pub fn begin(file: &RunFile, mut model: Model, folder: impl AsRef<Path>) -> Result<Self> {
        let policy = file.read_policy()?;
        let read = file.read_data(model.input.as_deref())?;
        let about = read.about(file)?;
        let Read { data, held_out, file: found, standardizations, notes: of_data, .. } = read;
        indices::check(&model, standardizations.encoding.as_ref()).map_err(|error| file.wrong("model", error))?;
        file.load_weights(&model.net)?;
        file.freeze(&model.net)?;
        file.check_weights(&model)?;
        let text = model.to_yaml().ok();
        let steps = file.options.steps(data.train.len());
        let idle = policy.idle_rules(&model.net, Some(steps))?;
        let (policy, note) = settled(policy, &mut model.net, &data, file.options.batch)?;
        let Prepared { mut net, plan, storage, options, mut notes } = prepared(&found, model, &policy, &data)?;
        notes.extend(idle.into_iter().chain(note));
        notes.extend(of_data);
        notes.extend(file.idle_shards().into_iter().chain(file.options_of_ranks()));
        let new = Fit::new(&net, &options).map_err(|error| file.wrong_group(error))?;
        let fit = new
            .standardized_targets(standardizations.targets.clone())
            .measured_by(measure(&options), held_out.is_some());
        let mut fit = fit.under(&net, &policy)?;
        fit.lint(&mut net, &data, Some(&policy));
        let findings = fit.findings().iter().map(|finding| file.advised(finding.clone(), &data));
        notes.extend(findings.map(|finding| format!("the lint of the first batch: {finding}")));
        // The defaults derived from the data are written down, so that predictions need no data.
        let mut found = found;
        found.options.loss = found.options.loss.or_else(|| options.loss.clone());
        found.weights = file.absolute_weights()?;
        let folder = Folder::create(folder.as_ref())?;
        let plan_text = match &storage {
            Some(storage) => format!("{plan}\n\n{storage}\n"),
            None => format!("{plan}\n"),
        };
        folder.write_all(&found, text.as_deref(), &policy, &plan_text, &about, &standardizations)?;
        let ends = policy.ends();
        let starts_from_file = found.weights.is_some();
        let file = found;
        let run = Run { file, policy, plan, storage, net, data, held_out, fit, folder, standardizations, notes, ends };
        if starts_from_file {
            // From here on the file of the weights may be gone.
            run.save_checkpoint()?;
        }
        Ok(run)
    }

    /// Checks that a run can begin in a folder, as [`begin`](Run::begin) does, and changes nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Run`](precast::ErrorKind::Run) when the folder has files already.
    pub fn check_folder(folder: impl AsRef<Path>) -> Result<()> {
        Folder::check_free(folder.as_ref())
    }

    /// Trains until the run ends.
    ///
    /// # Errors
    /// As [`train_with`](Run::train_with).
    pub fn train(&mut self) -> Result<EndReason> {
        self.train_with(&mut |_| ControlFlow::Continue(()))
    }

    /// Trains until the run ends or the observer breaks. Steps and epochs are written to `metrics.jsonl` before the
    /// observer receives them, and a checkpoint before this returns, disk errors excepted.
    ///
    /// # Errors
    /// As [`fit`](crate::training::fit), and [`ErrorKind::Io`](precast::ErrorKind::Io) when a file cannot be written.
    pub fn train_with(&mut self, observer: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>) -> Result<EndReason> {
        let ended = self.advance_to_end(observer, &mut Alone)?;
        self.end(ended)
    }

    /// Trains by `steps` as [`train_with`](Run::train_with) does, and returns why the run ends.
    pub(super) fn advance_to_end(
        &mut self,
        observer: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
        steps: &mut dyn Steps,
    ) -> Result<EndReason> {
        loop {
            if self.is_out_of_patience() {
                return Ok(EndReason::NoBetter);
            }
            let advanced = match steps.advance(&mut self.fit, &mut self.net, &self.data) {
                Ok(advanced) => advanced,
                Err(error) => {
                    // The steps before are not lost with the examples of this one.
                    let has_state = steps.ranks() == 1 || !self.file.shard_optimizer;
                    if self.fit.has_not_read() && self.fit.steps_done() > 0 && has_state {
                        self.save_checkpoint()?;
                    }
                    return Err(error);
                }
            };
            let Some(event) = advanced else {
                let ended = if self.fit.has_stalled() { EndReason::Stalled } else { EndReason::Done };
                return Ok(ended);
            };
            self.folder.note(&event)?;
            let (is_step, is_epoch) = (matches!(event, Event::Step(_)), matches!(event, Event::Epoch(_)));
            let changes = matches!(event, Event::Raised(_));
            let flow = match (observer(event), steps.is_stopped()) {
                (ControlFlow::Continue(()), true) => ControlFlow::Break(()),
                (flow, _) => flow,
            };
            let done = self.fit.steps_done();
            if let Some(policy) = self.fit.policy().filter(|_| changes || is_step && self.ends.contains(&done)) {
                self.folder.save_policy_now(&policy)?;
            }
            if is_step {
                let last = || Ok(self.folder.checkpoints()?.pop());
                let inputs = || Ok([checksum_of(&self.policy)?, self.file.fingerprint()?]);
                SavedFault::save(self.folder.path(), &self.fit, &self.net, &self.data, steps.ranks(), inputs, last)?;
            }
            if done == 1 && is_step {
                self.folder.note_memory(self.fit.history())?;
            }
            if is_epoch {
                self.folder.save_table(self.history())?;
            }
            let due = is_epoch || is_step && self.file.checkpoint.every.is_some_and(|every| done.is_multiple_of(every));
            if due || flow.is_break() {
                let checkpoint = steps.checkpoint(&self.fit, &self.net)?;
                self.save(checkpoint, None)?;
            }
            if is_epoch {
                self.save_best()?;
            }
            if flow.is_break() && !self.fit.is_over() {
                return Ok(EndReason::Interrupted);
            }
        }
    }

    /// Writes the weights and the scores of a run that has ended, unless it was interrupted.
    pub(super) fn end(&mut self, ended: EndReason) -> Result<EndReason> {
        if ended == EndReason::Interrupted {
            return Ok(ended);
        }
        self.fit.with_average(|| self.folder.save_last(&self.net))?;
        self.score_best()?;
        Ok(ended)
    }

    /// Writes the best weights if they are those of the epoch that has just ended. The checkpoint after it comes first:
    /// a run that is killed in between writes them when it is resumed, and one that is resumed before that epoch still
    /// has the best weights of the epochs before.
    pub(super) fn save_best(&self) -> Result<()> {
        let History { epochs, steps, .. } = self.history();
        let is_best = best_epoch(self.history()).is_some_and(|best| best + 1 == epochs.len());
        match is_best && steps.last().is_some_and(|step| step.epoch + 1 == epochs.len()) {
            true => self.fit.with_average(|| self.folder.save_best(&self.net)),
            false => Ok(()),
        }
    }

    pub(super) fn save_checkpoint(&self) -> Result<()> {
        self.save_checkpoint_after(None)
    }

    /// Saves a checkpoint that the run file with the checksum `before` as well, can continue.
    pub(super) fn save_checkpoint_after(&self, before: Option<u32>) -> Result<()> {
        self.save(self.fit.checkpoint(&self.net), before)
    }

    fn save(&self, checkpoint: Checkpoint, before: Option<u32>) -> Result<()> {
        let headroom = self.fit.monitor().headroom(&self.net);
        if !headroom.is_empty() {
            self.folder.save_headroom(&headroom)?;
        }
        let checkpoint = self.completed(checkpoint, before)?;
        self.folder.save_checkpoint(&checkpoint, self.fit.steps_done(), self.file.checkpoint.keep)
    }

    /// Adds the policy, and the checksum of the run file, to a checkpoint.
    pub(super) fn completed(&self, checkpoint: Checkpoint, before: Option<u32>) -> Result<Checkpoint> {
        let checkpoint = checkpoint.under(&self.policy)?.counting(RUN_FILE, self.file.fingerprint()?.into());
        Ok(match before {
            Some(before) => checkpoint.counting(RUN_FILE_BEFORE, before.into()),
            None => checkpoint,
        })
    }

    /// Returns whether the last epochs, as many as the patience, were no better than the best before them.
    pub(super) fn is_out_of_patience(&self) -> bool {
        let epochs = self.history().epochs.len();
        match (self.file.patience, best_epoch(self.history())) {
            (Some(patience), Some(best)) => epochs - 1 - best >= patience,
            _ => false,
        }
    }

    /// Returns human-readable notes about the beginning of the run: a damaged checkpoint, outputs without a class,
    /// distinct numbers of the data that became equal, the findings of the lint.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the complete run file.
    pub fn file(&self) -> &RunFile {
        &self.file
    }

    /// Returns the plan by which the run began.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the policy by which the run began. See [`Fit::under`] for one that changes.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the network, wrapped by the plan.
    pub fn net(&self) -> &Child {
        &self.net
    }

    /// Returns the examples for training and those scored after each epoch, in the shape that the network takes: the
    /// [validation](Run::validation) examples, if the run has some, else the [test](Run::test) examples.
    pub fn data(&self) -> &Split {
        &self.data
    }

    /// Returns the standardization of the inputs, if any.
    pub fn standardization(&self) -> Option<&Standardization> {
        self.standardizations.inputs.as_ref()
    }

    /// Returns the standardization of the training targets, if any.
    pub fn target_standardization(&self) -> Option<&Standardization> {
        self.standardizations.targets.as_ref()
    }

    /// Returns the storage of each parameter, if some are stored in low precision.
    pub fn storage(&self) -> Option<&Decorated> {
        self.storage.as_ref()
    }

    /// Returns the history so far.
    pub fn history(&self) -> &History {
        self.fit.history()
    }

    /// Returns the folders of its saved faults, each of which is that of a [`SavedFault`].
    ///
    /// # Errors
    /// [`ErrorKind::Run`](precast::ErrorKind::Run) when one cannot be read.
    pub fn faults(&self) -> Result<Vec<PathBuf>> {
        Ok(SavedFault::all(self.folder.path())?.into_iter().map(|(folder, _)| folder).collect())
    }

    /// Returns the epoch with the best score, from 0, and that score.
    pub fn best(&self) -> Option<(usize, Score)> {
        best_epoch(self.history()).map(|epoch| (epoch, self.history().epochs[epoch].score))
    }

    /// Returns the maximum number of steps of the run.
    pub fn steps(&self) -> usize {
        self.file.options.steps(self.data.train.len())
    }

    /// Returns its folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// Returns the name of the measure of the scores of a run.
pub(super) fn measure(options: &FitOptions) -> &'static str {
    options.loss.as_ref().map_or("score", Loss::measure)
}

/// Computes the checksum of a policy, as a file has it.
pub(super) fn checksum_of(policy: &Policy) -> Result<u32> {
    Ok(crc32fast::hash(policy.to_yaml()?.as_bytes()))
}

/// Counter in checkpoints with the checksum of the run file.
pub(super) const RUN_FILE: &str = "checksum of the run file";
/// Counter with the checksum of the run file before a change.
pub(super) const RUN_FILE_BEFORE: &str = "checksum of the run file before";

/// Returns the epoch with the best score, from 0; the first of several. Scores of an earlier version may have another
/// measure than the last, and do not count.
fn best_epoch(history: &History) -> Option<usize> {
    let (mut best, measure) = (None::<usize>, history.measure());
    let comparable = |(_, epoch): &(usize, &Epoch)| Some(epoch.score.name()) == measure;
    for (i, epoch) in history.epochs.iter().enumerate().filter(comparable) {
        if best.is_none_or(|best| epoch.score.is_better_than(history.epochs[best].score)) {
            best = Some(i);
        }
    }
    best
}
