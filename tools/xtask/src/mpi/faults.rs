//! Runs on 4 ranks with a fault: all ranks go on alike, or all end, with words that name the rank.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{
    Setup,
    job::{Ended, Job},
    launcher::Launcher,
    runs::{self, POINTS, put},
    tally::Tally,
};
use crate::shell::Result;

const RANKS: usize = 4;

/// The deadline of ranks, one of which is stopped, in seconds. Others have the usual one, as a disk may be slow.
const PATIENCE: &str = "3";

/// The epochs of a run that does not end by itself.
const ENDLESS: usize = 1_000_000;

/// A scale with which ordinary numbers do not overflow.
const POLICY: &str = "version: 1\nlevel: O2\ndtype: float16\nloss_scale: {kind: dynamic, init: 256}\n";

/// Starts a command in the folder of its rank.
const IN_FOLDER_OF_RANK: &str = r#"cd "$0/${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" && exec "$@""#;

/// The end of a run with a fault, and the verdict on it, whose error says what is wrong. `None` if this machine cannot have
/// the fault.
type Met = Result<Option<(Ended, Result)>>;

/// A family of faults.
struct Family {
    name: &'static str,
    run: fn(&Try) -> Met,
}

const FAMILIES: [Family; 12] = [
    Family { name: "overflow in a shard", run: |of| of.spoilt("40000", "overflow") },
    Family { name: "loss that is not finite", run: |of| of.spoilt("1e30", "loss") },
    Family { name: "panic", run: |of| of.planted(true) },
    Family { name: "error", run: |of| of.planted(false) },
    Family { name: "SIGSTOP", run: |of| of.signalled("-STOP") },
    Family { name: "SIGKILL", run: |of| of.signalled("-KILL") },
    Family { name: "SIGINT", run: |of| of.interrupted() },
    Family { name: "folder that rank 0 alone sees", run: |of| of.hidden_folder() },
    Family { name: "full disk", run: |of| of.full() },
    Family { name: "library of another launcher", run: |of| of.of_another_launcher() },
    Family { name: "other data on a rank", run: |of| of.other_data(&points("1.5")) },
    Family { name: "unreadable data on a rank", run: |of| of.other_data("x,y,class\n1,two,0\n") },
];

/// One run with a fault.
struct Try<'s> {
    setup: &'s Setup,
    launcher: &'s Launcher,
    folder: PathBuf,
    /// The number of this one in its family, from which rank and step follow.
    number: usize,
}

pub fn run(setup: &Setup, tries: usize) -> Result<usize> {
    let mut tally = Tally::new("faults");
    for n in 0..tries {
        let launcher = &setup.launchers[n % setup.launchers.len()];
        let n = n / setup.launchers.len();
        let (family, number) = (&FAMILIES[n % FAMILIES.len()], n / FAMILIES.len());
        let of = Try { setup, launcher, folder: setup.folder("faults")?, number };
        match (family.run)(&of)? {
            Some((ended, verdict)) => {
                tally.count(family.name, &format!("{}, number {number}", launcher.name), &ended, verdict);
            }
            None => println!("LEFT OUT: {}", family.name),
        }
    }
    Ok(tally.print())
}

/// Returns the words of a rank that names this one among those that do not answer, or what was expected.
fn silent(ended: &Ended, rank: usize) -> String {
    let names = |line: &&str| {
        let who = line.split_once(&format!(" not answered for {PATIENCE} s, step ")).map_or("", |(who, _)| who);
        let all = who.rsplit("rank").next().unwrap_or_default().split(|letter: char| !letter.is_ascii_digit());
        all.into_iter().any(|met| met == rank.to_string())
    };
    let expected = || format!("rank {rank} has not answered for {PATIENCE} s, step");
    ended.said.lines().find(names).map_or_else(expected, str::to_string)
}

/// The text of a table of points, with this number in one of each class, of which a network has one wrong.
fn points(number: &str) -> String {
    let mut text = String::from("x,y,class\n");
    for i in 0..200 {
        let x = if i / 2 == 50 { number.into() } else { format!("{}.5", i * 7 % 11) };
        text += &format!("{x},{}.25,{}\n", i * 5 % 13, i % 2);
    }
    text
}

