//! Faults of a run, saved with everything needed to run their steps again.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

use precast::{
    Child, DType, Op, Tensor,
    error::{Error, Result},
    observe::{EdgeOp, Origin, Phase, Subject},
    storage::weights,
};
use precast_base::files;
use precast_diagnose::Peaks;
use serde::{Deserialize, Serialize};

use super::folder::{Folder, read_json, write_json};
use crate::{
    data::{Batch, Split},
    training::{Fit, Step},
};

/// Folder of the faults of a run.
pub(super) const FAULTS: &str = "faults";
/// Beginning of the name of a folder of one fault, after which it has the number of its step.
const STEP: &str = "step-";
pub(super) const FAULT: &str = "fault.json";
pub(super) const BATCH: &str = "batch.safetensors";
pub(super) const CHECKPOINT: &str = "checkpoint.safetensors";

/// Maximum number of faults that a run saves, each of another place.
const MOST: usize = 8;

/// A fault of a run: the contents of `fault.json` in `faults/step-N`.
///
/// The folder also has the batch (`batch.safetensors`) and the last checkpoint before the step
/// (`checkpoint.safetensors`), from which the parameters as they were are computed; without a checkpoint, they are
/// computed from the seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SavedFault {
    /// Number of the step, from 1.
    pub step: usize,
    /// Index of its epoch, and of its batch in the epoch, from 0.
    pub epoch: usize,
    /// Index of the batch in its epoch, from 0.
    pub batch: usize,
    /// Indices of the examples of the batch among the training examples.
    pub examples: Vec<usize>,
    /// Seed of the run, which determines the order of the examples and, with the calls counted, its dropouts.
    pub seed: u64,
    /// Loss scale of the step.
    pub scale: f32,
    /// `true` when the step was taken.
    pub taken: bool,
    /// First result that was not finite.
    pub origin: Origin,
    /// Largest magnitude of each result of the step.
    pub results: Vec<SavedResult>,
    /// CRC-32 of the magnitudes of all results.
    pub checksum: u32,
    /// Number of the processes that divided the step. Results are those of the first.
    #[serde(default = "one")]
    pub ranks: usize,
    /// CRC-32 of the policy and of the run file without its data; `None` in faults of earlier versions.
    #[serde(default)]
    pub inputs: Option<[u32; 2]>,
}

fn one() -> usize {
    1
}

/// Largest magnitude of one result of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SavedResult {
    /// Phase in which it was written.
    pub phase: Phase,
    /// Path of the cell; empty for the root.
    pub cell: String,
    /// Operation that wrote it.
    pub op: EdgeOp,
    /// Dtype of its numbers.
    pub dtype: DType,
    /// Largest magnitude; `None` if it is not finite.
    pub largest: Option<f32>,
}

/// Returns the magnitudes of the last step, with their checksum. Those of low copies of parameters may be those of an
/// earlier step, so they are left out.
pub(super) fn last_step(peaks: Vec<Peaks>) -> (Vec<SavedResult>, u32) {
    let mut hasher = crc32fast::Hasher::new();
    let saved = |result: Peaks| {
        let largest = result.peaks.last().copied().unwrap_or(0.0);
        hasher.update(&largest.to_bits().to_le_bytes());
        let Peaks { phase, cell, op, dtype, .. } = result;
        SavedResult { phase, cell, op, dtype, largest: Some(largest).filter(|x| x.is_finite()) }
    };
    let is_copy = |of: &Peaks| matches!(of.subject, Subject::Param(_)) && of.op == EdgeOp::Op(Op::Cast);
    let results = peaks.into_iter().filter(|result| !is_copy(result)).map(saved).collect();
    (results, hasher.finalize())
}

impl SavedFault {
    /// Reads a fault from its folder.
    ///
    /// # Errors
    /// [`ErrorKind::Run`](precast::ErrorKind::Run) when there is none, and when it cannot be read.
    pub fn load(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        if !folder.join(FAULT).is_file() {
            return Err(SavedFault::missing(folder));
        }
        read_json(&folder.join(FAULT))
    }

    /// Returns the error for a folder without a fault: what it is, and the faults of its run, or the runs next to it.
    fn missing(folder: &Path) -> Error {
        let listed = |names: Vec<String>| names.join(", ");
        let met = match (folder.is_dir(), folder.exists()) {
            (true, _) => format!("there is no fault in `{}`", folder.display()),
            (false, true) => format!("`{}` is a file", folder.display()),
            (false, false) => format!("there is no folder `{}`", folder.display()),
        };
        if let Some(run) = folder.ancestors().take(3).find(|folder| Folder::is_of_run(folder)) {
            let known = SavedFault::all(run).unwrap_or_default();
            let name = |folder: &Path| folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            return Error::run(match known.len() {
                0 => format!("{met}; the run `{}` has no fault", run.display()),
                _ => {
                    let known = known.iter().map(|(folder, _)| format!("`{}`", name(folder)));
                    format!("{met}; the faults of the run are {}", listed(known.collect()))
                }
            });
        }
        let expected = "expected the folder of a run, or of one of its faults, `runs/NAME/faults/step-N`";
        let near = folder.ancestors().take(2).flat_map(|near| [near.to_path_buf(), near.join("runs")]);
        let runs = near.map(|near| runs_in(&near)).find(|runs| !runs.is_empty()).unwrap_or_default();
        let runs: Vec<String> = runs.iter().map(|run| format!("`{}`", run.display())).collect();
        Error::run(match runs.len() {
            0 => format!("{met}; {expected}"),
            _ => format!("{met}; {expected}; there are the runs {}", listed(runs)),
        })
    }

