//! Ranks started by `mpirun`, on the MPI library that this program is linked with: bits, errors, exit codes. Without
//! `mpirun` the tests say that they were left out.

use std::{
    env,
    io::{Read as _, Write as _},
    path::PathBuf,
    process::{self, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use precast_mpi::{Engine, Error, ErrorKind, Mpi, Node, Ranks, Result, Shards, Threads, Tree, Wire};
use precast_rsmpi::Linked;

/// The environment variable with the work of a rank, which is this program, started again.
const WORK: &str = "PRECAST_RSMPI_TEST";

const SHARDS: usize = 6;
const LEN: usize = 50_021;

/// The time after which a job hangs.
const HANGS: Duration = Duration::from_secs(60);

/// Numbers with 24 random bits, whose sums are inexact.
fn numbers(shard: usize) -> Vec<f32> {
    let mut state = shard as u64 + 1;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / 16_777_216.0 - 0.5
    };
    (0..LEN).map(|_| next()).collect()
}

/// Returns a checksum of the sum over all shards, which is the same on all ranks.
fn sum(ranks: &Ranks) -> Result<u64> {
    let mut tree = Tree::default();
    for shard in Shards::new(SHARDS, ranks.size())?.run(ranks.rank()) {
        tree.push_with(Node::shard(shard), numbers(shard), |left: &mut Vec<f32>, right| {
            left.iter_mut().zip(right).for_each(|(left, right)| *left += right);
        });
    }
    let sums = tree.into_values();
    let mut total = vec![0.0; LEN];
    let slices: Vec<&[f32]> = sums.iter().map(Vec::as_slice).collect();
    ranks.exchange(SHARDS, Wire::Float32)?.with_bucket(1 << 12)?.sum(&slices, &mut total)?;
    let checksum = total
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum: u64, x| (sum ^ u64::from(x.to_bits())).wrapping_mul(0x100_0000_01b3));
    ranks.vote(&[checksum])?.equal(0, "checksum")
}

#[test]
fn worker() {
    let Ok(work) = env::var(WORK) else { return };
    if let Err(error) = run(&work) {
        let _ = writeln!(std::io::stderr(), "error: {error}");
        process::exit(3);
    }
}

fn run(work: &str) -> Result<()> {
    // Dropped by a panic, it finalizes MPI, which waits for all ranks.
    let universe = if work == "panic over a universe" { mpi::initialize() } else { None };
    let ranks = Ranks::new(Box::new(match &universe {
        Some(universe) => Linked::over(&universe.world())?,
        None => Linked::initialize()?,
    }));
    ranks.abort_on_panic();
    match work {
        "sum" => {
            // The library is found again at run time, and has been initialized.
            let loaded = Ranks::new(Box::new(Mpi::load()?));
            let (linked, loaded) = (ranks.or_abort(sum(&ranks))?, ranks.or_abort(sum(&loaded))?);
            if ranks.rank() == 0 {
                say(&format!("{} ranks, {linked:016x}, {loaded:016x}", ranks.size()));
            }
        }
        "error" => say(&ranks.or_abort(truncated(ranks.engine()))?.to_string()),
        _ => {
            for step in 0.. {
                ranks.set_step(step);
                ranks.or_abort(ranks.barrier())?;
                if step == 5 && ranks.rank() == 1 {
                    match work {
                        "abort" => ranks.abort("planted"),
                        "exit" => process::exit(7),
                        _ => panic!("planted"),
                    }
                }
            }
        }
    }
    ranks.finish()
}

/// Returns the error of a message that is longer than the memory for it, on rank 0 that of a rank that there is not.
fn truncated(engine: &dyn Engine) -> Result<Error> {
    let mut pending = match engine.rank() {
        0 => vec![engine.send(1, 3, Arc::new(vec![1; 100]))?],
        1 => vec![engine.receive(0, 3, vec![0; 10])?],
        _ => Vec::new(),
    };
    while let Some(message) = pending.last() {
        match engine.poll(message) {
            Ok(None) => thread::yield_now(),
            Ok(Some(_)) => drop(pending.pop()),
            Err(error) => return Ok(error),
        }
    }
    let refused = engine.send(engine.size(), 3, Arc::default()).err();
    refused.ok_or_else(|| Error::new(ErrorKind::Mpi, "a message to nobody was sent"))
}