impl Try<'_> {
    fn rank(&self) -> usize {
        self.number % RANKS
    }

    fn step(&self) -> usize {
        2 + 3 * self.number % 10
    }

    /// Writes tables and a policy, and returns the keys of a run file.
    fn keys(&self, number: &str, epochs: usize) -> Result<String> {
        put(&self.folder.join("points.csv"), &points(number))?;
        put(&self.folder.join("test.csv"), &points("0.5"))?;
        put(&self.folder.join("policy.yaml"), POLICY)?;
        let seed = self.number;
        Ok(format!(
            "data: {{csv: {{file: points.csv, target: class}}}}\nstandardize: false\nepochs: {epochs}\nseed: {seed}\n"
        ))
    }

    /// Writes a run that never ends, and returns its run file.
    fn endless(&self) -> Result<PathBuf> {
        POINTS.write(&self.folder, &self.keys("0.5", ENDLESS)?)
    }

    /// Returns a command of all ranks.
    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.launcher.command(RANKS, program)
    }

    /// Trains in one process.
    fn alone(&self, run: &Path, folder: &Path) -> Result {
        Job::start(runs::train(&mut Command::new(&self.setup.precast), run, folder), folder)?.end().well()
    }

    /// Starts to train on all ranks.
    fn start(&self, run: &Path, folder: &Path) -> Result<Job> {
        Job::start(runs::train(&mut self.command(&self.setup.precast), run, folder), folder)
    }

    /// Trains on a table with a number that spoils a shard, and compares with one process.
    fn spoilt(&self, number: &str, cause: &str) -> Met {
        let run = POINTS.write(&self.folder, &self.keys(number, 4)?)?;
        let (one, met) = (self.folder.join("one"), self.folder.join("met"));
        self.alone(&run, &one)?;
        if !runs::skipped(&one).iter().any(|met| met.contains(cause)) {
            return Err(format!("no step is skipped for `{cause}`: {:?}", runs::skipped(&one)));
        }
        let ended = self.start(&run, &met)?.end();
        let verdict = ended.well().and_then(|()| runs::compare(&one, &met));
        Ok(Some((ended, verdict)))
    }

    /// Trains with a cell that panics, or returns an error.
    fn planted(&self, panics: bool) -> Met {
        let (rank, step) = (self.rank(), self.step());
        // A rank has two of the eight shards.
        let call = 2 * step + self.number % 2;
        let cell = format!("{{kind: Planted, panics: {panics}, rank: {rank}, call: {call}}}");
        let run = POINTS.write_planted(&self.folder, &self.keys("0.5", ENDLESS)?, &cell)?;
        let met = self.folder.join("met");
        let ended = Job::start(runs::train(&mut self.command(&self.setup.planted), &run, &met), &met)?.end();
        let words = match panics {
            true => vec!["planted".into(), format!("rank {rank}: a panic ends all ranks, step ")],
            false => vec![format!("rank {rank}: in cell `0`"), "planted".into()],
        };
        let verdict = ended.badly(&words);
        Ok(Some((ended, verdict)))
    }

    /// Sends a rank a signal after some steps.
    fn signalled(&self, signal: &str) -> Met {
        let (run, met, rank) = (self.endless()?, self.folder.join("met"), self.rank());
        let mut command = self.command(&self.setup.precast);
        command.env("PRECAST_PATIENCE", PATIENCE);
        let mut job = Job::start(runs::train(&mut command, &run, &met), &met)?;
        let was_there = job.until(|| runs::steps(&met) >= self.step()) && job.signal(signal, rank);
        let ended = job.end();
        let words: Vec<String> = match (signal, self.launcher.is_open_mpi) {
            ("-STOP", _) => vec![silent(&ended, rank)],
            // The launcher ends the other ranks at once; that of MPICH names the process and not the rank.
            (_, true) => vec![format!("process rank {rank} "), "signal 9".into()],
            (_, false) => vec!["BAD TERMINATION".into(), "signal 9".into()],
        };
        let verdict = match was_there {
            true => ended.badly(&words),
            false => Err(format!("rank {rank} was not there to get {signal}")),
        };
        Ok(Some((ended, verdict)))
    }

    /// Sends SIGINT to a rank: all end after the same step.
    fn interrupted(&self) -> Met {
        let (run, met) = (self.endless()?, self.folder.join("met"));
        let mut job = self.start(&run, &met)?;
        let was_there = job.until(|| runs::steps(&met) >= self.step()) && job.signal("-INT", self.rank());
        let ended = job.end();
        let steps = runs::steps(&met);
        let mut verdict = ended.badly(&[format!("interrupted after step {steps};")]);
        if !was_there || !met.join(format!("checkpoint-{steps:09}.safetensors")).exists() {
            verdict = Err(format!("no checkpoint after step {steps}"));
        }
        Ok(Some((ended, verdict)))
    }

    /// Trains into a relative path, with each rank in a folder of its own.
    fn hidden_folder(&self) -> Met {
        let run = POINTS.write(&self.folder, &self.keys("0.5", 4)?)?;
        for rank in 0..RANKS {
            self.setup.folder(format!("faults/{rank}"))?;
        }
        let (one, met) = (self.folder.join("one"), self.folder.join("0/met"));
        self.alone(&run, &one)?;
        let mut command = self.command("sh");
        command.args(["-c", IN_FOLDER_OF_RANK]).args([&self.folder, &self.setup.precast]);
        let command = runs::train(&mut command, &run, Path::new("met"));
        let ended = Job::start(command, &self.folder.join("met"))?.end();
        let mut verdict = ended.well().and_then(|()| runs::compare(&one, &met));
        if (1..RANKS).any(|rank| self.folder.join(format!("{rank}/met")).exists()) {
            verdict = Err("a rank other than 0 has made a folder".into());
        }
        Ok(Some((ended, verdict)))
    }

    /// Trains in a folder on a disk that is soon full.
    fn full(&self) -> Met {
        let (run, disk) = (self.endless()?, self.folder.join("disk"));
        fs::create_dir_all(&disk).map_err(|error| crate::shell::in_file(&disk, error))?;
        let Some(_disk) = Disk::mount(&disk, 64 + 16 * self.number) else { return Ok(None) };
        let (met, words) = (disk.join("met"), self.folder.join("met"));
        let ended = Job::start(runs::train(&mut self.command(&self.setup.precast), &run, &met), &words)?.end();
        let verdict = ended.badly(&["No space left on device".into(), met.display().to_string()]);
        Ok(Some((ended, verdict)))
    }

    fn of_another_launcher(&self) -> Met {
        let other = self.setup.launchers.iter().find(|other| other.is_open_mpi != self.launcher.is_open_mpi);
        let Some(library) = other.and_then(Launcher::library) else { return Ok(None) };
        let (run, met) = (self.endless()?, self.folder.join("met"));
        let mut command = self.command(&self.setup.precast);
        command.env("PRECAST_MPI", library);
        let ended = Job::start(runs::train(&mut command, &run, &met), &met)?.end();
        let verdict = ended.badly(&["launcher".into()]);
        Ok(Some((ended, verdict)))
    }

    /// Trains with other data, in a file of the same name, on a rank other than 0.
    fn other_data(&self, text: &str) -> Met {
        let other = 1 + self.number % (RANKS - 1);
        for rank in 0..RANKS {
            let folder = self.setup.folder(format!("faults/{rank}"))?;
            put(&folder.join("points.csv"), &if rank == other { text.into() } else { points("0.5") })?;
        }
        let keys = self.keys("0.5", ENDLESS)?.replace("points.csv", "/proc/self/cwd/points.csv");
        let (run, met) = (POINTS.write(&self.folder, &keys)?, self.folder.join("met"));
        let mut command = self.command("sh");
        command.args(["-c", IN_FOLDER_OF_RANK]).args([&self.folder, &self.setup.precast]);
        let ended = Job::start(runs::train(&mut command, &run, &met), &met)?.end();
        let mut verdict = ended.badly(&[format!("rank {other}: this rank"), "has not the data of rank 0".into()]);
        if verdict.is_ok() && met.exists() {
            verdict = Err("it has left a folder".into());
        }
        Ok(Some((ended, verdict)))
    }
}

/// A small disk in memory, unmounted with this value.
struct Disk<'p>(&'p Path);

impl<'p> Disk<'p> {
    /// Mounts so many KiB, which only root may.
    fn mount(folder: &'p Path, kib: usize) -> Option<Self> {
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &format!("size={kib}k"), "tmpfs"]).arg(folder);
        command.output().is_ok_and(|met| met.status.success()).then_some(Disk(folder))
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}
