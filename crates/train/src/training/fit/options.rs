//! The options of a training run.

use precast::{
    optim::{Group, Method, Schedule},
    options::options,
    policy::LossScaleSpec,
};

use crate::{
    data::{Targets, batches_of_epoch},
    training::{Augment, Loss},
};

/// Options of a training run.
#[options(written)]
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FitOptions {
    /// Number of passes over the training data.
    #[option(default = 10, at_least = 1)]
    pub epochs: usize,
    /// Number of examples per step. The last step of an epoch takes the rest: fewer, or one more if a single example
    /// would be left; see [`shuffled_batches`](crate::data::Dataset::shuffled_batches).
    #[option(default = 32, at_least = 1)]
    pub batch: usize,
    /// Number of batches per step. Their gradients are added, weighted by the targets that count, so that a step is that
    /// of one batch of all their examples, in the memory of one batch. A batch norm sees each batch alone.
    #[option(default = 1, at_least = 1)]
    pub accumulate: usize,
    /// Number of parts of a step whose gradients are computed alone and added in the order of a binary tree, so that the
    /// parts can be divided among the ranks of several machines without a change of bits. A batch
    /// norm sees each shard alone, and its running statistics move once by the mean of all. A dropout is a function of
    /// seed, step and shard.
    #[option(default = 1, at_least = 1, at_most = 4096)]
    pub shards: usize,
    /// Learning rate. Run files and the command default to the [usual](Method::usual_lr) one of the optimizer.
    #[option(default = 0.05)]
    pub lr: f64,
    /// Learning-rate schedule. It advances with each step that updates the parameters; skipped steps do not count.
    #[option(default = Schedule::Constant)]
    pub schedule: Schedule,
    /// Number of steps of a linear warm-up before the schedule.
    #[option(default = 0)]
    pub warm_up: usize,
    /// Seed for the order of the examples in every epoch.
    #[option(default = 0)]
    pub seed: u64,
    /// The optimizer.
    #[option(default, shown = "gradient descent with momentum 0.9")]
    pub method: Method,
    /// Groups of parameters with their own hyperparameters; if several set the same one of a parameter, the last wins.
    #[option(default)]
    pub groups: Vec<GroupOptions>,
    /// Largest norm of the gradients of a step, which are [scaled](precast::Grads::clip_norm) down to it.
    #[option(default = None, shown = "unlimited", above = 0)]
    pub clip: Option<f64>,
    /// Decay of an [average](precast::optim::Average) of the weights, with which the test examples are scored; 0.999
    /// averages about the last thousand steps.
    #[option(default = None, shown = "no average", at_least = 0, below = 1)]
    pub average: Option<f64>,
    /// Random changes of the training examples.
    #[option(default, shown = "none")]
    pub augment: Augment,
    /// The loss.
    #[option(default = None, shown = "the [usual](Loss::usual) one of the targets")]
    pub loss: Option<Loss>,
    /// The loss scale.
    #[option(default = LossScaleSpec::None)]
    pub loss_scale: LossScaleSpec,
    /// `true` to watch every step with a [`Monitor`](precast_diagnose::Monitor), which finds the first number that was not finite.
    #[option(default = true)]
    pub monitor: bool,
    /// `true` to [lint](precast_diagnose::lint::Lint) the network on the first batch, for [`Fit::findings`]. It runs the batch twice
    /// and keeps all tensors of both passes meanwhile, once, and changes nothing. A run file lints by default.
    #[option(default = false)]
    pub lint: bool,
}

/// Hyperparameters of the parameters of a network whose paths match a pattern; see [`Group`].
#[options(written, called = "a group")]
#[derive(Clone, Debug, PartialEq)]
pub struct GroupOptions {
    /// Pattern of the paths of parameters, or of cells around them: `encoder`, `**.bias`.
    pub path: String,
    /// Factor of the learning rate.
    #[option(default = None, shown = "1", at_least = 0)]
    pub lr_factor: Option<f64>,
    /// Weight decay.
    #[option(default = None, shown = "that of the optimizer", at_least = 0)]
    pub weight_decay: Option<f64>,
    /// `true` when running averages are kept in 8 bits.
    #[option(default = None, shown = "as the optimizer")]
    pub state_8bit: Option<bool>,
}

impl GroupOptions {
    /// Returns the hyperparameters.
    pub(super) fn group(&self) -> Group {
        let GroupOptions { lr_factor, weight_decay, state_8bit, .. } = *self;
        let group = lr_factor.map_or(Group::default(), |factor| Group::default().lr_factor(factor));
        let group = weight_decay.map_or(group, |decay| group.weight_decay(decay));
        state_8bit.map_or(group, |in_8_bits| group.state_8bit(in_8_bits))
    }
}

impl FitOptions {
    /// Returns the maximum number of steps of a run.
    pub fn steps(&self, examples: usize) -> usize {
        self.epochs.saturating_mul(self.steps_of_epoch(examples))
    }

    /// Returns the loss, for these targets the usual one if none is chosen.
    pub(super) fn loss_on(&self, targets: &Targets) -> Loss {
        self.loss.clone().unwrap_or_else(|| Loss::usual(targets))
    }

    /// Returns the number of steps of an epoch.
    pub(super) fn steps_of_epoch(&self, examples: usize) -> usize {
        batches_of_epoch(examples, self.examples_of_step())
    }

    /// Returns the number of examples of a step, unless it is the last of an epoch.
    pub(super) fn examples_of_step(&self) -> usize {
        self.batch.saturating_mul(self.accumulate)
    }
}
