//! Steps of a run, run again to look at every number of them.

use std::path::{Path, PathBuf};

use precast::{
    __train::STEPS,
    Child, Policy,
    data::Split,
    diagnose::{Cure, Record, recorded},
    error::{Error, Result},
    io::models::Model,
    plan::undo,
    policy::LossScaleSpec,
    train::{Checkpoint, Fit, FitOptions, History, Raised, Step},
};

use super::{
    RunFile, SavedFault,
    faults::{self, CHECKPOINT},
    folder::Folder,
    parts::Read,
    records::history_of,
    run::{Prepared, prepared},
};

/// A step of a run, run again from a saved fault: with the same parameters, the same batch and the same dropouts, so
/// that every number is the same, bit for bit.
///
/// It begins at the last checkpoint before the fault, and takes the steps between them again.
#[derive(Debug)]
pub struct Replay {
    fault: SavedFault,
    policy: Policy,
    options: FitOptions,
    net: Child,
    data: Split,
    /// State before the step.
    before: Checkpoint,
    /// First finite loss of the run; infinite if there is none.
    first_loss: f64,
    /// `true` when an earlier step was taken although a number was not finite.
    follows_taken: bool,
    /// The step in f32, once it has been run, with the change that makes it so.
    in_f32: Option<(Cure, Replayed)>,
}

/// Factor between a loss that has diverged and the first one.
const DIVERGED: f64 = 100.0;

/// A step that was run again.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Replayed {
    /// The step.
    pub step: Step,
    /// Every number that it rounded.
    pub record: Record,
    /// `true` when the largest magnitude of every result has the same bits as in the run.
    pub is_same: bool,
}

impl Replay {
    /// Takes the steps of a run up to a saved fault, which is in `faults/step-N` of the folder of the run. `model` is
    /// that of [`RunFile::read_model`] of the run's folder, or the one built in code.
    ///
    /// # Errors
    /// [`ErrorKind::Run`](precast::ErrorKind::Run) when there is no fault or no run, and when the data has changed; the
    /// errors of the model and the data.
    pub fn open(folder: impl AsRef<Path>, model: Model) -> Result<Self> {
        let folder = folder.as_ref();
        let fault = SavedFault::load(folder)?;
        let run = Replay::run_of(folder)?;
        Folder::check_files(&run)?;
        let file = RunFile::of_folder(&run)?;
        let policy = file.read_policy()?;
        let Read { data, shape, standardizations, .. } = file.read_data(model.input.as_deref())?;
        Folder::check_data_of(&run, &file, &data, &shape)?;
        let Prepared { mut net, options, .. } = prepared(&file, model, &policy, &data)?;
        let checkpoint = folder.join(CHECKPOINT);
        let history = history_of(&run)?;
        let fit = match checkpoint.is_file() {
            true => {
                let checkpoint = Checkpoint::load(checkpoint)?;
                let mut before = History::default();
                let is_before = |raised: &&Raised| checkpoint.count(STEPS).is_some_and(|at| raised.step as u64 <= at);
                before.raised = history.raised.iter().filter(is_before).cloned().collect();
                Fit::resume(&mut net, &options, &checkpoint, before)?
            }
            false => Fit::new(&net, &options)?,
        };
        let mut fit = fit.standardized_targets(standardizations.targets).under(&net, &policy)?;
        while fit.steps_done() + 1 < fault.step {
            if fit.advance(&mut net, &data)?.is_none() {
                return Err(Error::run("the run ends before the fault").context(folder.display()));
            }
        }
        fit.finish_epoch(&mut net, &data)?;
        let (before, policy) = (fit.checkpoint(&net), fit.policy().unwrap_or(policy));
        let first_loss = history.steps.iter().map(|step| step.loss).find(|loss| loss.is_finite());
        let first_loss = first_loss.unwrap_or(f64::INFINITY);
        let follows_taken = history.swallowed().any(|(at, _)| at + 1 < fault.step);
        Ok(Replay { fault, policy, options, net, data, before, first_loss, follows_taken, in_f32: None })
    }

