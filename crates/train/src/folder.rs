//! Contents and crash-safe layout of the run folder.

use std::{
    collections::BTreeMap,
    fs::{self, File, TryLockError},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
};

use precast::{
    Checkpoint, Child, Policy,
    error::{Error, Result},
    io::json as json_file,
    storage::weights,
};
use precast_base::{files, printable};
use precast_diagnose::Headroom;
use precast_graph::onnx::OnnxModel;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    RunFile,
    about::About,
    metrics::{Line, Memory, csv_of, read_metrics},
    model_source::OnnxSource,
    standardizations::Standardizations,
};
use crate::training::{Event, History, Tested, fit::with_raised};

pub(super) const RUN: &str = "run.yaml";
const MODEL: &str = "model.yaml";
const ONNX: &str = "model.onnx";
pub(super) const POLICY: &str = "policy.yaml";
pub(super) const POLICY_NOW: &str = "policy-now.yaml";
const PLAN: &str = "plan.txt";
pub(super) const ABOUT: &str = "about.json";
pub(super) const METRICS: &str = "metrics.jsonl";
const TABLE: &str = "metrics.csv";
const STANDARDIZATION: &str = "standardization.json";
const BEST: &str = "best.safetensors";
const LAST: &str = "last.safetensors";
pub(super) const HEADROOM: &str = "headroom.json";
const LOCK: &str = ".lock";
/// The most bytes of a file of JSON or text in the folder. A model with thousands of data files has a checksum for each.
pub(super) const MOST_BYTES: usize = 1 << 26;

/// The folder of a run, locked against other writers while this value lives.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    metrics: File,
    /// Lock on the folder. The system releases it whenever and however the process ends.
    _lock: File,
}

/// Computes the CRC-32 of a file, which may be larger than memory.
fn checksum(path: &Path) -> io::Result<u32> {
    let (mut file, mut hasher) = (File::open(path)?, crc32fast::Hasher::new());
    let mut bytes = vec![0; 1 << 16];
    loop {
        match file.read(&mut bytes)? {
            0 => return Ok(hasher.finalize()),
            met => hasher.update(&bytes[..met]),
        }
    }
}

impl Folder {
    /// Creates the folder, or takes over an empty one.
    ///
    /// # Errors
    /// [`ErrorKind::Run`](precast::ErrorKind::Run) when it has files, [`ErrorKind::Io`](precast::ErrorKind::Io) when it
    /// cannot be created.
    pub fn create(path: &Path) -> Result<Self> {
        fs::create_dir_all(path).map_err(|e| Error::io(path, &e).context("the folder cannot be made"))?;
        Folder::check_free(path)?;
        Folder::locked(path)
    }

