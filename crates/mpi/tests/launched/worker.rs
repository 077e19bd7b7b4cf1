//! The work of one rank: this program, started again by a launcher.

use std::{
    env,
    io::Write as _,
    process::{self, Command},
    thread,
    time::Duration,
};

use precast_mpi::{Engine as _, Error, ErrorKind, Mpi, Node, Ranks, Result, Shards, Threads, Tree, Wire};

/// The environment variable with the work.
pub const WORK: &str = "PRECAST_MPI_TEST";

const SHARDS: usize = 6;
const LEN: usize = 50_021;

#[test]
fn worker() {
    let Ok(work) = env::var(WORK) else { return };
    let (work, of) = work.split_once(' ').unwrap_or((&work, "0"));
    if let Err(error) = run(work, of.parse().unwrap()) {
        let _ = writeln!(std::io::stderr(), "error: {error}");
        process::exit(3);
    }
}

fn run(work: &str, of: usize) -> Result<()> {
    // The first of two engines initializes MPI, and finalizes it.
    let first = if work == "cut" { Some(Mpi::load()?) } else { None };
    let ranks = match first {
        Some(_) => Ranks::new(Box::new(Mpi::load()?.cut_at(1000)?)),
        None => Ranks::of_launcher()?,
    };
    ranks.abort_on_panic();
    match work {
        "sum" | "cut" => {
            let sum = ranks.or_abort(sum(&ranks))?;
            if ranks.rank() == 0 {
                say(&format!("{} ranks, {sum:016x}", ranks.size()));
            }
        }
        "agree" => {
            let mine = if ranks.rank() == of { Err("no space is left") } else { Ok(()) };
            say(&ranks.agree(mine).unwrap_err().to_string());
        }
        _ => ranks.or_abort(faults(&ranks, work, of))?,
    }
    ranks.finish()?;
    first.map_or(Ok(()), |first| first.finish())
}

/// Writes a line in one piece, as other ranks write as well.
fn say(words: &str) {
    let _ = std::io::stdout().write_all(format!("met {words}\n").as_bytes());
}

/// Steps without end, with a fault of one rank in step 5.
fn faults(ranks: &Ranks, work: &str, of: usize) -> Result<()> {
    let signal = |name: &str| {
        let sent = Command::new("kill").args([name, &process::id().to_string()]).status();
        // Another thread may take the signal, some time later.
        thread::sleep(Duration::from_secs(5));
        sent.map(drop).map_err(|error| Error::new(ErrorKind::Ended, error.to_string()))
    };
    for step in 0.. {
        ranks.set_step(step);
        ranks.vote(&[step, 1])?;
        let mine = step == 5 && ranks.rank() == of;
        match work {
            "panic" if mine => panic!("planted"),
            "kill" if mine => signal("-KILL")?,
            "stop" if mine => signal("-STOP")?,
            "abort" if mine => return Err(Error::new(ErrorKind::Ended, "planted")),
            "exit" if mine => process::exit(7),
            "more" if mine => drop(ranks.vote(&[1, 2, 3])?),
            "fewer" if mine => continue,
            _ => {}
        }
        let mut exchange = ranks.exchange(SHARDS, Wire::BFloat16)?;
        let slices = vec![&[1.0f32; 100][..]; exchange.nodes().len()];
        exchange.sum(&slices, &mut [0.0; 100])?;
    }
    Ok(())
}

/// The checksum of a sum over shards, after one of each other call.
fn sum(ranks: &Ranks) -> Result<u64> {
    let mut tree = Tree::default();
    for shard in Shards::new(SHARDS, ranks.size())?.run(ranks.rank()) {
        tree.push_with(Node::shard(shard), numbers(shard), |left: &mut Vec<f32>, right| {
            left.iter_mut().zip(right).for_each(|(left, right)| *left += right);
        });
    }
    let sums = tree.into_values();
    let sums: Vec<&[f32]> = sums.iter().map(Vec::as_slice).collect();
    let mut total = vec![0.0; LEN];
    ranks.exchange(SHARDS, Wire::Float32)?.with_bucket(10_000)?.sum(&sums, &mut total)?;
    let bytes = vec![ranks.rank() as u8; 5000 + ranks.rank()];
    let all = ranks.gather(&bytes)?;
    assert!(all.iter().enumerate().all(|(rank, bytes)| *bytes == vec![rank as u8; 5000 + rank]));
    assert_eq!(ranks.broadcast(bytes)?, vec![0; 5000]);
    let checksum = total.iter().fold(1, |sum: u64, x| (sum ^ u64::from(x.to_bits())).wrapping_mul(0x100_0000_01b3));
    ranks.vote(&[checksum])?.equal(0, "checksum")
}

/// Numbers with 24 random bits, whose sums are inexact.
fn numbers(seed: usize) -> Vec<f32> {
    let mut state = seed as u64 + 1;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / 16_777_216.0 - 0.5
    };
    (0..LEN).map(|_| next()).collect()
}

/// The checksum of one rank without MPI.
pub fn sum_of_threads() -> u64 {
    let all = Threads::run(1, &[], Duration::from_secs(60), |ranks| sum(ranks).unwrap());
    all.unwrap()[0]
}
