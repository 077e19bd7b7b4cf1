//! The training loop.

mod last;
mod options;
mod over_ranks;
mod plateau;
mod policy;
mod reading;
mod step;

use std::{collections::HashSet, mem, sync::Arc};

use precast::{
    Checkpoint, Child, Tensor,
    cell::{AsCell, Part},
    error::{Error, Result},
    optim::{Average, Optimizer},
    options::Options,
    scale::{LossScale, Outcome},
};
use precast_diagnose::Monitor;

pub use options::{FitOptions, GroupOptions};
use plateau::Plateau;
use policy::Changing;
pub(crate) use policy::with_raised;
use reading::Reading;

use super::{DataParallel, Ended, Epoch, History, Raised, Score, Step, history::mean_of_taken};
use crate::data::{Dataset, Split, Standardization};

/// Progress of a training run, as passed to its observer.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// After every step.
    Step(&'a Step),
    /// After every epoch.
    Epoch(&'a Epoch),
    /// After a step that stalled the run, when the cell at fault was raised to f32 and the run continues; see
    /// [`Fit::under`].
    Raised(&'a Raised),
    /// After the last step of rules that end; see [`Fit::under`].
    Ended(&'a Ended),
}

/// Trains a network with the loss computed in f32, and measures its [`Score`] on the test examples after each epoch.
///
/// | targets of the examples | the network returns | loss | score |
/// | --- | --- | --- | --- |
/// | [`Classes`](crate::data::Targets::Classes), one for each example | `[n, classes]` | mean cross entropy | accuracy |
/// | [`Classes`](crate::data::Targets::Classes) of a shape | `[n, ..., classes]` or `[n, classes, ...]` | the same | the same |
/// | [`Numbers`](crate::data::Targets::Numbers) of a shape | `[n, ...]` of that shape | mean squared error | mean squared error |
///
/// [Ignored](crate::data::IGNORED) classes count neither for the loss nor for the accuracy. If the class axis could be
/// the last or the second, it is the last.
///
/// [`FitOptions::loss`] selects another [`Loss`](super::Loss), which has a score of its own.
///
/// ```
/// use precast::prelude::*;
/// use precast_train::{data::Dataset, FitOptions, fit};
/// // y = 2 x - 1 at a hundred points.
/// let x: Vec<f32> = (0..100).map(|i| i as f32 / 50.0 - 1.0).collect();
/// let y = x.iter().map(|x| 2.0 * x - 1.0).collect();
/// let data = Dataset::regression(x, &[1], y, &[1])?.split(80, 0)?;
///
/// let mut net = Child::new(Dense::new(1, 1, &mut Rng::seed(1)));
/// let history = fit(&mut net, &data, &FitOptions::default().lr(0.1), &mut |_| {})?;
/// assert!(history.score().and_then(|score| score.mean_squared_error()) < Some(1e-3));
/// # Ok::<(), precast::Error>(())
/// ```
///
/// The run ends early when it [stalls](precast::Outcome::Stalled); see [`History::stalled`]. The network is left in
/// evaluation mode. The same network, data and options give the same weights, bit for bit.
///
/// # Errors
/// [`ErrorKind::Value`](precast::ErrorKind::Value) for options outside their range,
/// [`ErrorKind::Data`](precast::ErrorKind::Data) when there are no examples or when training and test targets are of
/// different kinds, [`ErrorKind::Plan`](precast::ErrorKind::Plan) when the first step deviated from the applied plan (see
/// [`Plan::check`](precast::plan::Plan::check)), and the errors of the network.
pub fn fit<C: ?Sized + AsCell>(
    net: &mut Child<C>,
    data: &Split,
    options: &FitOptions,
    observer: &mut dyn FnMut(Event<'_>),
) -> Result<History> {
    let mut fit = Fit::new(net, options)?;
    while let Some(event) = fit.advance(net, data)? {
        observer(event);
    }
    Ok(fit.history)
}

/// A training run that advances step by step, so that several runs can alternate, and a run can be stopped and resumed.
/// [`fit`] runs all epochs in one call.
///
/// ```
/// use precast::prelude::*;
/// use precast_train::{data, Fit, FitOptions, History};
/// # fn main() -> Result<()> {
/// let split = data::digits()?.reshape(&[64])?.split(96, 0)?;
/// let mut net = Child::new(Dense::new(64, 10, &mut Rng::seed(1)));
/// let options = FitOptions::default().epochs(2);
/// let mut fit = Fit::new(&net, &options)?;
/// for _ in 0..4 {
///     fit.advance(&mut net, &split)?; // three steps, and the end of the first epoch
/// }
/// let checkpoint = fit.checkpoint(&net);
///
/// let mut fit = Fit::resume(&mut net, &options, &checkpoint, History::default())?;
/// while fit.advance(&mut net, &split)?.is_some() {}
/// assert_eq!(fit.history().steps.len(), 3); // those of the second epoch
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Fit {
    pub(super) options: FitOptions,
    scale: LossScale,
    optimizer: Box<dyn Optimizer>,
    /// The average of the weights, if it is wanted.
    average: Option<Average>,
    plateau: Plateau,
    place: Place,
    /// Order of the examples in the current epoch; empty before its first step.
    order: Arc<Vec<usize>>,
    /// The reading of stored examples.
    reading: Option<Reading>,
    /// `true` if the examples of the next step or score could not be read.
    unread: bool,
    /// Standardization of the training targets, if the test targets were not standardized.
    targets: Option<Standardization>,
    /// `true` when the first step of this process was checked against the applied plan.
    checked: bool,
    monitor: Monitor,
    /// The policy, if its decisions change during the run.
    changing: Option<Changing>,
    /// Findings of the lint, once it has run.
    pub(super) findings: Option<Vec<precast_diagnose::lint::Finding>>,
    history: History,
}

/// Position within a run.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    epoch: usize,
    /// Steps in the epoch.
    step: usize,
    /// Steps in the run, and those that updated the parameters.
    steps: usize,
    stepped: usize,
}

impl Fit {
    /// Creates a run over all trained parameters of a network.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](precast::ErrorKind::Value) for options outside their range, and when no parameter is trained;
    /// [`ErrorKind::Path`](precast::ErrorKind::Path) for a group that matches no trained parameter.
    pub fn new<C: ?Sized + AsCell>(net: &Child<C>, options: &FitOptions) -> Result<Self> {
        let mut tables = HashSet::new();
        net.walk(&mut |entry| {
            if entry.slot.cell.kind() == "Embedding" {
                entry.slot.cell.visit(&mut |_, node| {
                    if let Part::Param(param) = node {
                        tables.insert(param.id());
                    }
                });
            }
        });
        let mut optimizer = options.method.optimizer(net.params(), options.lr, &|param| tables.contains(&param.id()));
        for group in &options.groups {
            let set = optimizer.set_group(&group.path, group.group());
            set.map_err(|error| error.about(group.path.as_str()))?;
        }
        let fit = Fit::with_optimizer(optimizer, options)?;
        Ok(Fit { average: fit.average.map(|average| average.statistics(net)), ..fit })
    }

    /// Creates a run as [`Fit::new`] does, with the given optimizer; [`FitOptions::method`] and [`FitOptions::groups`] are
    /// ignored, and an average has weights alone.
    ///
    /// # Errors
    /// As [`Fit::new`].
    pub fn with_optimizer(optimizer: Box<dyn Optimizer>, options: &FitOptions) -> Result<Self> {
        options.check()?;
        optimizer.check()?;
        let scale = LossScale::new(options.loss_scale.clone())?;
        if optimizer.params().iter().next().is_none() {
            return Err(Error::value(
                "the network has no parameters that are trained, so there is nothing to train: it has none, or all are \
                 frozen",
            ));
        }
        let param_bytes = optimizer
            .params()
            .iter()
            .map(|(_, param)| bytes(&param.value()) + param.master().as_ref().map_or(0, bytes));
        let history = History { param_bytes: param_bytes.sum(), ..History::default() };
        let average = |decay| Average::new(optimizer.params().clone(), decay);
        Ok(Fit {
            options: options.clone(),
            scale,
            average: options.average.map(average).transpose()?,
            optimizer,
            plateau: Plateau::default(),
            place: Place::default(),
            order: Arc::default(),
            reading: None,
            unread: false,
            targets: None,
            checked: false,
            monitor: Monitor::default(),
            changing: None,
            findings: None,
            history,
        })
    }

    /// Resumes a run from a checkpoint, with the network and options of the original run. With the original run's
    /// history, the rest produces the same weights and, except for times, the same history; without it, the mean loss
    /// of the first epoch covers only its last steps.
    ///
    /// # Errors
    /// As [`Fit::new`] and [`Checkpoint::restore`]; [`ErrorKind::Weights`](precast::ErrorKind::Weights) when the
    /// checkpoint was not made by [`Fit::checkpoint`].
    pub fn resume<C: ?Sized + AsCell>(
        net: &mut Child<C>,
        options: &FitOptions,
        checkpoint: &Checkpoint,
        history: History,
    ) -> Result<Self> {
        let mut fit = Fit::new(net, options)?;
        let count = |name| {
            let count = checkpoint.count(name).and_then(|count| usize::try_from(count).ok());
            count.ok_or_else(|| {
                Error::weights(format!("the checkpoint counts no `{name}`; `Fit::checkpoint` makes those"))
            })
        };
        fit.place = Place { epoch: count(EPOCH)?, step: count(STEP)?, steps: count(STEPS)?, stepped: count(STEPPED)? };
        let mut average = fit.average.take();
        if let Some(average) = &mut average {
            checkpoint.restore_average(average)?;
        }
        checkpoint.restore(net, &mut [fit.optimizer.as_mut()], &mut fit.scale)?;
        (fit.average, fit.plateau) = (average, Plateau::of(checkpoint));
        fit.history = History { param_bytes: fit.history.param_bytes, ..history };
        Ok(fit)
    }

    /// Declares that the training targets were standardized and the test targets were not; scores are in the units of
    /// the latter.
    pub fn standardized_targets(self, by: Option<Standardization>) -> Self {
        Fit { targets: by, ..self }
    }

    /// Returns a checkpoint from which the run can be resumed.
    pub fn checkpoint<C: ?Sized + AsCell>(&self, net: &Child<C>) -> Checkpoint {
        self.counted(Checkpoint::of(net, &[self.optimizer.as_ref()], &self.scale))
    }

    /// Adds the average and the counters to a checkpoint.
    fn counted(&self, checkpoint: Checkpoint) -> Checkpoint {
        let Place { epoch, step, steps, stepped } = self.place;
        let checkpoint = match &self.average {
            Some(average) => checkpoint.averaging(average),
            None => checkpoint,
        };
        self.plateau
            .counted(self.options.schedule, checkpoint)
            .counting(EPOCH, epoch as u64)
            .counting(STEP, step as u64)
            .counting(STEPS, steps as u64)
            .counting(STEPPED, stepped as u64)
    }

    /// Runs `f` while the network has the [average](FitOptions::average) of its weights, if there is one.
    ///
    /// # Errors
    /// Those of `f` and of [`Average::with`].
    pub fn with_average<R>(&self, f: impl FnOnce() -> Result<R>) -> Result<R> {
        match &self.average {
            Some(average) => average.with(f),
            None => f(),
        }
    }

    /// Scores a network by the loss of the run.
    pub(crate) fn score_on<C: ?Sized + AsCell>(&self, net: &Child<C>, data: &Dataset) -> Result<Score> {
        let loss = self.options.loss_on(data.targets());
        Score::of_loss(&loss, net, data, self.options.batch, self.targets.as_ref())
    }

    /// Returns the history so far.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Returns the number of completed steps, including those before a checkpoint.
    pub fn steps_done(&self) -> usize {
        self.place.steps
    }

    /// Returns whether every epoch is complete, or the run has stalled.
    pub fn is_over(&self) -> bool {
        self.place.epoch >= self.options.epochs || self.has_stalled() && self.to_raise().is_none()
    }

    /// Runs the next step or, after the last step of an epoch, measures the [`Score`]; `net` is the network that the run was
    /// made for. Does nothing if the run is over.
    ///
    /// # Errors
    /// As [`fit`].
    pub fn advance<C: ?Sized + AsCell>(&mut self, net: &mut Child<C>, data: &Split) -> Result<Option<Event<'_>>> {
        self.advance_with(net, data, None)
    }

    fn advance_with<C: ?Sized + AsCell>(
        &mut self,
        net: &mut Child<C>,
        data: &Split,
        parallel: Option<&mut DataParallel<'_>>,
    ) -> Result<Option<Event<'_>>> {
        if self.is_over() {
            return Ok(None);
        }
        self.unread = false;
        check(data)?;
        self.options.augment.check_form(&data.train)?;
        if self.has_stalled() {
            return Ok(self.raise()?.map(Event::Raised));
        }
        if self.end_rules() {
            return Ok(self.history.ended.last().map(Event::Ended));
        }
        self.lint(net, data, None);
        self.wrap(net)?;
        let (examples, FitOptions { batch, seed, .. }) = (data.train.len(), &self.options);
        if self.place.step >= self.options.steps_of_epoch(examples) {
            let (loss, targets) = (self.options.loss_on(data.test.targets()), self.targets.as_ref());
            let score = || match &parallel {
                Some(parallel) => Score::over(parallel.ranks(), &loss, net, &data.test, *batch, targets),
                None => self.score_on(net, &data.test),
            };
            let score = self.with_average(score).inspect_err(|_| self.unread = true)?;
            let epoch = self.end_of_epoch(score, examples);
            self.history.epochs.push(epoch);
            return Ok(self.history.epochs.last().map(Event::Epoch));
        }
        if self.order.len() != examples {
            self.options.augment.check(&data.train)?;
            self.options.loss_on(data.train.targets()).check_domain(data.train.targets())?;
            self.order = Arc::new(data.train.order(*seed, self.place.epoch as u64));
        }
        let parts = self.read_parts(data).inspect_err(|_| self.unread = true)?;
        let shards = self.augmented(parts, data)?;
        net.set_train(true);
        let step = self.step(net, &shards, data, parallel);
        net.set_train(false);
        let step = step?;
        if step.outcome == Outcome::Stepped {
            self.place.stepped += 1;
            self.average.as_mut().map_or(Ok(()), Average::update)?;
        }
        self.place.step += 1;
        self.place.steps += 1;
        self.history.push(step);
        Ok(self.history.steps.last().map(Event::Step))
    }

    /// Records the completed epoch and begins the next one.
    fn end_of_epoch(&mut self, score: Score, examples: usize) -> Epoch {
        let is_before = |step: &Step| step.epoch != self.place.epoch;
        let first = self.history.steps.iter().rposition(is_before).map_or(0, |last| last + 1);
        let steps = &self.history.steps[first..];
        let epoch = Epoch {
            epoch: self.place.epoch,
            loss: mean_of_taken(steps),
            score,
            skipped: steps.iter().filter(|step| step.is_skipped()).count(),
            seconds: steps.iter().map(|step| step.seconds).sum(),
            learning_rate: Some(self.lr_of(self.place.stepped.saturating_sub(1), examples)),
        };
        tracing::info!(target: "precast", epoch = epoch.epoch,
            loss = epoch.loss,
            accuracy = epoch.score.accuracy(),
            mean_squared_error = epoch.score.mean_squared_error(),
            "epoch finished"
        );
        self.place = Place { epoch: self.place.epoch + 1, step: 0, ..self.place };
        (self.order, self.reading) = (Arc::default(), None);
        self.plateau.note(self.options.schedule, score);
        epoch
    }
}

// Names of the counters in a checkpoint.

/// Number of completed epochs.
pub const EPOCH: &str = "epoch";
const STEP: &str = "step of the epoch";
/// Number of completed steps.
pub const STEPS: &str = "steps";
const STEPPED: &str = "updates";

/// Rejects data that a run cannot use.
fn check(data: &Split) -> Result<()> {
    if data.train.is_empty() || data.test.is_empty() {
        return Err(Error::data("a training run needs examples to train with and examples to test with"));
    }
    if mem::discriminant(data.train.targets()) != mem::discriminant(data.test.targets()) {
        let words = "the examples to train with and those to test with have targets of two kinds, classes and numbers";
        return Err(Error::data(words));
    }
    data.train.check_targets()
}

fn bytes(x: &Tensor) -> usize {
    x.len() * x.dtype().bytes()
}
