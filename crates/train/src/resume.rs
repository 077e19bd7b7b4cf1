//! Resuming a run from its folder, also with more epochs or another learning rate.

use std::path::Path;

use precast::{
    error::{Error, Result},
    io::models::Model,
};

use super::{
    Run, RunFile,
    folder::Folder,
    parts::Read,
    prepared::{Prepared, prepared},
    run::{RUN_FILE, RUN_FILE_BEFORE, measure},
};
use crate::training::{
    Fit,
    fit::{EPOCH, STEPS},
};

/// Changes of a run that is resumed. Default: none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Change {
    /// The number of epochs in all.
    pub epochs: Option<usize>,
    /// The full learning rate from here on.
    pub lr: Option<f64>,
}

impl Change {
    /// Raises the number of epochs, which counts those that are done.
    #[must_use]
    pub fn epochs(mut self, epochs: usize) -> Self {
        self.epochs = Some(epochs);
        self
    }

    /// Sets the full learning rate from here on.
    #[must_use]
    pub fn lr(mut self, lr: f64) -> Self {
        self.lr = Some(lr);
        self
    }

    /// Returns the changed run file.
    fn of(self, file: &RunFile) -> Result<RunFile> {
        let (mut file, epochs) = (file.clone(), file.options.epochs);
        if let Some(fewer) = self.epochs.filter(|more| *more < epochs) {
            return Err(Error::run(format!("the run has {epochs} epochs, got {fewer}; allowed: more")));
        }
        if let Some(lr) = self.lr.filter(|lr| !(lr.is_finite() && *lr > 0.0)) {
            return Err(Error::run(format!("`lr` is {lr}; allowed: a finite number above 0")));
        }
        file.options.epochs = self.epochs.unwrap_or(epochs);
        file.options.lr = self.lr.unwrap_or(file.options.lr);
        Ok(file)
    }
}

impl Run {
    /// Resumes the run of a folder from its last checkpoint. `model` is that of [`RunFile::read_model`] of the
    /// [folder's](RunFile::of_folder) run file, or the one built in code.
    ///
    /// # Errors
    /// [`ErrorKind::Run`](precast::ErrorKind::Run) when the folder has no run, when another process is training in it,
    /// and when the policy, the model or the data has changed since the run began;
    /// [`ErrorKind::Weights`](precast::ErrorKind::Weights) when no checkpoint can be read or it does not fit the network.
    pub fn resume(folder: impl AsRef<Path>, model: Model) -> Result<Self> {
        Run::resume_with(folder, model, Change::default())
    }

    /// Resumes a run as [`resume`](Run::resume) does, with more epochs or another learning rate from here on, which are
    /// written to its run file. A run that has ended continues. A schedule covers the new number of epochs.
    ///
    /// ```no_run
    /// use precast_train::{Change, Run, RunFile};
    /// let model = RunFile::of_folder("runs/o2")?.read_model()?;
    /// let ended = Run::resume_with("runs/o2", model, Change::default().epochs(60).lr(1e-4))?.train()?;
    /// # Ok::<(), precast::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`resume`](Run::resume); [`ErrorKind::Run`](precast::ErrorKind::Run) for fewer epochs, for a learning rate that
    /// is not a finite number above 0, and for a run that has stalled or is out of patience.
    pub fn resume_with(folder: impl AsRef<Path>, model: Model, change: Change) -> Result<Self> {
        let folder = Folder::open(folder.as_ref())?;
        Folder::check_files(folder.path())?;
        let before = RunFile::of_folder(folder.path())?;
        let file = change.of(&before).map_err(|e| e.in_file(folder.path().display()))?;
        let about = Folder::about(folder.path())?;
        about.check_pixels(&file.data).map_err(|e| e.in_file(folder.path().display()))?;
        let as_begun = about.multiply_as_begun();
        let policy = file.read_policy()?;
        let Read { data, held_out, standardizations, notes: of_data, .. } =
            file.read_data_of(folder.path(), model.input.as_deref())?;
        let policy_text = policy.to_yaml()?;
        if folder.checkpoints()?.is_empty() && !folder.is_over() {
            file.load_weights(&model.net)?;
        }
        let Prepared { mut net, plan, storage, options, mut notes } = prepared(&file, model, &policy, &data)?;
        notes.extend(as_begun.into_iter().chain(of_data));
        let fit = match folder.last_checkpoint(&mut notes)? {
            Some(checkpoint) => {
                let fingerprint = u64::from(before.fingerprint()?);
                let known = [RUN_FILE, RUN_FILE_BEFORE].map(|name| checkpoint.count(name));
                if known[0].is_some() && !known.contains(&Some(fingerprint)) {
                    let words = "`run.yaml` was changed after the last checkpoint. Take the change back; `--epochs N` and \
                                 `--lr X` with `--resume` change the number of epochs and the learning rate, any other \
                                 change needs a new run, and only the paths of moved data may be edited";
                    return Err(Error::run(words).in_file(folder.path().display()));
                }
                // Texts are compared, because rules record the file they were written in, which now differs.
                if checkpoint.policy()?.map(|kept| kept.to_yaml()).transpose()?.is_some_and(|kept| kept != policy_text)
                {
                    let words = "`policy.yaml` is not the policy of the checkpoint; a run keeps its policy to the end";
                    return Err(Error::run(words).in_file(folder.path().display()));
                }
                let steps = checkpoint.count(STEPS).unwrap_or(0);
                let history = folder.history(steps, checkpoint.count(EPOCH).unwrap_or(0))?;
                Fit::resume(&mut net, &options, &checkpoint, history)?
            }
            None if folder.is_over() => {
                let words = "the run is over, and its checkpoints are gone; more of it needs a new run";
                return Err(Error::run(words).in_file(folder.path().display()));
            }
            // Stopped before its first checkpoint.
            None => {
                notes.push("there is no checkpoint, so the run begins again".into());
                folder.history(0, 0)?;
                Fit::new(&net, &options)?
            }
        };
        let fit = fit
            .standardized_targets(standardizations.targets.clone())
            .measured_by(measure(&options), held_out.is_some())
            .under(&net, &policy)?;
        let ends = policy.ends();
        let has_changed = !fit.history().raised.is_empty() || ends.iter().any(|end| *end <= fit.steps_done());
        notes.extend(folder.restore_policy_now(fit.policy().filter(|_| has_changed).as_ref())?);
        let run = Run { file, policy, plan, storage, net, data, held_out, fit, folder, standardizations, notes, ends };
        run.folder.save_table(run.history())?;
        run.save_best()?;
        if change != Change::default() {
            run.check_continues().map_err(|e| e.in_file(run.folder().display()))?;
            // The checkpoint first: a process that ends in between leaves a run that can be resumed as it was.
            run.save_checkpoint_after(Some(before.fingerprint()?))?;
            run.folder.save_run_file(&run.file)?;
        }
        Ok(run)
    }

    /// Refuses a change of a run that would end at once.
    fn check_continues(&self) -> Result<()> {
        if self.fit.has_stalled() && self.fit.is_over() {
            return Err(Error::run("the run has stalled; a change of its options makes a new run"));
        }
        if self.is_out_of_patience() {
            return Err(Error::run("the run is out of patience, so it would end at once; a new run needs more of it"));
        }
        if self.fit.is_over() {
            return Err(Error::run(
                "the run has ended, with all its epochs, so the change would have no effect; more epochs continue it",
            ));
        }
        Ok(())
    }
}
