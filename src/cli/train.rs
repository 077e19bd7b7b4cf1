//! `precast train`: one network under several policies, for comparison.

use std::{collections::BTreeSet, path::PathBuf};

use crate::{
    Child, Level, Plan, Policy,
    data::{self, Split},
    policy::Prefer,
    report::{TrainingRun, joint_name, printable, runs_table_by, same_course},
    storage::weights,
    train::{Epoch, Event, Fit, FitOptions, Method, RunFile, Schedule},
};
use clap::{
    ValueEnum,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};

use super::{
    Cli, Failure, Format, Result, digits,
    inputs::{self, Read},
    print, print_json,
    progress::Progress,
    results::{self, Data, Finished, Options, Results},
    run,
    table::library_table,
};

/// Train from a run file, or compare policies on handwritten digits
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A run file says model, data, policy and how to train; `precast schema run` describes its keys. A run gets a folder of its own,
with checkpoints, metrics, weights and a report. After Ctrl-C, or whatever stopped it, --resume goes on with the same bits.

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
  precast train --resume runs/o2                     go on where it stopped")]
pub(super) struct Args {
    /// A run file; or a model file or the name of a built-in model, to compare policies
    #[arg(default_value = "lenet5")]
    pub model: PathBuf,
    /// Resume the run of this folder from its last checkpoint
    #[arg(long, value_name = "FOLDER", conflicts_with_all = [
        "model", "policy", "epochs", "batch", "lr", "schedule", "warm_up", "seed", "optimizer", "examples", "output", "save_weights",
    ])]
    resume: Option<PathBuf>,
    /// A policy file, or the name of a built-in policy; once for each run [default: that of the run file, else those
    /// built in for O0 to O3]
    #[arg(short, long)]
    pub policy: Vec<PathBuf>,
    /// Passes over the training examples [default: that of the run file, else 24]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    epochs: Option<u32>,
    /// Examples per step [default: that of the run file, else 32]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    batch: Option<u32>,
    /// Peak learning rate [default: that of the run file, else the usual one of the optimizer]
    #[arg(long, value_parser = learning_rate, allow_hyphen_values = true)]
    lr: Option<f64>,
    /// Schedule of the learning rate [default: that of the run file, else cosine]
    #[arg(long)]
    schedule: Option<ScheduleName>,
    /// Steps in which the learning rate rises to its peak, before the schedule [default: 0]
    #[arg(long, allow_negative_numbers = true)]
    warm_up: Option<u32>,
    /// Seed for the initial weights, the choice of training examples, and their order [default: 0]
    #[arg(long, allow_negative_numbers = true)]
    seed: Option<u64>,
    /// The optimizer, with its usual options [default: that of the run file, else sgd]
    #[arg(long, value_parser = optimizer())]
    optimizer: Option<Method>,
    /// Number of training digits; the others are used for testing [default: 1200]
    #[arg(long, allow_negative_numbers = true)]
    examples: Option<usize>,
    /// Folder of the results; created if missing [default: runs/NAME for a run file, else precast-out]
    #[arg(short, long)]
    pub output: Option<PathBuf>,
    /// Also write the weights of each run into the folder; always done for a run file
    #[arg(long)]
    save_weights: bool,
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
enum ScheduleName {
    /// Constant
    Constant,
    /// Decays to nearly 0 along half a cosine wave
    Cosine,
    /// Falls to a tenth after each third of the steps
    Step,
    /// Rises in the first three tenths of the steps, then falls to nearly 0
    OneCycle,
}

fn learning_rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "not a number".to_string())?;
    if rate.is_finite() && rate > 0.0 { Ok(rate) } else { Err("allowed: finite and above 0".to_string()) }
}

/// One of several networks trained side by side.
struct Runner {
    name: String,
    policy: Read<Policy>,
    plan: Plan,
    net: Child,
    fit: Fit,
}

/// Runs `precast train`.
pub(super) fn run(cli: &Cli, args: &Args) -> Result {
    if let Some(folder) = &args.resume {
        return run::resume(cli, args, folder);
    }
    if args.model.is_dir() && args.model.join("run.yaml").is_file() {
        let folder = inputs::shown(&args.model);
        return Err(Failure::Usage(format!("`{folder}` is the folder of a run; --resume {folder} continues it")));
    }
    match run::is_run_file(&args.model) {
        true if args.examples.is_some() => {
            Err(Failure::Usage("--examples is for the digits; a run file says `test`, what is kept for testing".into()))
        }
        true => run::begin(cli, args),
        false => compare(cli, args),
    }
}

