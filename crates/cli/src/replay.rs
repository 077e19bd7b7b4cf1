//! `precast replay`: a faulty step of a run, run again, and its cure.

use std::path::{Path, PathBuf};

use precast::observe::Edge;
use precast_base::{files, printable_lines};
use precast_diagnose::Record;
use precast_train::{Replay, RunFile, SavedFault, history_of};

use super::{
    Cli, Failure, Result,
    inputs::{shown, word},
    outputs::{self, Output, is_run},
    print,
    run::{model, say_line},
};

/// Run the step of a saved fault again, look at every number of it, and find its cure
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  precast replay runs/mlp                          the faults of a run
  precast replay runs/mlp/faults/step-12           where the first number that is not finite came from
  precast replay runs/mlp/faults/step-12 --cure    the rules and the loss scale with which the step is sound
  precast replay runs/mlp/faults/step-12 --cure --output cured.yaml    the policy of the run with them")]
pub(super) struct Args {
    /// The folder of the fault, in that of its run; that of a run lists its faults
    folder: PathBuf,
    /// Find the rules and the loss scale with which the step is sound, by running it with them
    #[arg(long)]
    cure: bool,
    #[command(flatten)]
    output: Output,
}

/// Maximum number of results shown before the faulty one.
const SHOWN: usize = 6;

pub(super) fn run(cli: &Cli, args: &Args) -> Result {
    args.output.check(&[("FOLDER", Some(&args.folder))])?;
    outputs::check_ending("--output", args.output.file.as_deref(), &["yaml", "yml"])?;
    if args.output.file.is_some() && !args.cure {
        return Err(Failure::Usage("--output is for the policy of --cure".into()));
    }
    let run = if args.folder.ends_with("faults") { args.folder.parent() } else { Some(args.folder.as_path()) };
    match run.filter(|run| is_run(run)) {
        Some(run) if args.cure => Err(Failure::Usage(format!(
            "--cure is for one fault, and `{}` is a run; give the folder of one:\n{}",
            shown(run),
            listed(cli, run)?.trim_end()
        ))),
        Some(run) => print(listed(cli, run)?.trim_end()),
        None => one(cli, args),
    }
}

/// Runs the step of one fault again.
fn one(cli: &Cli, args: &Args) -> Result {
    let saved = SavedFault::load(&args.folder)?;
    let run = Replay::run_of(&args.folder)?;
    let file = RunFile::of_folder(&run)?;
    let mut replay = Replay::open(&args.folder, model(cli, &file)?)?;
    if let Some(why) = replay.without_data() {
        say_line(&format!("{why}; the saved batch takes the place of the data"));
    }
    let replayed = replay.run().map_err(Failure::work)?;
    let fault = replay.fault();
    let text =
        format!("step {}, epoch {}, batch {}: {}", fault.step, fault.epoch + 1, fault.batch + 1, replayed.step.outcome);
    print(printable_lines(&text))?;
    match replayed.record.fault() {
        Some(fault) => {
            for edge in chain(&replayed.record, fault.at) {
                let numbers = &edge.numbers;
                let text = format!("  {:9.3e}  {edge}", numbers.amax);
                print(printable_lines(&text))?;
            }
            print(printable_lines(&format!("first: {fault}")))?;
            if let Some(outlier) = replay.outlier().map_err(Failure::work)? {
                print(printable_lines(&format!("the largest input: {outlier}")))?;
            }
        }
        None => print("every number is sound")?,
    }
    if !replayed.is_same {
        let now = replayed.step.fault().map_or("nothing".into(), ToString::to_string);
        return Err(Failure::Work(format!(
            "this step is not the one of the run: its first fault was {}; now it is {now}, or other numbers differ",
            saved.origin
        )));
    }
    let (results, ranks) = (fault.results.len(), fault.ranks);
    print(match ranks {
        1 => format!("the first fault and the largest magnitudes of all {results} results are the same as in the run"),
        _ => format!("the first fault is the same as in the run, whose step {ranks} processes divided"),
    })?;
    if args.cure { cure(cli, args, &run, &file, &mut replay) } else { Ok(()) }
}

/// Finds the cure of a fault, and writes the policy with it.
fn cure(cli: &Cli, args: &Args, run: &Path, file: &RunFile, replay: &mut Replay) -> Result {
    if let Some(why) = replay.recovered().map_err(Failure::work)? {
        let nothing = if args.output.file.is_some() { "; no policy is written" } else { "" };
        return print(format_args!("\n{why}{nothing}"));
    }
    let Some(cure) = replay.cure().map_err(Failure::work)? else {
        let why = replay.not_by_precision().map_err(Failure::work)?;
        return Err(Failure::Work(why.unwrap_or("no rules and no loss scale make the step sound".into())));
    };
    let policy = file.read_policy()?;
    let lines = cure.lines(&policy.loss_scale);
    let text = format!("\nwith this change of the policy, this step is sound; no other was run with it:\n{lines}");
    print(printable_lines(text.trim_end()))?;
    let Some(to) = &args.output.file else { return Ok(()) };
    files::replace(to, cure.apply(&policy)?.to_yaml()?.as_bytes()).map_err(Failure::work)?;
    let name = to.file_stem().unwrap_or_default();
    let (program, next) = (&cli.program, run.with_file_name(name));
    let (of, next) = (word(&relative(&run.join("run.yaml"))), word(&relative(&next)));
    print(format_args!("written: {0}; try: {program} train {of} --policy {0} --output {next}", word(to)))
}

/// Returns a path as seen from the current folder, if it is inside.
fn relative(path: &Path) -> PathBuf {
    let here = std::env::current_dir().ok();
    here.and_then(|here| path.strip_prefix(here).ok()).unwrap_or(path).to_path_buf()
}

/// Describes the faults of a run, each with the command that runs its step again.
fn listed(cli: &Cli, run: &Path) -> Result<String> {
    let (faults, file) = (SavedFault::all(run)?, RunFile::of_folder(run)?);
    if faults.is_empty() {
        let skipped = history_of(run)?.skipped();
        let steps = format!("{skipped} {}", if skipped == 1 { "step was" } else { "steps were" });
        return Ok(match (file.options.monitor, skipped) {
            (false, _) => format!("{} was not monitored (`monitor: false`); {steps} skipped\n", shown(run)),
            (true, 0) => format!("no step of {} met a number that was not finite\n", shown(run)),
            (true, _) => format!("no fault of {} is saved; {steps} skipped\n", shown(run)),
        });
    }
    Ok(faults.iter().fold(String::new(), |text, (folder, fault)| {
        let line = format!("step {}: {}", fault.step, fault.origin);
        format!("{text}{}\n  {} replay {}\n", printable_lines(&line), cli.program, word(folder))
    }))
}

/// Returns the results from which a faulty one was computed, the oldest first: at each step the largest.
fn chain(record: &Record, at: usize) -> Vec<&Edge> {
    let (mut at, mut chain) = (at, Vec::new());
    while chain.len() < SHOWN {
        let from = record.edges[at].from.iter().copied();
        let Some(before) = from.max_by(|&a, &b| record.edges[a].numbers.amax.total_cmp(&record.edges[b].numbers.amax))
        else {
            break;
        };
        chain.push(&record.edges[before]);
        at = before;
    }
    chain.reverse();
    chain
}
