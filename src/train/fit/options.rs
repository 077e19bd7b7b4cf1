//! The options of a training run.

use crate::{
    options::options,
    policy::LossScaleSpec,
    train::{Loss, Method, Schedule, data::batches_of_epoch},
};

/// Options of a training run.
#[options(written)]
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FitOptions {
    /// Number of passes over the training data.
    #[option(default = 10)]
    pub epochs: usize,
    /// Number of examples per step. The last step of an epoch takes the rest: fewer, or one more if a single example
    /// would be left; see [`shuffled_batches`](crate::train::data::Dataset::shuffled_batches).
    #[option(default = 32, at_least = 1)]
    pub batch: usize,
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
    /// The loss.
    #[option(default = None, shown = "the [usual](Loss::usual) one of the targets")]
    pub loss: Option<Loss>,
    /// The loss scale.
    #[option(default = LossScaleSpec::None)]
    pub loss_scale: LossScaleSpec,
    /// `true` to watch every step with a [`Monitor`](crate::diagnose::Monitor), which finds the first number that was not finite.
    #[option(default = true)]
    pub monitor: bool,
    /// `true` to [lint](crate::lint::Lint) the network on the first batch, for [`Fit::findings`]. It runs the batch twice
    /// and keeps all tensors of both passes meanwhile, once, and changes nothing. A run file lints by default.
    #[option(default = false)]
    pub lint: bool,
}

impl FitOptions {
    /// Returns the maximum number of steps of a run.
    pub fn steps(&self, examples: usize) -> usize {
        self.epochs.saturating_mul(batches_of_epoch(examples, self.batch))
    }
}
