//! Sums over ranks, beside `MPI_Allreduce` of the same library.
//!
//! ```console
//! $ mpirun -n 2 sum              # checksums of 8 shards, the same for every number of ranks
//! $ mpirun -n 2 sum time 25      # times of 25 million numbers
//! $ mpirun -n 2 sum vote         # the time of a vote
//! ```
//!
//! Without a launcher there is one rank.

use std::{env, error::Error, io::Write as _, process::ExitCode, time::Instant};

use precast_mpi::{Node, Ranks, Shards, Tree, Wire};

const SHARDS: usize = 8;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let ranks = Ranks::of_launcher()?;
    ranks.abort_on_panic();
    let words: Vec<String> = env::args().skip(1).collect();
    let done = match words.first().map(String::as_str) {
        None | Some("check") => check(&ranks),
        Some("time") => times(&ranks, words.get(1).map_or(Ok(25.0), |millions| millions.parse())?),
        Some("vote") => vote(&ranks),
        Some(other) => Err(format!("met `{other}`; allowed: check, time, vote").into()),
    };
    ranks.or_abort(done)?;
    Ok(ranks.finish()?)
}

/// Numbers with 24 random bits, whose sums are inexact.
fn numbers(seed: usize, len: usize) -> Vec<f32> {
    let mut state = seed as u64 + 1;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / 16_777_216.0 - 0.5
    };
    (0..len).map(|_| next()).collect()
}

fn checksum(numbers: &[f32]) -> u64 {
    // FNV-1a over words.
    numbers.iter().fold(0xcbf2_9ce4_8422_2325, |sum, x| (sum ^ u64::from(x.to_bits())).wrapping_mul(0x100_0000_01b3))
}

/// Writes a line, on rank 0.
fn say(ranks: &Ranks, line: &str) -> Result<(), Box<dyn Error>> {
    if ranks.rank() == 0 {
        writeln!(std::io::stdout(), "{line}")?;
    }
    Ok(())
}

fn check(ranks: &Ranks) -> Result<(), Box<dyn Error>> {
    let len = 1_000_003;
    let mut tree = Tree::default();
    for shard in Shards::new(SHARDS, ranks.size())?.run(ranks.rank()) {
        tree.push_with(Node::shard(shard), numbers(shard, len), |left: &mut Vec<f32>, right| {
            left.iter_mut().zip(right).for_each(|(left, right)| *left += right);
        });
    }
    let sums = tree.into_values();
    let sums: Vec<&[f32]> = sums.iter().map(Vec::as_slice).collect();
    let mut total = vec![0.0; len];
    for wire in [Wire::Float32, Wire::BFloat16] {
        ranks.exchange(SHARDS, wire)?.sum(&sums, &mut total)?;
        let met = ranks.vote(&[checksum(&total)])?.equal(0, "checksum")?;
        say(ranks, &format!("{SHARDS} shards on {} ranks, {wire}: {met:016x}", ranks.size()))?;
    }
    Ok(())
}

/// Work to be timed, with its name.
type Work<'a> = (String, Box<dyn FnMut(&mut [f32]) -> Result<(), Box<dyn Error>> + 'a>);

