//! `precast train`: one network under several policies, for comparison.

use std::{collections::BTreeSet, ffi::OsStr, path::PathBuf, sync::atomic::Ordering};

use precast::{Child, Level, Plan, Policy, policy::Prefer, storage::weights};
use precast_base::printable;
use precast_mpi as ranks;
use precast_mpi::Cores;
use precast_train::report::{TrainingRun, runs_table_by};
use precast_train::{Event, Fit, FitOptions, data, data::Split};

use super::{
    Cli, Failure, Format, Result, digits,
    inputs::{self, Read},
    outputs, over_ranks, print, print_json,
    progress::Progress,
    results::{self, Data, Finished, Results, cure, notes, spoilt, unless_unread},
    run,
    table::{plan_tree, runs_layout},
    train_args::Args,
};

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
    match ranks::launched() {
        Some(2..) => return over_ranks::train(cli, args),
        // Open MPI binds one process to one core.
        Some(_) => Cores::here().advice().iter().for_each(|advice| run::say_line(advice)),
        None => {
            if let Some(words) = ranks::launched_apart() {
                run::say_line(&format!("{words}, and this process trains alone"));
            }
        }
    }
    if let Some(folder) = &args.resume {
        return run::resume(cli, args, folder, None);
    }
    if args.model.is_dir() && args.model.join("run.yaml").is_file() {
        let folder = inputs::shown(&args.model);
        return Err(Failure::Usage(format!("`{folder}` is the folder of a run; --resume {folder} continues it")));
    }
    if args.model.is_file() && args.model.extension().is_some_and(is_of_data) {
        let words =
            "no model and no run file; `precast show run > run.yaml` writes a run file, whose key `data` names data";
        return Err(Failure::Usage(format!("{}: {words}", inputs::shown(&args.model))));
    }
    match run::is_run_file(&args.model) {
        true if args.examples.is_some() => {
            Err(Failure::Usage("--examples is for the digits; a run file says `test`, what is kept for testing".into()))
        }
        true => run::begin(cli, args, None),
        false => compare(cli, args),
    }
}

/// Returns whether the extension of a file is one of data.
fn is_of_data(extension: &OsStr) -> bool {
    ["csv", "tsv", "gz", "npy", "npz", "txt", "png", "jpg", "jpeg"]
        .into_iter()
        .any(|of| extension.eq_ignore_ascii_case(of))
}

/// Trains a network on the digits under several policies.
fn compare(cli: &Cli, args: &Args) -> Result {
    let options = args.options();
    let output = args.output.clone().unwrap_or_else(|| "precast-out".into());
    outputs::check_outside_runs("--output", &output)?;
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
            plan_tree(&shown.plan)
        )))?;
    }
    // From here on, failures are collected: all computed results are still printed and written.
    let mut failures: Vec<String> = Vec::new();
    run::listen();
    if let Some(epochs) = train(&mut runners, &options, &data, args.quiet, &mut failures) {
        failures.push(format!(
            "interrupted after {epochs} of {} epochs; the table and the files have the steps that are done",
            options.epochs
        ));
    }

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
        Format::Text => print(format_args!("{}\n\n{}", runs_table_by(&runs, true, runs_layout), notes(&runs, true))),
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
    spoilt(last, "test").map(|words| format!("{}: {words}{}", printable(run.name), cure(run.history)))
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
        digits::check(&net, data).map_err(|failure| match failure {
            Failure::Usage(words) => Failure::Usage(format!("{}: {words}", printable(&name))),
            failure => failure,
        })?;
        let options = options.clone().loss_scale(policy.value.loss_scale.clone());
        let steps = options.steps(data.train.len());
        policy.value.idle_rules(&net, Some(steps))?.iter().for_each(|idle| run::say_line(idle));
        let fit = Fit::new(&net, &options)?.under(&net, &policy.value)?;
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

/// Trains all networks, alternating epoch by epoch; one that fails does not keep the others from being trained. After Ctrl-C, it
/// ends with the current step and returns the number of epochs that all have done.
fn train(
    runners: &mut [Runner],
    options: &FitOptions,
    data: &Split,
    quiet: bool,
    failures: &mut Vec<String>,
) -> Option<usize> {
    let steps = options.steps(data.train.len()).saturating_mul(runners.len());
    let mut bar = if quiet { Progress::quiet() } else { Progress::new(steps, options.epochs) };
    let mut left: Vec<&mut Runner> = runners.iter_mut().collect();
    let mut interrupted = None;
    for epoch in 0..options.epochs {
        left.retain_mut(|runner| {
            bar.rename(&runner.name);
            while interrupted.is_none() {
                let event = match runner.fit.advance(&mut runner.net, data) {
                    Ok(Some(event)) => event,
                    Ok(None) => break,
                    Err(error) => {
                        failures.push(format!("{}: {error}", printable(&runner.name)));
                        return false;
                    }
                };
                bar.note(&event);
                if let Event::Epoch(_) = event {
                    break;
                }
                interrupted = run::STOP.load(Ordering::Relaxed).then_some(epoch);
            }
            true
        });
    }
    bar.finish();
    interrupted
}

impl Runner {
    fn finished(&self) -> Finished<'_> {
        let run = TrainingRun { name: &self.name, history: self.fit.history() };
        Finished { run, policy: self.policy.to_string(), plan: &self.plan }
    }
}
