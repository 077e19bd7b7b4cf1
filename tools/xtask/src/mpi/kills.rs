//! Runs on 4 ranks, one of which is killed, and which 1, 2 and 3 ranks continue: the bits of a run that was not stopped.

use std::{fs, path::Path, process::Command};

use super::{
    Setup,
    job::Job,
    launcher::Launcher,
    runs::{self, LARGE},
    tally::Tally,
};
use crate::shell::{Result, in_file};

/// Attempts to hit a place.
const ATTEMPTS: usize = 20;

/// A place in a run at which a rank is killed.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// When the run file is there, and no checkpoint.
    BeforeCheckpoints,
    AfterFirstCheckpoint,
    AfterStep(usize),
    /// While a checkpoint is written after this step. Rank 0 is killed, which writes it.
    InCheckpoint(usize),
}

use Place::{AfterFirstCheckpoint, AfterStep, BeforeCheckpoints, InCheckpoint};

const PLACES: [Place; 10] = [
    BeforeCheckpoints,
    AfterFirstCheckpoint,
    AfterStep(1),
    AfterStep(4),
    InCheckpoint(6),
    AfterStep(9),
    AfterStep(12),
    AfterStep(16),
    InCheckpoint(18),
    // In the last step.
    AfterStep(19),
];

impl Place {
    /// Returns whether a run is there.
    fn is_met(self, folder: &Path) -> bool {
        match self {
            BeforeCheckpoints => folder.join("run.yaml").exists(),
            AfterFirstCheckpoint => has(folder, "checkpoint-"),
            AfterStep(steps) => runs::steps(folder) >= steps,
            InCheckpoint(steps) => runs::steps(folder) >= steps && has(folder, ".precast-"),
        }
    }

    /// Returns whether a run was killed there.
    fn is_hit(self, folder: &Path) -> bool {
        match self {
            BeforeCheckpoints => folder.join("run.yaml").exists() && !has(folder, "checkpoint-"),
            InCheckpoint(_) => has(folder, ".precast-"),
            _ => !folder.join("last.safetensors").exists(),
        }
    }
}

fn has(folder: &Path, start: &str) -> bool {
    let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.into_iter().any(|name| name.to_string_lossy().starts_with(start))
}

pub fn run(setup: &Setup, _: usize) -> Result<usize> {
    let mut tally = Tally::new("kills");
    let folder = setup.folder("kills")?;
    let run = LARGE.write(&folder, "")?;
    let one = folder.join("one");
    Job::start(runs::train(&mut Command::new(&setup.precast), &run, &one), &one)?.end().well()?;
    for launcher in &setup.launchers {
        for (i, place) in PLACES.into_iter().enumerate() {
            let rank = if matches!(place, InCheckpoint(_)) { 0 } else { i % 4 };
            let killed = folder.join("killed");
            kill(setup, launcher, (&run, &killed), place, rank)?;
            println!("{}: rank {rank} killed {place:?}, after {} steps", launcher.name, runs::steps(&killed));
            for ranks in 1..=3 {
                let resumed = folder.join("resumed");
                copy(&killed, &resumed)?;
                let mut command = launcher.command(ranks, &setup.precast);
                let ended = Job::start(runs::resume(&mut command, &resumed), &resumed)?.end();
                let verdict = ended.well().and_then(|()| runs::compare(&one, &resumed));
                let what = format!("rank {rank} killed {place:?}, resumed by {ranks} ranks");
                tally.count(&launcher.name, &what, &ended, verdict);
            }
        }
    }
    Ok(tally.print())
}

/// Kills a rank of a run at a place.
fn kill(setup: &Setup, launcher: &Launcher, (run, killed): (&Path, &Path), place: Place, rank: usize) -> Result {
    for _ in 0..ATTEMPTS {
        let _ = fs::remove_dir_all(killed);
        let mut command = launcher.command(4, &setup.precast);
        let mut job = Job::start(runs::train(&mut command, run, killed), killed)?;
        let was_there = job.until(|| place.is_met(killed)) && job.signal("-KILL", rank);
        let ended = job.end();
        if ended.is_hung || was_there && ended.code == Some(0) {
            return Err(ended.shown(&format!("rank {rank} was killed {place:?}")));
        }
        if was_there && place.is_hit(killed) {
            return Ok(());
        }
    }
    Err(format!("in {ATTEMPTS} attempts no run was killed {place:?}"))
}

/// Copies a folder of files.
fn copy(from: &Path, to: &Path) -> Result {
    let copied = (|| {
        let _ = fs::remove_dir_all(to);
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
        Ok::<(), std::io::Error>(())
    })();
    copied.map_err(|error| in_file(to, error))
}