    /// Returns the folder of the run with the fault in a folder.
    ///
    /// # Errors
    /// [`ErrorKind::Run`](precast::ErrorKind::Run) when the folder is not inside that of a run.
    pub fn run_of(folder: &Path) -> Result<PathBuf> {
        let folder = std::path::absolute(folder).map_err(|e| Error::io(folder, &e))?;
        folder.parent().and_then(Path::parent).map(Path::to_path_buf).ok_or_else(|| {
            Error::run("expected the folder of a fault, `runs/NAME/faults/step-N`").context(folder.display())
        })
    }

    /// Returns the saved fault.
    pub fn fault(&self) -> &SavedFault {
        &self.fault
    }

    /// Runs the step again as it was.
    ///
    /// # Errors
    /// Those of the network.
    pub fn run(&mut self) -> Result<Replayed> {
        self.run_with(&Cure::default())
    }

    /// Finds the rules and the loss scale with which the step is sound; see [`Cure::find`]. `None` also where the
    /// [precision is not the cause](Replay::not_by_precision).
    ///
    /// # Errors
    /// Those of the network.
    pub fn cure(&mut self) -> Result<Option<Cure>> {
        if self.not_by_precision()?.is_some() {
            return Ok(None);
        }
        Cure::find(self.fault.scale, |cure| Ok(self.run_with(cure)?.record))
    }

    /// Returns why no precision helps: in f32 without a loss scale, the step overflows as well, or the training has
    /// diverged before it. `None` if the precision is the cause.
    ///
    /// # Errors
    /// Those of the network.
    pub fn not_by_precision(&mut self) -> Result<Option<String>> {
        let mut loss = f64::NAN;
        let record = Cure::in_f32(|cure| {
            let replayed = self.run_with(cure)?;
            loss = replayed.step.loss;
            let record = replayed.record.clone();
            self.in_f32 = Some((cure.clone(), replayed));
            Ok(record)
        })?;
        if let Some(fault) = record.fault().filter(|fault| fault.kind.is_overflow()) {
            let why = format!("f32 overflows too: the cause is not the precision; {fault}");
            return Ok(Some(why));
        }
        // An infinity in a step that was taken may have caused it.
        let diverged = loss > DIVERGED * self.first_loss && !self.follows_taken;
        let first = self.first_loss;
        Ok(diverged.then(|| {
            format!(
                "the training has diverged: the cause is not the precision; the loss is {loss:.3e} in f32 too, and began \
                 with {first:.3e}"
            )
        }))
    }

    /// Runs the step with a change of the policy, from the same state.
    ///
    /// # Errors
    /// Those of the policy and of the network.
    pub fn run_with(&mut self, cure: &Cure) -> Result<Replayed> {
        if let Some((_, known)) = self.in_f32.as_ref().filter(|(known, _)| known == cure) {
            return Ok(known.clone());
        }
        let Replay { fault, policy, options, net, data, before, .. } = self;
        undo(net);
        let _ = cure.apply(policy)?.plan(&*net)?.apply(net)?;
        let loss_scale = match cure.loss_scale {
            Some(scale) => LossScaleSpec::Fixed { scale },
            None => options.loss_scale.clone(),
        };
        let options = options.clone().loss_scale(loss_scale).monitor(true).lint(false);
        let mut fit = Fit::resume(net, &options, before, History::default())?;
        let (advanced, record) = recorded(net, |net| fit.advance(net, data).map(drop));
        advanced?;
        let (_, checksum) = faults::last_step(fit.monitor().peaks(net));
        let Some(step) = fit.history().steps.last().cloned() else {
            return Err(Error::run("the run ends before the fault"));
        };
        Ok(Replayed { step, record, is_same: checksum == fault.checksum })
    }
}
