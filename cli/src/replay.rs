//! `precast replay`: a faulty step of a run, run again, and its cure.

use std::path::{Path, PathBuf};

use precast::diagnose::{Edge, Record};
use precast_policy::{files, printable_lines};
use precast_train::{Replay, RunFile, SavedFault};

use super::{
    Cli, Failure, Result,
    inputs::{Output, shown, word},
    print,
    run::model,
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
    args.output.check()?;
    if args.output.file.is_some() && !args.cure {
        return Err(Failure::Usage("--output is for the policy of --cure".into()));
    }
    if args.folder.join("run.yaml").is_file() {
        return list(cli, &args.folder);
    }
    let file = RunFile::of_folder(Replay::run_of(&args.folder)?)?;
    let mut replay = Replay::open(&args.folder, model(cli, &file)?)?;
    let replayed = replay.run().map_err(Failure::work)?;
    let fault = replay.fault();
    let text = format!(
        "step {}, epoch {}, batch {}: {}\n",
        fault.step,
        fault.epoch + 1,
        fault.batch + 1,
        replayed.step.outcome
    );
    print(printable_lines(&text))?;
    match replayed.record.fault() {
        Some(fault) => {
            for edge in chain(&replayed.record, fault.at) {
                let numbers = &edge.numbers;
                let text = format!("  {:9.3e}  {edge}\n", numbers.amax);
                print(printable_lines(&text))?;
            }
            print(printable_lines(&format!("first: {fault}\n")))?;
        }
        None => print("every number is sound\n")?,
    }
    let same = if replayed.is_same { "the same" } else { "not the same" };
    print(format_args!("the largest magnitudes of all {} results are {same} as in the run\n", fault.results.len()))?;
    if args.cure {
        match replay.cure().map_err(Failure::work)? {
            Some(cure) => {
                let text =
                    format!("\nwith this change of the policy, this step is sound; no other was run with it:\n{cure}");
                print(printable_lines(&text))?;
                if let Some(to) = &args.output.file {
                    let cured = cure.apply(&file.read_policy()?)?.to_yaml()?;
                    files::replace(to, cured.as_bytes()).map_err(Failure::work)?;
                    print(format_args!("written: {}", shown(to)))?;
                }
            }
            None => {
                let why = replay.not_by_precision().map_err(Failure::work)?;
                return Err(Failure::Work(why.unwrap_or("no rules and no loss scale make the step sound".into())));
            }
        }
    }
    Ok(())
}

/// Prints the faults of a run, each with the command that runs its step again.
fn list(cli: &Cli, run: &Path) -> Result {
    let faults = SavedFault::all(run)?;
    if faults.is_empty() {
        return print(format_args!("no step of {} met a number that was not finite\n", shown(run)));
    }
    for (folder, fault) in faults {
        let text = format!("step {}: {}\n", fault.step, fault.origin);
        print(printable_lines(&text))?;
        print(format_args!("  {} replay {}\n", cli.program, word(&folder)))?;
    }
    Ok(())
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