/// Trains a network on the digits under several policies.
fn compare(cli: &Cli, args: &Args) -> Result {
    let options = args.options();
    let output = args.output.clone().unwrap_or_else(|| "precast-out".into());
    let mut model = inputs::model(cli, &args.model, options.seed)?;
    let digits = data::digits()?;
    let shape = model.value.input.clone().unwrap_or_else(|| digits.shape().to_vec());
    let data = digits::shaped(digits, &shape)?.split(args.examples(), options.seed)?;
    if args.batch.is_some() && options.batch > data.train.len() {
        let words = format!("--batch {} is more than the {} training digits", options.batch, data.train.len());
        return Err(Failure::Usage(words));
    }
    let mut runners = runners(cli, args, &options, &data)?;
    digits::check_training(&mut model.value.net, &data, options.batch)?;
    let weight_files: Vec<String> = runners.iter().map(|runner| results::weights_file(&runner.name)).collect();
    let weight_files = if args.save_weights { &weight_files[..] } else { &[] };
    results::prepare(&output, weight_files)?;

    let facts =
        Data { train_examples: data.train.len(), test_examples: data.test.len(), shape: data.train.shape().to_vec() };
    if args.format == Format::Text && !args.quiet {
        // The plan of O2 is the most informative: low regions, and cells kept in f32.
        let shown = runners.iter().find(|runner| runner.plan.policy.level == Level::O2).unwrap_or(&runners[0]);
        unless_unread(print(format_args!(
            "model   {model}\ndata    {} training digits, {} test digits, as {:?}{}\nplan    {}\n\n{}\n",
            facts.train_examples,
            facts.test_examples,
            facts.shape,
            largest_batch(facts.train_examples, options.batch),
            shown.plan.policy,
            shown.plan
        )))?;
    }
    // From here on, failures are collected: all computed results are still printed and written.
    let mut failures: Vec<String> = Vec::new();
    failures.extend(train(&mut runners, &options, &data, args.quiet).err().map(|error| error.to_string()));

    let finished: Vec<Finished<'_>> = runners.iter().map(Runner::finished).collect();
    let results = Results {
        model: model.to_string(),
        data: facts,
        options: args.described(&options),
        runs: finished.iter().map(|run| run.result(finished[0].run.history)).collect(),
    };
    let runs: Vec<TrainingRun<'_>> = finished.iter().map(|finished| finished.run).collect();
    // The table is printed before the files are written, since the disk may be full.
    let printed = match args.format {
        Format::Json => print_json(&results),
        Format::Text => print(format_args!("{}\n\n{}", runs_table_by(&runs, library_table), notes(&runs))),
    };
    let mut written = results::write(&output, &results, &finished);
    for (runner, name) in runners.iter().zip(weight_files) {
        written.put(output.join(name), |file| weights::save(&runner.net, file));
    }
    let files: Vec<String> = written.files.iter().map(|file| inputs::shown(file)).collect();
    let listed = match args.format {
        Format::Text if !files.is_empty() && printed.is_ok() => print(format_args!("written: {}", files.join(", "))),
        _ => Ok(()),
    };
    failures.append(&mut written.failures);
    for failed in [printed, listed] {
        if let Err(Failure::Work(message) | Failure::Usage(message)) = unless_unread(failed) {
            failures.push(message);
        }
    }
    failures.extend(
        results.runs.iter().filter_map(|run| Some(format!("{} {}", printable(&run.name), run.stalled.as_ref()?))),
    );
    failures.extend(finished.iter().filter_map(|finished| lost(&finished.run)));
    if failures.is_empty() { Ok(()) } else { Err(Failure::Work(failures.join("\n"))) }
}

/// Describes a run that completed, but without finite numbers.
fn lost(run: &TrainingRun<'_>) -> Option<String> {
    let last = run.history.epochs.last().filter(|_| run.history.stalled().is_none())?;
    spoilt(last).map(|words| format!("{}: {words}; try a lower --lr", printable(run.name)))
}

/// Describes an epoch with steps or outputs that are not finite.
pub(super) fn spoilt(epoch: &Epoch) -> Option<String> {
    let (number, score) = (epoch.epoch + 1, epoch.score);
    if !epoch.loss.is_finite() {
        return Some(format!("no step of epoch {number} was taken, so it has no loss"));
    }
    let answers = if score.not_finite() == 1 { "1 answer is" } else { &format!("{} answers are", score.not_finite()) };
    (score.not_finite() > 0).then(|| format!("{answers} not finite on the test examples after epoch {number}"))
}

/// Ignores a closed standard output, which does not end a run: its results are also written to files, and its exit
/// status reports the outcome.
pub(super) fn unless_unread(printed: Result) -> Result {
    match printed {
        Err(Failure::Unread) => Ok(()),
        other => other,
    }
}

/// Returns a note if the last batch of an epoch is one larger than `--batch`.
fn largest_batch(examples: usize, batch: usize) -> String {
    match data::batches_of_epoch(examples, batch) {
        batches if batches > 0 && batches < examples.div_ceil(batch) => {
            format!("; the last batch has {}, so that no digit is left over", batch + 1)
        }
        _ => String::new(),
    }
}

