//! Steps of a run, run again to look at every number of them.

use std::path::{Path, PathBuf};

use precast::{
    Checkpoint, Child, Outcome, Policy,
    error::{Error, Result},
    io::models::Model,
    plan::undo,
    policy::LossScaleSpec,
};
use precast_base::printable::number;
use precast_diagnose::{Cure, Record};

use super::{
    RunFile, SavedFault, batch,
    faults::{self, CHECKPOINT},
    folder::Folder,
    parts::Read,
    prepared::{Prepared, prepared},
    records::{about_of, history_of},
    run::checksum_of,
};
use crate::{
    data::{Inputs, Split},
    training::{Fit, FitOptions, History, Step, fit::STEPS},
};

/// A step of a run, run again from a saved fault: with the same parameters, the same batch and the same dropouts, so
/// that every number is the same, bit for bit.
///
/// It begins at the last checkpoint before the fault, and takes the steps between them again.
#[derive(Debug)]
pub struct Replay {
    fault: SavedFault,
    file: RunFile,
    policy: Policy,
    options: FitOptions,
    net: Child,
    data: Split,
    /// Reason for which the saved batch takes the place of the data.
    without_data: Option<String>,
    /// State before the step.
    before: Checkpoint,
    /// Steps of the run, as far as its metrics go.
    steps: Vec<Step>,
    /// Advice for a run that has diverged.
    advice: String,
    /// The step in f32, once it has been run, with the change that makes it so.
    in_f32: Option<(Cure, Replayed)>,
}

/// Number of times that a scale at which other batches are sound may fall for this one: to an eighth, if it halves.
const FALLS: usize = 3;

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
    /// `true` when the largest magnitude of every result has the same bits as in the run, and the first that is not
    /// finite is the one of the run. Results of a step that several processes divided are not compared.
    pub is_same: bool,
}

impl Replay {
    /// Takes the steps of a run up to a saved fault, which is in `faults/step-N` of the folder of the run. `model` is
    /// that of [`RunFile::read_model`] of the run's folder, or the one built in code.
    ///
    /// # Errors
    /// [`ErrorKind::Run`](precast::ErrorKind::Run) when there is no fault or no run, when the saved fault is damaged, and
    /// when the policy, the run file or the data has changed; the errors of the model and the data.
    pub fn open(folder: impl AsRef<Path>, model: Model) -> Result<Self> {
        let folder = folder.as_ref();
        let fault = SavedFault::load(folder)?;
        let run = Replay::run_of(folder)?;
        Folder::check_files(&run)?;
        let file = RunFile::of_folder(&run)?;
        let policy = file.read_policy()?;
        let History { steps, raised, .. } = history_of(&run)?;
        fault.check(folder, file.options.seed, &steps)?;
        let checkpoint = folder.join(CHECKPOINT);
        let checkpoint = checkpoint.is_file().then(|| Checkpoint::load(checkpoint)).transpose()?;
        check_inputs(&fault, checkpoint.as_ref(), &policy, &file).map_err(|e| e.in_file(run.display()))?;
        let about = about_of(&run)?;
        // Otherwise the replay says that the step is not the one of the run.
        let _ = about.multiply_as_begun();
        batch::check(folder, &fault, about.train_examples)?;
        let read = file.read_data_of(&run, model.input.as_deref());
        // Right after the checkpoint, the saved batch is all that the step reads.
        let before = checkpoint.as_ref().and_then(|checkpoint| checkpoint.count(STEPS)).unwrap_or(0);
        let (data, targets, without_data) = match read {
            Ok(Read { data, standardizations, .. }) => (data, standardizations.targets, None),
            Err(error) if before + 1 == fault.step as u64 => {
                let data = batch::data_of(folder, &fault, &about)?;
                (data, Folder::standardizations(&run)?.targets, Some(error.to_string()))
            }
            Err(error) => return Err(error),
        };
        let Prepared { mut net, options, .. } = prepared(&file, model, &policy, &data)?;
        let fit = match &checkpoint {
            Some(checkpoint) => {
                let raised = raised.into_iter().filter(|raised| raised.step as u64 <= before).collect();
                let history = History { raised, ..History::default() };
                Fit::resume(&mut net, &options, checkpoint, history)?
            }
            None => Fit::new(&net, &options)?,
        };
        let mut fit = fit.standardized_targets(targets).under(&net, &policy)?;
        while fit.steps_done() + 1 < fault.step {
            if fit.advance(&mut net, &data)?.is_none() {
                return Err(Error::run("the run ends before the fault").in_file(folder.display()));
            }
        }
        fit.finish_epoch(&mut net, &data)?;
        let (before, policy) = (fit.checkpoint(&net), fit.policy().unwrap_or(policy));
        let advice = advice(&options, &data);
        Ok(Replay { fault, file, policy, options, net, data, without_data, before, steps, advice, in_f32: None })
    }

    /// Returns the folder of the run with the fault in a folder.
    ///
    /// # Errors
    /// [`ErrorKind::Run`](precast::ErrorKind::Run) when the folder is not inside that of a run.
    pub fn run_of(folder: &Path) -> Result<PathBuf> {
        let folder = std::path::absolute(folder).map_err(|e| Error::io(folder, &e))?;
        let run = folder.parent().and_then(Path::parent).filter(|run| Folder::is_of_run(run));
        run.map(Path::to_path_buf).ok_or_else(|| {
            let words = "the fault is not in the folder of the run that saved it, with which its step is run again; expected \
                         `runs/NAME/faults/step-N`";
            Error::run(words).in_file(folder.display())
        })
    }

