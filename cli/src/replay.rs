//! `precast replay`: a faulty step of a run, run again, and its cure.

use std::path::PathBuf;

use precast::diagnose::{Edge, Record};
use precast_policy::printable_lines;
use precast_train::{Replay, RunFile};

use super::{Cli, Failure, Result, print, run::model};

/// Run the step of a saved fault again, look at every number of it, and find its cure
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  precast replay runs/mlp/faults/step-12           where the first number that is not finite came from
  precast replay runs/mlp/faults/step-12 --cure    the rules and the loss scale with which the step is sound")]
pub(super) struct Args {
    /// The folder of the fault, in that of its run
    folder: PathBuf,
    /// Find the rules and the loss scale with which the step is sound, by running it with them
    #[arg(long)]
    cure: bool,
}

/// Maximum number of results shown before the faulty one.
const SHOWN: usize = 6;

pub(super) fn run(cli: &Cli, args: &Args) -> Result {
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
                print(printable_lines(&format!("\nwith this change of the policy, the step is sound:\n{cure}")))?
            }
            None => return Err(Failure::Work("no rules and no loss scale make the step sound".into())),
        }
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
