//! The training loop.

use std::{mem, time::Instant};

use serde::{Deserialize, Serialize};

use super::{
    Epoch, History, Schedule, Score, Step,
    data::{Batch, IGNORED, Split, batches_of_epoch, check_batch},
    score::class_logits,
};
use crate::{
    Child, CrossEntropy, DType, Reduction, Tensor,
    cell::{AsCell, Params},
    error::{Error, Result},
    logging::event,
    optim::{Adafactor, Adagrad, Adam, Lamb, Lion, Optimizer, RmsProp, Sgd},
    policy::LossScaleSpec,
    rewrite::check_run,
    scale::{LossScale, Outcome},
};

/// How to train.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FitOptions {
    /// Passes over the training data; 10.
    pub epochs: usize,
    /// Examples in a step, at least 1; 32. The last step of an epoch has the rest: fewer, or one more where a single example
    /// would be left; see [`shuffled_batches`](super::data::Dataset::shuffled_batches).
    pub batch: usize,
    /// The learning rate; 0.05.
    pub lr: f64,
    /// How it changes during the epochs; not at all. It goes on with each step that updates the parameters; one that is
    /// skipped does not count.
    pub schedule: Schedule,
    /// Steps of a linear warm-up before the schedule; 0.
    pub warm_up: usize,
    /// Seed for the order of the examples in every epoch; 0.
    pub seed: u64,
    /// The optimizer; gradient descent with momentum 0.9.
    pub method: Method,
    /// The loss scale; none.
    pub loss_scale: LossScaleSpec,
    /// Whether to [find](Child::find_non_finite), for each skipped step, the op in which the first number appeared that is not
    /// finite; no. Every number of every step is read for it.
    pub find_non_finite: bool,
}

/// Which optimizer. [`Muon`](crate::Muon) is not among them, since it trains matrices only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
#[non_exhaustive]
pub enum Method {
    /// Gradient descent: [`Sgd`].
    Sgd {
        /// Its momentum.
        momentum: f64,
    },
    /// [`Adam`] with its default hyperparameters.
    Adam,
    /// [`Adam::decoupled`] with its default hyperparameters.
    AdamW,
    /// [`Adagrad`] with its default hyperparameters.
    Adagrad,
    /// [`RmsProp`] with its default hyperparameters.
    RmsProp,
    /// [`Lion`] with its default hyperparameters.
    Lion,
    /// [`Lamb`] with its default hyperparameters.
    Lamb,
    /// [`Adafactor`] with its default hyperparameters.
    Adafactor,
}

impl Default for FitOptions {
    fn default() -> Self {
        let method = Method::Sgd { momentum: 0.9 };
        let (schedule, loss_scale) = (Schedule::Constant, LossScaleSpec::None);
        let (warm_up, seed, find_non_finite) = (0, 0, false);
        FitOptions { epochs: 10, batch: 32, lr: 0.05, schedule, warm_up, seed, method, loss_scale, find_non_finite }
    }
}

impl FitOptions {
    /// How many steps a run takes at most.
    pub fn steps(&self, examples: usize) -> usize {
        self.epochs.saturating_mul(batches_of_epoch(examples, self.batch))
    }

    fn optimizer(&self, params: Params) -> Box<dyn Optimizer> {
        match self.method {
            Method::Sgd { momentum } => Box::new(Sgd::new(params, self.lr).momentum(momentum)),
            Method::Adam => Box::new(Adam::new(params, self.lr)),
            Method::AdamW => Box::new(Adam::decoupled(params, self.lr)),
            Method::Adagrad => Box::new(Adagrad::new(params, self.lr)),
            Method::RmsProp => Box::new(RmsProp::new(params, self.lr)),
            Method::Lion => Box::new(Lion::new(params, self.lr)),
            Method::Lamb => Box::new(Lamb::new(params, self.lr)),
            Method::Adafactor => Box::new(Adafactor::new(params, self.lr)),
        }
    }
}