/// Returns the legend of the table, and the runs that were identical.
pub(super) fn notes(runs: &[TrainingRun<'_>]) -> String {
    let mut notes = format!(
        "score: on the test examples; time: of a step, relative to {}; activations: kept for the backward pass",
        printable(runs[0].name)
    );
    for group in same_course(runs).iter().filter(|group| group.len() > 1) {
        notes += &format!("\n{}: the same loss at every step, bit for bit", joint_name(group));
    }
    notes
}

impl Args {
    fn examples(&self) -> usize {
        self.examples.unwrap_or(1200)
    }

    fn options(&self) -> FitOptions {
        // The defaults of a run file, except for these two: levels are compared where all of them have converged.
        let usual = FitOptions { epochs: 24, schedule: Schedule::Cosine, ..FitOptions::default() };
        let method = self.optimizer.clone().unwrap_or_default();
        let count = |flag: Option<u32>, usual: usize| flag.map_or(usual, |n| n as usize);
        let (epochs, batch) = (count(self.epochs, usual.epochs), count(self.batch, usual.batch));
        let warm_up = count(self.warm_up, usual.warm_up);
        let steps = epochs.saturating_mul(data::batches_of_epoch(self.examples(), batch)).saturating_sub(warm_up);
        FitOptions {
            epochs,
            batch,
            lr: self.lr.unwrap_or(method.usual_lr()),
            schedule: self.schedule.map_or(usual.schedule, |name| name.schedule(steps)),
            warm_up,
            seed: self.seed.unwrap_or(usual.seed),
            method,
            ..usual
        }
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

    fn described(&self, options: &FitOptions) -> Options {
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
        }
    }
}

/// Creates a network for each policy, all with the same initial weights, each wrapped by its policy.
fn runners(cli: &Cli, args: &Args, options: &FitOptions, data: &Split) -> Result<Vec<Runner>> {
    let names: Vec<PathBuf> = match &args.policy[..] {
        [] => Policy::names().filter(|name| name.starts_with('o')).map(PathBuf::from).collect(),
        given => given.to_vec(),
    };
    let mut runners = Vec::new();
    let mut seen = BTreeSet::new();
    for name in &names {
        let policy = inputs::policy(name)?;
        let name = policy.short_name();
        if !seen.insert(name.clone()) {
            return Err(Failure::Usage(format!("two policies are named `{name}`; the names of runs must differ")));
        }
        let mut net = inputs::model(cli, &args.model, options.seed)?.value.net;
        let plan = plan(cli, args, options, data, &policy.value)?;
        let _ = plan.apply(&mut net)?;
        digits::check(&net, data)?;
        let options = FitOptions { loss_scale: policy.value.loss_scale.clone(), ..options.clone() };
        let fit = Fit::new(&net, &options)?;
        runners.push(Runner { name, policy, plan, net, fit });
    }
    Ok(runners)
}

/// Returns the plan of a policy. A policy that prefers speed is planned for a batch of the data, by a call on a
/// separate network, because batch norms update their running statistics in training.
fn plan(cli: &Cli, args: &Args, options: &FitOptions, data: &Split, policy: &Policy) -> Result<Plan> {
    let mut model = inputs::model(cli, &args.model, options.seed)?.value;
    if policy.prefer == Prefer::Memory {
        return Ok(policy.plan(&model.net)?);
    }
    model.net.set_train(true);
    digits::check(&model.net, data)?;
    let Some(batch) = data.train.batches(options.batch)?.next() else { return Ok(policy.plan(&model.net)?) };
    let trace = inputs::traced(&model, batch.x.shape())?;
    Ok(policy.plan_for(&model.net, &trace, &inputs::speeds_here())?)
}

/// Trains all networks, alternating epoch by epoch.
fn train(runners: &mut [Runner], options: &FitOptions, data: &Split, quiet: bool) -> crate::Result<()> {
    let steps = options.steps(data.train.len()).saturating_mul(runners.len());
    let mut bar = if quiet { Progress::quiet() } else { Progress::new("", steps) };
    for _ in 0..options.epochs {
        for runner in runners.iter_mut() {
            bar.rename(&runner.name);
            runner.fit.epoch(&mut runner.net, data, &mut |event| match event {
                Event::Step(step) => bar.step(step),
                Event::Epoch(epoch) => bar.epoch(epoch),
            })?;
        }
    }
    bar.finish();
    Ok(())
}

impl Runner {
    fn finished(&self) -> Finished<'_> {
        let run = TrainingRun { name: &self.name, history: self.fit.history() };
        Finished { run, policy: self.policy.to_string(), plan: &self.plan }
    }
}