    /// Rejects a folder that has files already; one that is missing is free.
    pub fn check_free(path: &Path) -> Result<()> {
        if !path.exists() {
            return Ok(());
        }
        let shown = path.display();
        let entries =
            fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>).map_err(|e| Error::io(path, &e))?;
        // Files written before the run file remain from a run killed while it began.
        let of_a_run = |entry: &fs::DirEntry| {
            let (name, empty) = (entry.file_name(), entry.metadata().is_ok_and(|met| met.len() == 0));
            match name.to_str() {
                Some(METRICS) => empty,
                Some(name) => {
                    [LOCK, POLICY, PLAN, ABOUT, STANDARDIZATION, MODEL].contains(&name) || name.starts_with(".precast-")
                }
                None => false,
            }
        };
        let taken = !entries.iter().all(of_a_run);
        if Folder::is_of_run(path) {
            let words = format!(
                "the folder has a run already; `--resume {shown}` continues it, a new one needs another folder"
            );
            return Err(Error::run(words).context(shown));
        }
        if taken {
            return Err(
                Error::run("the folder has files that are of no run; a run needs a folder of its own").context(shown)
            );
        }
        Ok(())
    }

    /// Opens the folder of an existing run.
    ///
    /// # Errors
    /// [`ErrorKind::Run`](precast::ErrorKind::Run) when it has none, or another process is training in it.
    pub fn open(path: &Path) -> Result<Self> {
        Folder::check(path)?;
        Folder::locked(path)
    }

    /// Rejects a folder without a run.
    pub fn check(path: &Path) -> Result<()> {
        if path.join(RUN).is_file() {
            return Ok(());
        }
        let words = match fs::read_dir(path) {
            _ if path.is_file() => "a file; expected the folder of a run, such as runs/o2".to_string(),
            Err(_) => "there is no such folder; expected that of a run, such as runs/o2".to_string(),
            Ok(entries) => {
                let entries = entries.flatten().map(|entry| entry.path());
                let mut runs: Vec<String> = entries
                    .filter(|entry| entry.join(RUN).is_file())
                    .map(|run| format!("`{}`", printable(&run.display().to_string())))
                    .collect();
                runs.sort();
                let near = if runs.is_empty() { String::new() } else { format!("; it contains {}", runs.join(", ")) };
                format!("there is no run in this folder: `{RUN}` is missing{near}")
            }
        };
        Err(Error::run(words).in_file(path.display()))
    }

    /// Returns whether a folder is that of a run, and has more of it than a run file.
    pub fn is_of_run(path: &Path) -> bool {
        path.join(RUN).is_file() && path.join(ABOUT).is_file()
    }

    fn locked(path: &Path) -> Result<Self> {
        let open = |name: &str| {
            let file = path.join(name);
            File::options().create(true).append(true).open(&file).map_err(|e| Error::io(&file, &e))
        };
        let lock = open(LOCK)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::run("another process trains in this folder").in_file(path.display()));
            }
            Err(TryLockError::Error(e)) => return Err(Error::io(&path.join(LOCK), &e)),
        }
        Ok(Folder { path: path.to_path_buf(), metrics: open(METRICS)?, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the run file of a folder. Its model and policy are the copies in the folder.
    pub fn run_file(path: &Path) -> Result<RunFile> {
        Folder::check(path)?;
        RunFile::load(path.join(RUN))
    }

    /// Writes the files that define the run. The run file is last, so that a folder with a run file is complete.
    pub fn write_all(
        &self,
        file: &RunFile,
        model: Option<&str>,
        policy: &Policy,
        plan: &str,
        about: &About,
        standardizations: &Standardizations,
    ) -> Result<()> {
        let put = |name: &str, text: &str| files::replace_within(self.path.join(name), text.as_bytes(), MOST_BYTES);
        // That of a run that was killed as it began.
        files::remove(&self.path.join(STANDARDIZATION))?;
        let policy = policy.to_yaml()?;
        put(PLAN, plan)?;
        let is_standardized = *standardizations != Standardizations::default();
        let standardizations = is_standardized.then(|| json(standardizations)).transpose()?;
        let mut about = about.clone();
        for (name, text) in [(STANDARDIZATION, standardizations.as_deref()), (MODEL, model), (POLICY, Some(&*policy))] {
            if let Some(text) = text {
                about.checksums.insert(name.into(), crc32fast::hash(text.as_bytes()));
                put(name, text)?;
            }
        }
        let model = match (model, file.model.onnx()) {
            (Some(_), _) => MODEL.into(),
            (None, Some(source)) => self.copy_onnx(&file.folder, source, &mut about.checksums)?.into(),
            (None, None) => file.model.clone(),
        };
        let run = RunFile { model, policy: POLICY.into(), ..file.clone() }.to_yaml()?;
        about.settings = Some(RunFile::parse(&run, RUN)?.settings()?);
        put(ABOUT, &json(&about)?)?;
        put(RUN, &run)
    }

    /// Writes a changed run file.
    pub fn save_run_file(&self, file: &RunFile) -> Result<()> {
        files::replace(self.path.join(RUN), file.to_yaml()?.as_bytes())
    }

    /// Copies an ONNX model and its data files, and returns the source of the copy.
    fn copy_onnx(
        &self,
        folder: &Path,
        source: OnnxSource,
        checksums: &mut BTreeMap<String, u32>,
    ) -> Result<OnnxSource> {
        let from = folder.join(&source.onnx);
        let copied = OnnxModel::open(&from)?;
        copied.copy(self.path.join(ONNX), false, &mut |_| ()).map_err(|error| error.in_file(from.display()))?;
        for name in copied.data_files()?.into_iter().chain([ONNX.to_string()]) {
            let file = self.path.join(&name);
            checksums.insert(name, checksum(&file).map_err(|error| Error::io(&file, &error))?);
        }
        Ok(OnnxSource { onnx: ONNX.into(), ..source })
    }

    /// Reads the provenance of the run.
    pub fn about(path: &Path) -> Result<About> {
        read_json(&path.join(ABOUT))
    }

    /// Rejects files that changed since the run began.
    pub fn check_files(path: &Path) -> Result<()> {
        for (name, kept) in Folder::about(path)?.checksums {
            let wrong = match checksum(&path.join(&name)) {
                Ok(met) if met == kept => continue,
                Ok(_) => "is not the one with which the run began",
                Err(_) => "is missing",
            };
            let words = format!("`{name}` {wrong}; a run keeps it to the end, and a change makes a new run");
            return Err(Error::run(words).in_file(path.display()));
        }
        Ok(())
    }

    /// Rejects the files of a run's network if they changed since the run began: those that [`check_files`](Folder::check_files)
    /// looks at, the run file, and the policy of the next step.
    pub fn check_network(path: &Path, file: &RunFile) -> Result<()> {
        Folder::check_files(path)?;
        let wrong = |words: &str| Err(Error::run(words).in_file(path.display()));
        let settings = Folder::about(path)?.settings;
        if settings.is_some_and(|kept| file.settings().ok() != Some(kept)) {
            return wrong(
                "`run.yaml` was changed after the run began; only the paths of moved data may be edited, and any other \
                 change needs a new run",
            );
        }
        let (policy, now) = (file.read_policy()?, path.join(POLICY_NOW));
        let changes = !policy.ends().is_empty() || policy.rules.iter().any(|rule| rule.raise_after_stall);
        if !changes && !now.is_file() {
            return Ok(());
        }
        let (history, _) = read_metrics(&path.join(METRICS), u64::MAX, u64::MAX)?;
        let has_changed = !history.raised.is_empty() || !history.ended.is_empty();
        if has_changed && !now.is_file() {
            return wrong(
                "`policy-now.yaml` is missing, the policy of the next step; `train --resume` writes it again",
            );
        }
        if !now.is_file() {
            return Ok(());
        }
        // The file may be one change behind the metrics.
        let (met, mut policy) = (files::read_text(&now, MOST_BYTES)?, policy);
        let mut raised = history.raised.iter();
        loop {
            for steps in policy.ends().into_iter().chain([0]) {
                if policy.after_steps(steps).to_yaml()? == met {
                    return Ok(());
                }
            }
            match raised.next() {
                Some(next) => policy = with_raised(&policy, next)?,
                None => break,
            }
        }
        wrong("`policy-now.yaml` is not a policy that the run had; `train --resume` writes it again")
    }

    /// Reads the standardization of the run's examples.
    pub fn standardizations(path: &Path) -> Result<Standardizations> {
        let file = path.join(STANDARDIZATION);
        if file.is_file() { read_json(&file) } else { Ok(Standardizations::default()) }
    }

    /// Rejects data that changed since the run in a folder began.
    pub fn check_data(path: &Path, now: &About) -> Result<()> {
        let then = Folder::about(path)?;
        let of = |about: &About| {
            let examples = (about.train_examples, about.validation_examples, about.test_examples);
            (examples, about.shape.clone(), about.data_checksum)
        };
        if of(&then) == of(now) {
            return Ok(());
        }
        let words = |about: &About| {
            let About { train_examples, validation_examples, test_examples, shape, data_checksum, .. } = about;
            let validation = validation_examples.map_or(String::new(), |examples| format!(", {examples}"));
            format!(
                "{train_examples}{validation} and {test_examples} examples of shape {shape:?} with checksum {data_checksum:08x}"
            )
        };
        Err(Error::run(format!(
            "the data has changed: the run began with {}, and now there are {}; it would not continue as it began",
            words(&then),
            words(now)
        ))
        .in_file(path.display()))
    }

    /// Appends a line to the metrics.
    pub fn note(&self, event: &Event<'_>) -> Result<()> {
        self.put_line(&match event {
            Event::Step(step) => Line::Step((*step).clone()),
            Event::Epoch(epoch) => Line::Epoch((*epoch).clone()),
            Event::Raised(raised) => Line::Raised((*raised).clone()),
            Event::Ended(ended) => Line::Ended((*ended).clone()),
        })
    }

    /// Appends a line to the metrics, after the first step.
    pub fn note_memory(&self, history: &History) -> Result<()> {
        let History { tape_bytes, param_bytes, casts, .. } = *history;
        self.put_line(&Line::Memory(Memory {
            activation_bytes: tape_bytes,
            parameter_bytes: param_bytes,
            casts_per_step: casts,
        }))
    }

    /// Appends the score on the test examples, at the end of a run with validation examples.
    pub fn note_test(&self, test: &Tested) -> Result<()> {
        self.put_line(&Line::Test(test.clone()))
    }

    /// Writes the table of the epochs.
    pub fn save_table(&self, history: &History) -> Result<()> {
        files::replace(self.path.join(TABLE), csv_of(history).as_bytes())
    }

    fn put_line(&self, line: &Line) -> Result<()> {
        let line = format!("{}\n", json(line)?);
        (&self.metrics).write_all(line.as_bytes()).map_err(|e| Error::io(&self.path.join(METRICS), &e))
    }

    /// Reads the metrics up to the given number of steps and epochs. Later lines, and a truncated last line, are
    /// removed from the file.
    pub fn history(&self, steps: u64, epochs: u64) -> Result<History> {
        let (history, text) = read_metrics(&self.path.join(METRICS), steps, epochs)?;
        if (history.steps.len() as u64) < steps {
            let met = history.steps.len();
            let words = format!("`{METRICS}` has {met} steps, and the checkpoint was made after {steps}");
            return Err(Error::run(words).in_file(self.path.display()));
        }
        let file = self.path.join(METRICS);
        let whole = fs::metadata(&file).map_err(|e| Error::io(&file, &e))?.len();
        if whole > text as u64 {
            self.metrics.set_len(text as u64).map_err(|e| Error::io(&file, &e))?;
        }
        Ok(history)
    }

    /// Writes a checkpoint once its metrics are on disk, and removes the oldest checkpoints.
    pub fn save_checkpoint(&self, checkpoint: &Checkpoint, steps: usize, keep: usize) -> Result<()> {
        self.metrics.sync_data().map_err(|e| Error::io(&self.path.join(METRICS), &e))?;
        checkpoint.save(self.path.join(name_of_checkpoint(steps)))?;
        let all = self.checkpoints()?;
        for old in all.iter().rev().skip(keep) {
            fs::remove_file(old).map_err(|e| Error::io(old, &e))?;
        }
        Ok(())
    }

    /// Loads the last readable checkpoint, adding a note for each unreadable one; `None` if the run has made none yet.
    ///
    /// # Errors
    /// [`ErrorKind::Weights`](precast::ErrorKind::Weights) when checkpoints exist but none can be read.
    pub fn last_checkpoint(&self, notes: &mut Vec<String>) -> Result<Option<Checkpoint>> {
        let mut first = None;
        for path in self.checkpoints()?.iter().rev() {
            match Checkpoint::load(path) {
                Ok(checkpoint) => return Ok(Some(checkpoint)),
                Err(error) => {
                    notes.push(format!("{error}; the checkpoint before it is taken"));
                    first.get_or_insert(error);
                }
            }
        }
        let none_whole = |error: Error| error.context("no checkpoint is whole, so a new run is needed");
        first.map_or(Ok(None), |error| Err(none_whole(error)))
    }

    /// Lists the checkpoint files, oldest first.
    pub fn checkpoints(&self) -> Result<Vec<PathBuf>> {
        let entries = fs::read_dir(&self.path).map_err(|e| Error::io(&self.path, &e))?;
        let mut found = entries.map(|entry| entry.map(|e| e.path())).collect::<io::Result<Vec<_>>>();
        if let Ok(found) = &mut found {
            let name = |path: &PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned());
            found.retain(|path| {
                name(path).is_some_and(|name| name.starts_with("checkpoint-") && name.ends_with(".safetensors"))
            });
            found.sort();
        }
        found.map_err(|e| Error::io(&self.path, &e))
    }

    /// Writes the policy of the next step again if its file is another one, and returns a note. It is the one of the
    /// checkpoint, unless the file was changed, or was written after the checkpoint.
    pub fn restore_policy_now(&self, policy: Option<&Policy>) -> Result<Option<String>> {
        let file = self.path.join(POLICY_NOW);
        let Some(policy) = policy else {
            return match fs::remove_file(&file) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(Error::io(&file, &error)),
                Ok(()) => Ok(Some(format!("`{POLICY_NOW}` is removed: at the checkpoint, no rule has changed"))),
            };
        };
        let met = match fs::read(&file) {
            Ok(text) if text == policy.to_yaml()?.as_bytes() => return Ok(None),
            Ok(_) => "was not the policy of the checkpoint",
            Err(_) => "was missing",
        };
        self.save_policy_now(policy)?;
        Ok(Some(format!("`{POLICY_NOW}` {met}, and is written again")))
    }

    /// Writes the policy of the next step, after its rules have changed.
    pub fn save_policy_now(&self, policy: &Policy) -> Result<()> {
        files::replace(self.path.join(POLICY_NOW), policy.to_yaml()?.as_bytes())
    }

    /// Writes the range of the results of each cell in the last steps.
    pub fn save_headroom(&self, headroom: &[Headroom]) -> Result<()> {
        write_json(&self.path.join(HEADROOM), &headroom)
    }

    /// Writes the weights with the best score so far.
    pub fn save_best(&self, net: &Child) -> Result<()> {
        weights::save_of_run(net, &self.path.join(BEST))
    }

    /// Writes the final weights.
    pub fn save_last(&self, net: &Child) -> Result<()> {
        weights::save_of_run(net, &self.path.join(LAST))
    }

    /// Returns whether the run is finished.
    pub fn is_over(&self) -> bool {
        self.path.join(LAST).is_file()
    }

    /// Returns the path of the weights for prediction, which are the best ones.
    pub fn best(path: &Path) -> PathBuf {
        path.join(BEST)
    }
}

/// Reads a file of JSON.
pub(super) fn read_json<T: DeserializeOwned>(file: &Path) -> Result<T> {
    let text = files::read_text(file, MOST_BYTES)?;
    json_file::read(text.as_bytes()).map_err(|e| Error::run(e.to_string()).in_file(file.display()))
}

/// Writes a file of JSON that can be read again.
pub(super) fn write_json(file: &Path, value: &impl Serialize) -> Result<()> {
    files::replace_within(file, json(value)?.as_bytes(), MOST_BYTES)
}

fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Error::run(error.to_string()))
}

/// Returns the name of the checkpoint after so many steps.
pub(super) fn name_of_checkpoint(steps: usize) -> String {
    format!("checkpoint-{steps:09}.safetensors")
}
