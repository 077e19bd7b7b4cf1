//! `precast train` under a launcher of several processes: rank 0 is the command, the others take part in its steps and say
//! nothing.

use std::{cell::Cell, env, sync::atomic::Ordering};

use precast::ErrorKind;
use precast_mpi::{Cores, Ranks};
use precast_train::{Follower, RunFile};

use super::{Cli, Failure, Result, lead::Lead, run, train_args::Args};

/// Runs `precast train` on every rank.
pub(super) fn train(cli: &Cli, args: &Args) -> Result {
    let ranks = Ranks::of_launcher().map_err(|error| Failure::Usage(error.to_string()))?;
    ranks.abort_on_panic();
    let cores = Cores::here();
    if env::var_os("PRECAST_THREADS").is_none_or(|threads| threads.is_empty()) {
        precast::set_threads(cores.threads());
    }
    let result = if ranks.rank() == 0 {
        if let Some(advice) = cores.advice() {
            run::say_line(&advice);
        }
        let lead = Lead { ranks: &ranks, has_begun: Cell::new(false) };
        let result = begin(cli, args, &lead);
        if let (Err(failure), false) = (&result, lead.has_begun.get()) {
            // The others wait for a run.
            let _ = ranks.agree(Err::<(), _>(failure.words()));
        }
        result
    } else {
        run::listen();
        follow(cli, &ranks)
    };
    // Before the others end, so that the launcher does not cut off the words.
    let result = result.map_err(|failure| Failure::Said(failure.say()));
    if let Err(error) = ranks.barrier() {
        match &result {
            Err(_) => ranks.abort("a rank has failed, and not all have ended"),
            Ok(()) => ranks.abort(&error),
        }
    }
    ranks.finish().map_err(Failure::work).and(result)
}

fn begin(cli: &Cli, args: &Args, lead: &Lead<'_>) -> Result {
    if let Some(folder) = &args.resume {
        return run::resume(cli, args, folder, Some(lead));
    }
    // A run file that does not exist has a message of its own.
    if !run::is_run_file(&args.model) && (args.model.is_file() || cli.named(&args.model.to_string_lossy(), 0).is_ok()) {
        let words = "several processes train one run file; levels are compared on the digits without a launcher";
        return Err(Failure::Usage(words.into()));
    }
    if args.policy.len() > 1 {
        return Err(Failure::Usage("several processes train under one policy at a time, got several --policy".into()));
    }
    run::begin(cli, args, Some(lead))
}

/// Takes part in the run of rank 0. An error that all ranks have is for rank 0 to say.
fn follow(cli: &Cli, ranks: &Ranks) -> Result {
    let model = |file: &RunFile| run::model(cli, file).map_err(|failure| precast::Error::model(failure.words()));
    match Follower::receive(ranks, model)
        .and_then(|follower| follower.follow(ranks, || run::STOP.load(Ordering::Relaxed)))
    {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::Ranks => Ok(()),
        Err(error) => {
            ranks.abort(&error);
            Err(Failure::work(error))
        }
    }
}
