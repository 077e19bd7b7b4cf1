//! The bits of runs on 1 to 4 ranks, with 1 and 2 threads, beside those of one process.

use std::process::Command;

use super::{
    Setup,
    job::Job,
    runs::{self, NETWORKS},
    tally::Tally,
};
use crate::shell::Result;

pub fn run(setup: &Setup, _: usize) -> Result<usize> {
    let mut tally = Tally::new("bits");
    for network in NETWORKS {
        let folder = setup.folder("bits")?;
        let run = network.write(&folder, "")?;
        let one = folder.join("one");
        let mut command = Command::new(&setup.precast);
        Job::start(runs::train(&mut command, &run, &one).env("PRECAST_THREADS", "1"), &one)?.end().well()?;
        if runs::steps(&one) != 20 {
            return Err(format!("{} takes {} steps, not 20", network.name, runs::steps(&one)));
        }
        for (launcher, ranks, threads) in setup.launchers.iter().flat_map(|launcher| {
            [1, 2, 3, 4].into_iter().flat_map(move |ranks| [1, 2].map(|threads| (launcher, ranks, threads)))
        }) {
            let met = folder.join(format!("{}-{ranks}-{threads}", launcher.name.replace(' ', "-")));
            let mut command = launcher.command(ranks, &setup.precast);
            runs::train(&mut command, &run, &met).env("PRECAST_THREADS", threads.to_string());
            let ended = Job::start(&mut command, &met)?.end();
            let verdict = ended.well().and_then(|()| runs::compare(&one, &met));
            let family = format!("{}, {}", network.name, launcher.name);
            tally.count(&family, &format!("{ranks} ranks, {threads} threads"), &ended, verdict);
        }
    }
    Ok(tally.print())
}