/// Progress of a training run, as its observer receives it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// After every step.
    Step(&'a Step),
    /// After every epoch.
    Epoch(&'a Epoch),
}

/// Trains a network by a loss in f32, and measures its [`Score`] on the test examples after each epoch.
///
/// | targets of the examples | the network returns | loss | score |
/// | --- | --- | --- | --- |
/// | [`Classes`](super::data::Targets::Classes), one for each example | `[n, classes]` | mean cross entropy | accuracy |
/// | [`Classes`](super::data::Targets::Classes) of a shape | `[n, ..., classes]` or `[n, classes, ...]` | the same | the same |
/// | [`Numbers`](super::data::Targets::Numbers) of a shape | `[n, ...]` of that shape | mean squared error | mean squared error |
///
/// Classes that are [ignored](super::data::IGNORED) count neither for the loss nor for the accuracy. Where the axis of the
/// classes could be the last or the second, it is the last.
///
/// ```
/// use precast::{data::Dataset, prelude::*, train::{FitOptions, fit}};
/// // y = 2 x - 1 at a hundred points.
/// let x: Vec<f32> = (0..100).map(|i| i as f32 / 50.0 - 1.0).collect();
/// let y = x.iter().map(|x| 2.0 * x - 1.0).collect();
/// let data = Dataset::regression(x, &[1], y, &[1])?.split(80, 0)?;
///
/// let mut net = Child::new(Dense::new(1, 1, &mut Rng::seed(1)));
/// let history = fit(&mut net, &data, &FitOptions { lr: 0.1, ..FitOptions::default() }, &mut |_| {})?;
/// assert!(history.score().and_then(|score| score.mean_squared_error()) < Some(1e-3));
/// # Ok::<(), precast::Error>(())
/// ```
///
/// The run ends early when it [stalls](crate::Outcome::Stalled); see [`History::stalled`]. The network is left in evaluation
/// mode. The same network, data and options give the same weights, bit for bit.
///
/// # Errors
/// [`ErrorKind::Value`](crate::ErrorKind::Value) for options outside their range,
/// [`ErrorKind::Data`](crate::ErrorKind::Data) when there are no examples, or those to train with and those to test with
/// have targets of two kinds, [`ErrorKind::Plan`](crate::ErrorKind::Plan) when the first step ran otherwise than the applied
/// plan says (see [`Plan::check`](crate::rewrite::Plan::check)), and what the network reports.
pub fn fit<C: ?Sized + AsCell>(
    net: &mut Child<C>,
    data: &Split,
    options: &FitOptions,
    observer: &mut dyn FnMut(Event<'_>),
) -> Result<History> {
    let mut fit = Fit::new(net, options)?;
    for _ in 0..options.epochs {
        fit.epoch(net, data, observer)?;
    }
    Ok(fit.history)
}

/// A training run that advances epoch by epoch, so that several runs can take turns. [`fit`] does all epochs in one call.
#[derive(Debug)]
pub struct Fit {
    options: FitOptions,
    scale: LossScale,
    optimizer: Box<dyn Optimizer>,
    /// Steps that updated the parameters.
    stepped: usize,
    history: History,
}

impl Fit {
    /// A new run over all trained parameters of a network.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for options outside their range.
    pub fn new<C: ?Sized + AsCell>(net: &Child<C>, options: &FitOptions) -> Result<Self> {
        if let Schedule::Step { every: 0, .. } = options.schedule {
            return Err(Error::value("a schedule of steps after every 0; allowed: at least 1"));
        }
        check_batch(options.batch)?;
        let scale = LossScale::new(options.loss_scale.clone())?;
        let params = net.params();
        if params.iter().next().is_none() {
            return Err(Error::value("the network has no parameters that are trained, so there is nothing to train"));
        }
        let optimizer = options.optimizer(params);
        let param_bytes = optimizer
            .params()
            .iter()
            .map(|(_, param)| bytes(&param.value()) + param.master().as_ref().map_or(0, bytes));
        let history = History { param_bytes: param_bytes.sum(), ..History::default() };
        Ok(Fit { options: options.clone(), scale, optimizer, stepped: 0, history })
    }

    /// What happened so far.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Trains for one epoch; `net` is the network that the run was made for. A run that has stalled does nothing.
    ///
    /// # Errors
    /// As [`fit`].
    pub fn epoch<C: ?Sized + AsCell>(
        &mut self,
        net: &mut Child<C>,
        data: &Split,
        observer: &mut dyn FnMut(Event<'_>),
    ) -> Result<()> {
        if data.train.is_empty() || data.test.is_empty() {
            return Err(Error::data("a training run needs examples to train with and examples to test with"));
        }
        if mem::discriminant(data.train.targets()) != mem::discriminant(data.test.targets()) {
            let words =
                "the examples to train with and those to test with have targets of two kinds, classes and numbers";
            return Err(Error::data(words));
        }
        net.set_train(true);
        let first = self.history.steps.len();
        let result = self.steps(net, data, observer);
        net.set_train(false);
        result?;
        if self.history.stalled().is_some() {
            return Ok(());
        }
        let steps = &self.history.steps[first..];
        let epoch = Epoch {
            epoch: self.history.epochs.len(),
            loss: steps.iter().map(|step| step.loss).sum::<f64>() / steps.len() as f64,
            score: Score::of(net, &data.test, self.options.batch)?,
            skipped: steps.iter().filter(|step| step.is_skipped()).count(),
            seconds: steps.iter().map(|step| step.seconds).sum(),
        };
        event!(
            INFO,
            epoch = epoch.epoch,
            loss = epoch.loss,
            accuracy = epoch.score.accuracy(),
            mean_squared_error = epoch.score.mean_squared_error(),
            "epoch finished"
        );
        observer(Event::Epoch(&epoch));
        self.history.epochs.push(epoch);
        Ok(())
    }

    /// The steps of one epoch, or those up to the one that stalls.
    fn steps<C: ?Sized + AsCell>(
        &mut self,
        net: &Child<C>,
        data: &Split,
        observer: &mut dyn FnMut(Event<'_>),
    ) -> Result<()> {
        let Fit { options, scale, optimizer, stepped, history } = self;
        let epoch = history.epochs.len();
        let total = options.steps(data.train.len());
        for batch in data.train.shuffled_batches(options.batch, options.seed, epoch as u64)? {
            if history.stalled().is_some() {
                break;
            }
            let FitOptions { lr, schedule, warm_up, .. } = options;
            optimizer.set_lr(*lr * schedule.factor_after(*warm_up, *stepped, total));
            let mut one = |net: &Child<C>| {
                if !options.find_non_finite {
                    return train_step(net, &batch, epoch, scale, optimizer.as_mut());
                }
                let (result, found) =
                    net.find_non_finite(|net| train_step(net, &batch, epoch, scale, optimizer.as_mut()));
                result.map(|(step, bytes)| (Step { non_finite: found.filter(|_| step.is_skipped()), ..step }, bytes))
            };
            let (step, tape_bytes) = if history.steps.is_empty() {
                let (result, trace) = net.trace(one);
                history.casts = trace.casts();
                let step = result?;
                check_run(net, &trace)?;
                step
            } else {
                one(net)?
            };
            history.tape_bytes = history.tape_bytes.max(tape_bytes);
            *stepped += usize::from(step.outcome == Outcome::Stepped);
            observer(Event::Step(&step));
            history.steps.push(step);
        }
        Ok(())
    }
}

/// One step, and the bytes that its tape kept.
fn train_step<C: ?Sized + AsCell>(
    net: &Child<C>,
    batch: &Batch,
    epoch: usize,
    scale: &mut LossScale,
    optimizer: &mut dyn Optimizer,
) -> Result<(Step, usize)> {
    let start = Instant::now();
    let before = scale.value();
    let loss = loss(&net.call(&batch.x)?, &batch.y)?;
    let outcome = scale.step(optimizer, &loss)?;
    let seconds = start.elapsed().as_secs_f64();
    Ok((Step { epoch, loss: loss.item()?, scale: before, outcome, seconds, non_finite: None }, loss.tape_bytes()))
}

/// Mean cross entropy of classes, mean squared error of numbers. It is in f32 whatever the dtype of the outputs: a 16-bit
/// loss would overflow when it is scaled.
fn loss(outputs: &Tensor, targets: &Tensor) -> Result<Tensor> {
    let outputs = if outputs.dtype().is_low() { outputs.cast(DType::F32) } else { outputs.clone() };
    match targets.dtype() {
        DType::I64 => {
            let options = CrossEntropy { ignore_index: Some(IGNORED), ..CrossEntropy::default() };
            class_logits(&outputs, targets)?.cross_entropy_with(targets, &options)
        }
        _ => outputs.mse_loss(targets, Reduction::Mean),
    }
}

fn bytes(x: &Tensor) -> usize {
    x.len() * x.dtype().bytes()
}