    /// Returns the error of reading the data, if the saved batch takes its place.
    pub fn without_data(&self) -> Option<&str> {
        self.without_data.as_deref()
    }

    /// Describes the largest input of the batch, with its place in the data, if it is a thousand times larger than the
    /// median of its column.
    ///
    /// # Errors
    /// Those of reading the data.
    pub fn outlier(&self) -> Result<Option<String>> {
        match &self.without_data {
            None => batch::outlier(&self.file, &self.fault),
            Some(_) => Ok(None),
        }
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
        let before = &self.steps[..self.steps.len().min(self.fault.step - 1)];
        let follows_taken = before.iter().any(|step| step.swallowed.is_some());
        let first = self.steps.iter().map(|step| step.loss).find(|loss| loss.is_finite()).unwrap_or(f64::INFINITY);
        let diverged = loss > DIVERGED * first && !follows_taken;
        // One input that is far from all others is not a course of the training.
        let diverged = diverged && self.outlier()?.is_none();
        let advice = &self.advice;
        Ok(diverged.then(|| {
            format!(
                "the training has diverged: the cause is not the precision; the loss is {loss:.3e} in f32 too, and began \
                 with {first:.3e}; {advice}"
            )
        }))
    }

    /// Returns why the run needs no cure: its dynamic loss scale fell until steps were taken, and the same step is sound
    /// with that scale, or after it falls a few times more. `None` if it needs one.
    ///
    /// # Errors
    /// Those of the network.
    pub fn recovered(&mut self) -> Result<Option<String>> {
        let LossScaleSpec::Dynamic(dynamic) = self.policy.loss_scale.clone() else { return Ok(None) };
        let stalled = self.steps.iter().any(|step| matches!(step.outcome, Outcome::Stalled { .. }));
        let later = self.steps.iter().enumerate().skip(self.fault.step).find(|(_, step)| !step.is_skipped());
        let Some((at, scale)) = later.map(|(at, step)| (at, step.scale)) else { return Ok(None) };
        if stalled || scale >= self.fault.scale || self.steps[at].swallowed.is_some() {
            return Ok(None);
        }
        let steps = at + 1 - self.fault.step;
        let steps = format!("{steps} {}", if steps == 1 { "step" } else { "steps" });
        let mut lower = scale;
        for _ in 0..=FALLS {
            let with_it = self.run_with(&Cure { loss_scale: Some(lower), ..Cure::default() })?;
            if with_it.record.fault().is_none() {
                let (fell, sound) = (number(scale), number(lower));
                return Ok(Some(format!(
                    "no cure is needed: the dynamic scale fell to {fell}, {steps} later; with {sound}, this step is sound"
                )));
            }
            lower = (f64::from(lower) * dynamic.backoff) as f32;
            if lower < dynamic.min {
                break;
            }
        }
        Ok(None)
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
        let (advanced, record) = Record::of_changing(net, |net| fit.advance(net, data).map(drop));
        advanced?;
        let (_, checksum) = faults::last_step(fit.monitor().peaks(net));
        let Some(step) = fit.history().steps.last().cloned() else {
            return Err(Error::run("the run ends before the fault"));
        };
        let (batch, examples) = fit.last_batch(data);
        if (batch, &examples) != (fault.batch, &fault.examples) {
            let words = "`batch` and `examples` are not those of this step: the file is not the one that the run saved";
            return Err(Error::run(words));
        }
        let has_same_results = fault.ranks > 1 || checksum == fault.checksum;
        let is_same = has_same_results && step.fault().is_some_and(|origin| fault.is_of_same_place(origin));
        Ok(Replayed { step, record, is_same })
    }
}

/// Rejects a policy or a run file other than that of the fault, or of its checkpoint.
fn check_inputs(fault: &SavedFault, checkpoint: Option<&Checkpoint>, policy: &Policy, file: &RunFile) -> Result<()> {
    let now = [checksum_of(policy)?, file.fingerprint()?];
    let of_checkpoint = checkpoint.map(Checkpoint::policy).transpose()?.flatten();
    let kept = of_checkpoint.as_ref().map(checksum_of).transpose()?.unwrap_or(now[0]);
    let [policy, file] = fault.inputs.unwrap_or([kept, now[1]]);
    match [policy == now[0], file == now[1]] {
        [false, _] => {
            Err(Error::run("`policy.yaml` is not the policy of the fault; a run keeps its policy to the end"))
        }
        [_, false] => {
            Err(Error::run("`run.yaml` is not the one of the fault, but for its data; a change makes a new run"))
        }
        _ => Ok(()),
    }
}

/// Root mean square of inputs above which standardization is advised: weights are initialized for inputs of 1.
const LARGE: f64 = 10.0;

/// Returns the advice for a run that has diverged.
fn advice(options: &FitOptions, data: &Split) -> String {
    let smaller = format!("try a smaller learning rate than `lr: {}`", number(options.lr));
    let Inputs::Numbers(values) = data.train.inputs() else { return smaller };
    let squares: f64 = values.iter().map(|x| f64::from(*x).powi(2)).sum();
    match (squares / values.len().max(1) as f64).sqrt() {
        large if large > LARGE => {
            format!("{smaller}, or `standardize: true`: the root mean square of the inputs is {large:.0}")
        }
        _ => smaller,
    }
}
