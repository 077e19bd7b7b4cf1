//! Ranks started by a launcher, on the MPI library that it has: bits, words and exit codes.
//!
//! The launchers are those of `PRECAST_MPIRUN`, paths divided as in `PATH`, or `mpirun` of `PATH`. Without any, the tests
//! say that they were left out.
#![cfg(unix)]

mod worker;

use std::{
    env,
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// One job at a time: ranks wait by spinning.
static ONE: Mutex<()> = Mutex::new(());

/// The time after which a job hangs: far above the deadline of its ranks.
const HANGS: Duration = Duration::from_secs(90);

/// The deadline of ranks, in seconds.
const PATIENCE: &str = "2";

struct Launcher {
    path: PathBuf,
    is_open_mpi: bool,
}

struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ended {
    /// The words of the job, for messages.
    fn said(&self) -> String {
        format!("code {:?}\n{}\n{}", self.code, self.stdout, self.stderr)
    }
}

fn left_out(words: &str) {
    // Not by a macro, whose output the harness keeps to itself.
    let _ = std::io::stderr().write_all(format!("LEFT OUT: {words}\n").as_bytes());
}

/// Returns the launchers of this machine.
fn launchers() -> Vec<Launcher> {
    let chosen = env::var_os("PRECAST_MPIRUN").map(|paths| env::split_paths(&paths).collect::<Vec<_>>());
    let in_path = || {
        let path = env::var_os("PATH").unwrap_or_default();
        let found = env::split_paths(&path).map(|folder| folder.join("mpirun")).find(|path| path.exists());
        found.into_iter().collect()
    };
    let launcher = |path: PathBuf| {
        let version = command(&path).arg("--version").output().ok()?;
        let is_open_mpi = String::from_utf8_lossy(&version.stdout).contains("Open MPI");
        Some(Launcher { path, is_open_mpi })
    };
    let found: Vec<Launcher> = chosen.unwrap_or_else(in_path).into_iter().filter_map(launcher).collect();
    if found.is_empty() {
        left_out("no `mpirun` is in PATH; `apt-get install openmpi-bin` or `pip install mpich` has one");
    }
    found
}

/// Returns a command without what this process has of another job.
fn command(path: &Path) -> Command {
    let mut command = Command::new(path);
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env_remove("PRECAST_MPI").env("PRECAST_PATIENCE", PATIENCE).stdin(Stdio::null());
    command
}

impl Launcher {
    /// Runs the work of `worker` on so many ranks.
    fn run(&self, ranks: usize, work: &str) -> Ended {
        self.run_with(ranks, work, |_| ())
    }

    fn run_with(&self, ranks: usize, work: &str, change: impl FnOnce(&mut Command)) -> Ended {
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut command = command(&self.path);
        if self.is_open_mpi {
            command.arg("--oversubscribe");
        }
        command.args(["-n", &ranks.to_string()]).arg(env::current_exe().unwrap());
        command.args(["--exact", "worker::worker", "--nocapture"]).env(worker::WORK, work);
        change(&mut command);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (mut stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let reads = [
            thread::spawn(move || {
                let mut bytes = Vec::new();
                let _ = stdout.read_to_end(&mut bytes);
                bytes
            }),
            thread::spawn(move || {
                let mut bytes = Vec::new();
                let _ = stderr.read_to_end(&mut bytes);
                bytes
            }),
        ];
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if begun.elapsed() > HANGS {
                let _ = child.kill();
                panic!("{}: `{work}` on {ranks} ranks hangs", self.path.display());
            }
            thread::sleep(Duration::from_millis(10));
        };
        let [stdout, stderr] = reads.map(|read| String::from_utf8_lossy(&read.join().unwrap()).into_owned());
        Ended { code: status.code(), stdout, stderr }
    }
}

/// Lines of the work, which begin with `met`.
fn met(ended: &Ended) -> Vec<&str> {
    ended.stdout.lines().filter_map(|line| Some(line.split_once("met ")?.1)).collect()
}

#[test]
fn sums_have_the_bits_of_one_process_on_every_mpi() {
    let expected = worker::sum_of_threads();
    for launcher in launchers() {
        for ranks in 1..=4 {
            let ended = launcher.run(ranks, "sum");
            assert_eq!(ended.code, Some(0), "{}", ended.said());
            assert_eq!(met(&ended), [format!("{ranks} ranks, {expected:016x}")], "{}", ended.said());
        }
    }
}

#[test]
fn messages_are_cut() {
    let expected = worker::sum_of_threads();
    for launcher in launchers() {
        let ended = launcher.run(3, "cut");
        assert_eq!(ended.code, Some(0), "{}", ended.said());
        assert_eq!(met(&ended), [format!("3 ranks, {expected:016x}")], "{}", ended.said());
    }
}

#[test]
fn an_error_of_one_rank_is_that_of_all() {
    for launcher in launchers() {
        let ended = launcher.run(3, "agree 1");
        assert_eq!(ended.code, Some(0), "{}", ended.said());
        assert_eq!(met(&ended), ["rank 1: no space is left"; 3], "{}", ended.said());
    }
}

#[test]
fn a_panic_ends_all_ranks() {
    for launcher in launchers() {
        for rank in 0..3 {
            let ended = launcher.run(3, &format!("panic {rank}"));
            assert_ne!(ended.code, Some(0), "{}", ended.said());
            let words = format!("rank {rank}: a panic ends all ranks, step 5");
            assert!(ended.stderr.contains(&words), "{}", ended.said());
            assert!(ended.stderr.contains("planted"), "{}", ended.said());
        }
    }
}

#[test]
fn a_rank_that_is_killed_ends_all() {
    for launcher in launchers() {
        for rank in 0..3 {
            let ended = launcher.run(3, &format!("kill {rank}"));
            assert_ne!(ended.code, Some(0), "{}", ended.said());
        }
    }
}

#[test]
fn a_rank_that_is_stopped_ends_all_after_the_deadline() {
    for launcher in launchers() {
        for rank in 0..3 {
            let ended = launcher.run(3, &format!("stop {rank}"));
            assert_ne!(ended.code, Some(0), "{}", ended.said());
            let words = format!("rank {rank} has not answered for {PATIENCE} s, step 5");
            assert!(ended.stderr.contains(&words), "{}", ended.said());
        }
    }
}

#[test]
fn an_error_that_only_one_rank_has_ends_all() {
    for launcher in launchers() {
        let ended = launcher.run(3, "abort 2");
        assert_ne!(ended.code, Some(0), "{}", ended.said());
        assert!(ended.stderr.contains("rank 2: planted, step 5"), "{}", ended.said());
        let ended = launcher.run(3, "exit 1");
        assert_ne!(ended.code, Some(0), "{}", ended.said());
    }
}

#[test]
fn a_rank_that_makes_another_call_ends_all() {
    for launcher in launchers() {
        for work in ["more 1", "fewer 1"] {
            let ended = launcher.run(3, work);
            assert_ne!(ended.code, Some(0), "{}", ended.said());
            assert!(ended.stderr.contains("makes another call"), "{}", ended.said());
            // Of a rank that waits for rank 1, or of rank 1, which may be a step ahead.
            assert!(["step 5", "step 6"].iter().any(|step| ended.stderr.contains(step)), "{}", ended.said());
        }
    }
}

/// Two ranks alone would each train everything, and overwrite each other's files.
#[test]
fn the_mpi_of_another_launcher_is_refused() {
    let all = launchers();
    let library = |launcher: &Launcher| {
        let folder = launcher.path.canonicalize().ok()?.parent()?.parent()?.join("lib");
        let names: &[&str] = if launcher.is_open_mpi { &["libmpi.so.40"] } else { &["libmpi.so.12", "libmpich.so.12"] };
        names.iter().map(|name| folder.join(name)).find(|path| path.exists())
    };
    let mut tried = false;
    for (launcher, other) in all.iter().flat_map(|one| all.iter().map(move |other| (one, other))) {
        if launcher.is_open_mpi == other.is_open_mpi {
            continue;
        }
        let Some(library) = library(other) else { continue };
        tried = true;
        let ended = launcher.run_with(2, "sum", |command| {
            command.env("PRECAST_MPI", &library);
        });
        assert_ne!(ended.code, Some(0), "{}", ended.said());
        let refused = ended.stderr.contains("not the MPI of this launcher") || ended.stderr.contains("the launcher is");
        assert!(refused, "{}", ended.said());
    }
    if !tried {
        left_out("the MPI of another launcher: PRECAST_MPIRUN does not name two launchers with their libraries");
    }
}

#[test]
fn a_library_that_is_missing_or_another_is_named() {
    for launcher in launchers() {
        for (library, words) in [("/nowhere/libmpi.so", "/nowhere/libmpi.so"), ("libc.so.6", "MPI")] {
            let ended = launcher.run_with(2, "sum", |command| {
                command.env("PRECAST_MPI", library);
            });
            assert_ne!(ended.code, Some(0), "{}", ended.said());
            assert!(ended.stderr.contains(words), "{}", ended.said());
        }
    }
}