/// Writes a line in one piece, as other ranks write as well.
fn say(words: &str) {
    let _ = std::io::stdout().write_all(format!("met {words}\n").as_bytes());
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

    /// Lines of the work, in the order of their words.
    fn met(&self) -> Vec<&str> {
        let mut lines: Vec<&str> = self.stdout.lines().filter_map(|line| Some(line.split_once("met ")?.1)).collect();
        lines.sort_unstable();
        lines
    }
}

fn launcher() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|folder| folder.join("mpirun")).find(|path| path.exists());
    if found.is_none() {
        let _ = std::io::stderr().write_all(b"LEFT OUT: no `mpirun` is in PATH\n");
    }
    found
}

/// Runs work on so many ranks, one job at a time: ranks wait by spinning.
fn launch(ranks: usize, work: &str) -> Option<Ended> {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command = Command::new(launcher()?);
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    // More ranks than cores, said to Open MPI 4 and 5; others take no notice.
    command
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
        .env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
    command.env_remove("PRECAST_MPI").env(WORK, work).stdin(Stdio::null());
    command.args(["-n", &ranks.to_string()]).arg(env::current_exe().unwrap()).args([
        "--exact",
        "worker",
        "--nocapture",
    ]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let mut words = [String::new(), String::new()];
    let code = thread::scope(|scope| {
        let [out, err] = &mut words;
        scope.spawn(move || stdout.read_to_string(out));
        scope.spawn(move || stderr.read_to_string(err));
        let begun = Instant::now();
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status.code();
            }
            if begun.elapsed() > HANGS {
                let _ = child.kill();
                panic!("`{work}` on {ranks} ranks hangs");
            }
            thread::sleep(Duration::from_millis(10));
        }
    });
    let [stdout, stderr] = words;
    Some(Ended { code, stdout, stderr })
}

#[test]
fn sums_have_the_bits_of_one_process_and_of_the_loaded_library() {
    let expected = Threads::run(1, &[], HANGS, sum).unwrap().remove(0).unwrap();
    for ranks in [1, 2, 4] {
        let Some(ended) = launch(ranks, "sum") else { return };
        assert_eq!(ended.code, Some(0), "{}", ended.said());
        assert_eq!(ended.met(), [format!("{ranks} ranks, {expected:016x}, {expected:016x}")], "{}", ended.said());
    }
}

#[test]
fn a_code_that_mpi_returns_is_an_error() {
    let Some(ended) = launch(2, "error") else { return };
    assert_eq!(ended.code, Some(0), "{}", ended.said());
    let [of_mpi, of_rank_0] = ended.met()[..] else { panic!("{}", ended.said()) };
    assert!(of_mpi.starts_with("MPI_Test: ") && of_mpi.contains("trunc"), "{}", ended.said());
    assert_eq!(of_rank_0, "there is no rank 2");
}

#[test]
fn a_panic_ends_all_ranks() {
    for work in ["panic", "panic over a universe"] {
        let Some(ended) = launch(4, work) else { return };
        assert_ne!(ended.code, Some(0), "{}", ended.said());
        assert!(ended.stderr.contains("rank 1: a panic ends all ranks, step 5"), "{}", ended.said());
    }
}

#[test]
fn an_end_of_one_rank_ends_all() {
    for (work, words) in [("abort", "rank 1: planted, step 5"), ("exit", "")] {
        let Some(ended) = launch(4, work) else { return };
        assert_ne!(ended.code, Some(0), "{}", ended.said());
        assert!(ended.stderr.contains(words), "{}", ended.said());
    }
}