fn times(ranks: &Ranks, millions: f64) -> Result<(), Box<dyn Error>> {
    let len = (millions * 1e6) as usize;
    let mine = numbers(ranks.rank(), len);
    let mut all: Vec<Work<'_>> = Vec::new();
    for wire in [Wire::Float32, Wire::BFloat16, Wire::BFloat16Both] {
        for bucket in [1 << 16, 1 << 18, 1 << 20] {
            let mut exchange = ranks.exchange(ranks.size(), wire)?.with_bucket(bucket)?;
            let name = format!("{wire}, buckets of {bucket}");
            let mine = &mine;
            all.push((name, Box::new(move |total| Ok(exchange.sum(&[mine], total)?))));
        }
    }
    #[cfg(unix)]
    if ranks.size() > 1 {
        let of_mpi = allreduce::Allreduce::load()?;
        let mine = &mine;
        all.push(("MPI_Allreduce".into(), Box::new(move |total| Ok(of_mpi.sum(mine, total)?))));
    }
    let copy = |total: &mut [f32]| {
        total.copy_from_slice(&mine);
        Ok(())
    };
    all.push(("memcpy by all ranks".into(), Box::new(copy)));
    // In turns, so that other work on the machine slows all of them.
    let runs = env::var("RUNS").map_or(Ok(15), |runs| runs.parse())?;
    let mut total = vec![0.0; len];
    let mut times = vec![Vec::new(); all.len()];
    for run in 0..=runs {
        for ((_, work), times) in all.iter_mut().zip(&mut times) {
            ranks.barrier()?;
            let begun = Instant::now();
            work(&mut total)?;
            ranks.barrier()?;
            if run > 0 {
                times.push(begun.elapsed().as_secs_f64() * 1e3);
            }
        }
    }
    say(ranks, &format!("{len} numbers on {} ranks, ms: median (least)", ranks.size()))?;
    for ((name, _), times) in all.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        say(ranks, &format!("{name:36} {:6.1} ({:.1})", times[times.len() / 2], times[0]))?;
    }
    Ok(())
}

fn vote(ranks: &Ranks) -> Result<(), Box<dyn Error>> {
    let runs = 20_000;
    let mut times = Vec::new();
    for run in 0..runs {
        let begun = Instant::now();
        ranks.vote(&[run, 2, 3])?;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    let (median, late) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    say(ranks, &format!("vote of 3 words on {} ranks: median {median:.2} us, 99 % {late:.2} us", ranks.size()))
}

/// `MPI_Allreduce` on `MPI_COMM_WORLD`, looked up in the library that the program has loaded.
#[cfg(unix)]
mod allreduce {
    use std::ffi::{c_int, c_void};

    use libloading::os::unix::Library;

    type Sum<H> = unsafe extern "C" fn(*const c_void, *mut c_void, c_int, H, H, H) -> c_int;

    /// Function, `MPI_FLOAT`, `MPI_SUM` and `MPI_COMM_WORLD`.
    pub enum Allreduce {
        OpenMpi(Sum<*mut c_void>, [*mut c_void; 3]),
        Mpich(Sum<c_int>),
    }

    impl Allreduce {
        pub fn load() -> Result<Self, libloading::Error> {
            // The MPI library is loaded for all to see.
            let library = Library::this();
            let object = |name: &str| {
                // SAFETY: the address alone is used.
                unsafe { library.get::<*mut c_void>(name) }.map(|symbol| *symbol)
            };
            if let Ok(float) = object("ompi_mpi_float") {
                let handles = [float, object("ompi_mpi_op_sum")?, object("ompi_mpi_comm_world")?];
                // SAFETY: the handles of Open MPI are addresses.
                return Ok(Allreduce::OpenMpi(*unsafe { library.get(b"MPI_Allreduce") }?, handles));
            }
            // SAFETY: the handles of MPICH are ints.
            Ok(Allreduce::Mpich(*unsafe { library.get(b"MPI_Allreduce") }?))
        }

        pub fn sum(&self, mine: &[f32], total: &mut [f32]) -> Result<(), String> {
            let (from, to, len) =
                (mine.as_ptr().cast(), total.as_mut_ptr().cast(), mine.len().min(total.len()) as c_int);
            // SAFETY: both slices have so many numbers.
            let code = unsafe {
                match self {
                    Allreduce::OpenMpi(sum, [float, add, world]) => sum(from, to, len, *float, *add, *world),
                    Allreduce::Mpich(sum) => sum(from, to, len, 0x4c00_040a, 0x5800_0003, 0x4400_0000),
                }
            };
            if code == 0 { Ok(()) } else { Err(format!("MPI_Allreduce: code {code}")) }
        }
    }
}