    /// Returns whether a fault began in the same place as this one.
    pub(super) fn is_of_same_place(&self, origin: &Origin) -> bool {
        let place = |of: &Origin| (of.edge.phase, of.edge.cell.clone(), of.edge.op, of.edge.subject.clone());
        place(&self.origin) == place(origin)
    }

    /// Rejects a description that is not the one that the run saved in this folder. `steps` are those of the run.
    pub(super) fn check(&self, folder: &Path, seed: u64, steps: &[Step]) -> Result<()> {
        let wrong = |name: &str, met: String, expected: String| {
            let words = format!("`{name}` is {met}, expected {expected}: the file is not the one that the run saved");
            Err(Error::run(words).in_file(folder.join(FAULT).display()))
        };
        let of_folder = folder.file_name().and_then(|name| name.to_str()?.strip_prefix("step-")?.parse::<usize>().ok());
        if let Some(step) = of_folder.filter(|step| *step != self.step) {
            return wrong("step", self.step.to_string(), step.to_string());
        }
        if self.seed != seed {
            return wrong("seed", self.seed.to_string(), seed.to_string());
        }
        if self.scale.is_nan() || self.scale <= 0.0 {
            return wrong("scale", self.scale.to_string(), "a positive number".into());
        }
        // The metrics end earlier where a run was resumed from a checkpoint before them.
        let Some(step) = self.step.checked_sub(1).and_then(|at| steps.get(at)) else { return Ok(()) };
        if self.scale != step.scale {
            return wrong("scale", self.scale.to_string(), step.scale.to_string());
        }
        if self.epoch != step.epoch {
            return wrong("epoch", self.epoch.to_string(), step.epoch.to_string());
        }
        Ok(())
    }

    /// Saves the fault of the last step of a run, unless one of the same place is saved. Returns its folder.
    pub(super) fn save(
        run: &Path,
        fit: &Fit,
        net: &Child,
        data: &Split,
        ranks: usize,
        inputs: impl FnOnce() -> Result<[u32; 2]>,
        checkpoint: impl FnOnce() -> Result<Option<PathBuf>>,
    ) -> Result<Option<PathBuf>> {
        let Some((step, origin)) = fit.history().steps.last().and_then(|step| Some((step, step.fault()?))) else {
            return Ok(None);
        };
        let known = SavedFault::all(run)?;
        if known.len() >= MOST || known.iter().any(|(_, fault)| fault.is_of_same_place(origin)) {
            return Ok(None);
        }
        let (batch, examples) = fit.last_batch(data);
        let (results, checksum) = last_step(fit.monitor().peaks(net));
        let saved = SavedFault {
            step: fit.steps_done(),
            epoch: step.epoch,
            batch,
            examples,
            seed: fit.seed(),
            scale: step.scale,
            taken: !step.is_skipped(),
            origin: origin.clone(),
            results,
            checksum,
            ranks,
            inputs: Some(inputs()?),
        };
        let faults = run.join(FAULTS);
        fs::create_dir_all(&faults).map_err(|e| Error::io(&faults, &e))?;
        let folder = faults.join(format!("{STEP}{}", saved.step));
        let tensors = fit.tensors_of_last(data)?;
        files::replace_folder(&folder, |folder| {
            weights::write(folder.join(BATCH), named(tensors))?;
            if let Some(from) = checkpoint()? {
                let to = folder.join(CHECKPOINT);
                if fs::hard_link(&from, &to).is_err() {
                    files::replace(&to, &files::read(&from)?)?;
                }
            }
            write_json(&folder.join(FAULT), &saved)
        })?;
        Ok(Some(folder))
    }

    /// Reads all faults of a run from its folder, in the order of their steps, each with its own folder.
    ///
    /// # Errors
    /// Those of [`SavedFault::load`], except that a run without faults has none.
    pub fn all(run: &Path) -> Result<Vec<(PathBuf, SavedFault)>> {
        let Ok(entries) = fs::read_dir(run.join(FAULTS)) else { return Ok(Vec::new()) };
        let mut folders: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        let is_whole = |name: &OsStr| name.to_string_lossy().starts_with(STEP);
        folders.retain(|folder| folder.file_name().is_some_and(is_whole) && folder.join(FAULT).is_file());
        let faults = folders.into_iter().map(|folder| Ok((folder.clone(), SavedFault::load(&folder)?)));
        let mut faults = faults.collect::<Result<Vec<_>>>()?;
        faults.sort_by_key(|(_, fault)| fault.step);
        Ok(faults)
    }
}

/// Returns the folders of runs in a folder, by name.
fn runs_in(folder: &Path) -> Vec<PathBuf> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut runs: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .map(|path| path.strip_prefix(".").map_or(path.clone(), Path::to_path_buf))
        .filter(|run| Folder::is_of_run(run))
        .collect();
    runs.sort();
    runs
}

/// Returns the tensors of a batch with their names in a file.
fn named(batch: Batch) -> Vec<(String, Tensor)> {
    let further = batch.further.into_iter().enumerate().map(|(i, x)| (name_of_further(i), x));
    [("x".into(), batch.x), ("y".into(), batch.y)].into_iter().chain(further).collect()
}

/// Returns the name of a further input of a batch in a file.
pub(super) fn name_of_further(i: usize) -> String {
    format!("x{}", i + 1)
}
