//! The arguments of `precast train`.

use std::path::PathBuf;

use clap::{
    ValueEnum,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};
use precast::optim::{Method, Schedule};
use precast_train::{FitOptions, RunFile, data};

use super::{Failure, Format, Result, results::Options};

/// Train from a run file, or compare policies on handwritten digits
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A run file says model, data, policy and how to train; `precast show schema run` describes its keys. A run gets a folder of its own,
with checkpoints, metrics, weights and a report. After Ctrl-C, or whatever stopped it, --resume continues with the same bits.

Without a run file, a network is trained on the 1797 digits (8 by 8 pixels) that come with the command, under several
policies, for 24 epochs and with a cosine schedule, where a run file that says nothing has 10 and none: levels are compared
where all have converged. They are resized or flattened to the shape that the model file gives as `input`. Every run starts from the same
weights and sees the same examples in the same order; the runs take turns, epoch by epoch, so that their times can be
compared on a busy machine.

Examples:
  precast train                                      LeNet-5 at O0 to O3, in float16 and bfloat16: a quarter of a minute
  precast train mlp --policy o0 --policy o2-bf16
  precast train my-model.yaml --policy my-policy.yaml --epochs 20 --save-weights
  precast train run.yaml                             into the folder runs/NAME, where NAME is that of the policy
  precast train run.yaml --policy o1 --policy o2     two runs that differ in nothing else
  precast train --resume runs/o2                     go on where it stopped
  precast train --resume runs/o2 --epochs 60         and do more epochs, although it has ended
  mpirun -n 4 precast train run.yaml                 four processes, with the bits of one; run.yaml has `shards: 4`")]
pub(super) struct Args {
    /// A run file; or a model file or the name of a built-in model, to compare policies
    #[arg(default_value = "lenet5")]
    pub model: PathBuf,
    /// Resume the run of this folder from its last checkpoint
    #[arg(long, value_name = "FOLDER", conflicts_with_all = [
        "model", "policy", "batch", "schedule", "warm_up", "seed", "optimizer", "examples", "output", "save_weights",
    ])]
    pub resume: Option<PathBuf>,
    /// A policy file, or the name of a built-in policy; once for each run [default: that of the run file, else those
    /// built in for O0 to O3]
    #[arg(short, long)]
    pub policy: Vec<PathBuf>,
    /// Passes over the training examples; with --resume, the new number in all [default: that of the run file, else 24]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    pub epochs: Option<u32>,
    /// Examples per step [default: that of the run file, else 32]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    pub batch: Option<u32>,
    /// Peak learning rate; with --resume, from there on [default: that of the run file, else the usual one of the optimizer]
    #[arg(long, value_parser = learning_rate, allow_hyphen_values = true)]
    pub lr: Option<f64>,
    /// Schedule of the learning rate [default: that of the run file, else cosine]
    #[arg(long)]
    pub schedule: Option<ScheduleName>,
    /// Steps in which the learning rate rises to its peak, before the schedule [default: 0]
    #[arg(long, allow_negative_numbers = true)]
    pub warm_up: Option<u32>,
    /// Seed for the initial weights, the choice of training examples, and their order [default: 0]
    #[arg(long, allow_negative_numbers = true)]
    pub seed: Option<u64>,
    /// The optimizer, with its usual options [default: that of the run file, else sgd]
    #[arg(long, value_parser = optimizer())]
    pub optimizer: Option<Method>,
    /// Number of training digits; the others are used for testing [default: 1200]
    #[arg(long, allow_negative_numbers = true)]
    pub examples: Option<usize>,
    /// Folder of the results; created if missing [default: runs/NAME for a run file, else precast-out]
    #[arg(short, long)]
    pub output: Option<PathBuf>,
    /// Also write the weights of each run into the folder; always done for a run file
    #[arg(long)]
    pub save_weights: bool,
    /// Format of the results
    #[arg(long, default_value = "text")]
    pub format: Format,
    /// Print only the results: no plan, no progress bar
    #[arg(short, long)]
    pub quiet: bool,
}

/// Parses the optimizers by name, with their usual options.
fn optimizer() -> impl TypedValueParser<Value = Method> {
    let one =
        |method: &Method| PossibleValue::new(method.name()).help(format!("Usual learning rate {}", method.usual_lr()));
    PossibleValuesParser::new(Method::all().iter().map(one)).try_map(|name| name.parse::<Method>())
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum ScheduleName {
    /// Constant
    Constant,
    /// Decays to nearly 0 along half a cosine wave
    Cosine,
    /// Falls to a tenth after each third of the steps
    Step,
    /// Rises in the first three tenths of the steps, then falls to nearly 0
    OneCycle,
    /// Falls with the inverse square root of the steps after the warm-up
    InverseSqrt,
    /// Falls to a tenth after 4 epochs without a better score
    Plateau,
}

fn learning_rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "not a number".to_string())?;
    if rate.is_finite() && rate > 0.0 { Ok(rate) } else { Err("allowed: finite and above 0".to_string()) }
}

impl Args {
    pub fn examples(&self) -> usize {
        self.examples.unwrap_or(1200)
    }

    pub fn options(&self) -> FitOptions {
        // The defaults of a run file, except for these two: levels are compared where all of them have converged.
        let usual = FitOptions::default().epochs(24).schedule(Schedule::Cosine);
        let method = self.optimizer.clone().unwrap_or_default();
        let count = |flag: Option<u32>, usual: usize| flag.map_or(usual, |n| n as usize);
        let (epochs, batch) = (count(self.epochs, usual.epochs), count(self.batch, usual.batch));
        let warm_up = count(self.warm_up, usual.warm_up);
        let steps = epochs.saturating_mul(data::batches_of_epoch(self.examples(), batch)).saturating_sub(warm_up);
        let schedule = self.schedule.map_or(usual.schedule, |name| name.schedule(steps));
        FitOptions::default()
            .epochs(epochs)
            .batch(batch)
            .lr(self.lr.unwrap_or(method.usual_lr()))
            .schedule(schedule)
            .warm_up(warm_up)
            .seed(self.seed.unwrap_or(usual.seed))
            .method(method)
    }

    /// Applies the options of the command line to a run.
    pub fn change(&self, file: &mut RunFile) -> Result {
        let options = &mut file.options;
        if let Some(epochs) = self.epochs {
            options.epochs = epochs as usize;
        }
        if let Some(batch) = self.batch {
            options.batch = batch as usize;
        }
        if let Some(method) = &self.optimizer {
            options.method = method.clone();
            options.lr = options.method.usual_lr();
        }
        if let Some(lr) = self.lr {
            options.lr = lr;
        }
        if let Some(warm_up) = self.warm_up {
            options.warm_up = warm_up as usize;
        }
        if let Some(seed) = self.seed {
            options.seed = seed;
        }
        if let Some(schedule) = self.schedule {
            if let ScheduleName::Step = schedule {
                let words = "write `schedule: {step: {every: 100, factor: 0.1}}` into the run file; --schedule takes the others";
                return Err(Failure::Usage(words.into()));
            }
            options.schedule = schedule.schedule(0);
        }
        Ok(())
    }

    pub fn described(&self, options: &FitOptions) -> Options {
        let FitOptions { epochs, batch, lr, schedule, warm_up, seed, .. } = *options;
        let optimizer = options.method.name();
        Options { epochs, batch, lr, schedule, warm_up, seed, optimizer }
    }
}

impl ScheduleName {
    /// Returns the schedule for a run of `steps` steps.
    fn schedule(self, steps: usize) -> Schedule {
        match self {
            ScheduleName::Constant => Schedule::Constant,
            ScheduleName::Cosine => Schedule::Cosine,
            ScheduleName::Step => Schedule::Step { every: steps.div_ceil(3).max(1), factor: 0.1 },
            ScheduleName::OneCycle => Schedule::OneCycle,
            ScheduleName::InverseSqrt => Schedule::InverseSqrt { timescale: None },
            ScheduleName::Plateau => Schedule::Plateau { patience: 3, factor: 0.1, least: 0.0 },
        }
    }
}
