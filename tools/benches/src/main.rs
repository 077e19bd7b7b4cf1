//! precast compared with other crates on the same work, alternating on one thread:
//! `cargo run --release --manifest-path tools/benches/Cargo.toml -- [--rounds N] [NAMES]`, with NAMES the prefixes of
//! rows. With `steps [NETWORKS]`, which takes minutes, it is whole training steps in place of single ops, of networks by the
//! beginnings of their names; `--features burn`, which needs Rust 1.95, adds burn.
//!
//! A ratio is the median over the rounds of precast's time by the peer's time in the same round, followed by the ratio
//! of the fastest of each: below 1.00, precast is faster. The results of each peer are compared with precast's; a
//! difference larger than the dtype explains is reported as `off` in place of a time, and so is the reason why a peer
//! cannot do the work. precast and candle make a new tensor for each result, ndarray a new array; matrixmultiply, gemm
//! and half write to existing memory, and so does precast for casts, since a tensor is not widened before it is read.
//!
//! Networks have the same initial weights, batch and optimizer in each crate. A step of precast at O0 is divided by that of
//! each peer; the column of O2 is its step by that at O0, and the column `candle bf16` is candle with f32 weights that are
//! cast where products read them. The first step warms up, and each round is one step. The first loss, and its change by
//! the first update, are compared with those at O0. A peer that takes more than 60 s for a step takes one.
//!
//! `PRECAST_VECTORS=8` keeps precast to AVX2, but no peer.

mod casts;
mod convolutions;
mod functions;
mod noise;
mod products;
#[path = "../../../benches/peers/sizes.rs"]
mod sizes;
mod steps;
#[path = "../../../benches/peers/times.rs"]
mod times;

use std::{env, process, time::Instant};

use times::{fastest, median};

/// Does the work once, and returns its numbers if requested.
type Run = Box<dyn FnMut(bool) -> Result<Option<Vec<f32>>, String>>;

/// Makes a `Run` of a function that produces a result, and one that reads it.
fn run<T>(call: impl Fn() -> T + 'static, numbers: impl Fn(T) -> Vec<f32> + 'static) -> Run {
    Box::new(move |tell| {
        let made = std::hint::black_box(call());
        Ok(tell.then(|| numbers(made)))
    })
}

/// Makes a `Run` as [`run`] does, of calls that may fail.
fn try_run<T, E: ToString>(
    call: impl Fn() -> Result<T, E> + 'static,
    numbers: impl Fn(T) -> Result<Vec<f32>, E> + 'static,
) -> Run {
    Box::new(move |tell| {
        let made = std::hint::black_box(call()).map_err(|e| e.to_string())?;
        tell.then(|| numbers(made).map_err(|e| e.to_string())).transpose()
    })
}

/// Command-line options.
struct Options {
    rounds: usize,
    names: Vec<String>,
}

impl Options {
    fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|wanted| name.starts_with(wanted.as_str()))
    }

    /// Prints the column headers.
    fn head(&self, family: &str, peers: &[&str]) {
        print!("\n{family:<40} {:>10}", "precast");
        peers.iter().for_each(|peer| print!("  {peer:>14}"));
        println!();
    }

    /// Prints one row: precast's time, and its ratio to that of each peer that does the work. `tolerance` is relative
    /// to the largest number of the result.
    fn row(&self, name: &str, tolerance: f32, mut ours: Run, peers: Vec<Option<Run>>) {
        let expected = ours(true).expect("precast does the work").expect("it was asked for");
        let repeats = repeats(&mut ours);
        let mut columns: Vec<Result<Peer, String>> = peers
            .into_iter()
            .map(|peer| {
                let mut peer = peer.ok_or("-")?;
                let numbers = peer(true)?.ok_or("no numbers")?;
                match difference(&expected, &numbers) {
                    off if off <= tolerance => {
                        Ok(Peer { repeats: self::repeats(&mut peer), run: peer, times: Vec::new() })
                    }
                    off => Err(format!("off {off:.1e}")),
                }
            })
            .collect();
        let mut base = Vec::new();
        for _ in 0..self.rounds.max(1) {
            base.push(time(&mut ours, repeats));
            for peer in columns.iter_mut().flatten() {
                peer.times.push(time(&mut peer.run, peer.repeats));
            }
        }
        print!("{name:<40} {:>7.1} us", fastest(&base) * 1e6);
        for column in &columns {
            let text = match column {
                Ok(Peer { times, .. }) => ratio(&base, times),
                Err(why) => why.lines().next().unwrap_or_default().to_string(),
            };
            print!("  {text:>14}");
        }
        println!();
    }
}

/// A peer that does the work.
struct Peer {
    run: Run,
    repeats: usize,
    times: Vec<f64>,
}

/// Returns the median over the rounds of one time by another, and the ratio of the fastest.
fn ratio(above: &[f64], below: &[f64]) -> String {
    let ratio = median(above.iter().zip(below).map(|(above, below)| above / below).collect());
    format!("{ratio:.2} ({:.2})", fastest(above) / fastest(below))
}

/// Returns the number of calls that take some five milliseconds.
fn repeats(run: &mut Run) -> usize {
    (5e-3 / time(run, 1)).clamp(1.0, 2000.0) as usize
}

/// Returns the seconds per call, after an untimed one.
fn time(run: &mut Run, repeats: usize) -> f64 {
    let mut go = || run(false).expect("it was done before");
    go();
    let start = Instant::now();
    for _ in 0..repeats {
        go();
    }
    start.elapsed().as_secs_f64() / repeats as f64
}

/// Returns the largest difference relative to the largest number; infinite for different lengths and NaN.
fn difference(expected: &[f32], numbers: &[f32]) -> f32 {
    if expected.len() != numbers.len() {
        return f32::INFINITY;
    }
    let largest = expected.iter().fold(f32::MIN_POSITIVE, |most, x| most.max(x.abs()));
    let far = |(a, b): (&f32, &f32)| if (a - b).is_nan() { f32::INFINITY } else { (a - b).abs() };
    expected.iter().zip(numbers).map(far).fold(0.0, f32::max) / largest
}

fn main() {
    // candle and its crates read the environment, which must not be changed in a process that may have threads.
    let alone = ["RAYON_NUM_THREADS", "CANDLE_NUM_THREADS"];
    if alone.iter().any(|name| env::var(name).as_deref() != Ok("1")) {
        let this = env::current_exe().expect("this program has a path");
        let mut again = process::Command::new(this);
        let status = again.args(env::args_os().skip(1)).envs(alone.map(|name| (name, "1"))).status();
        process::exit(status.ok().and_then(|status| status.code()).unwrap_or(1));
    }
    let (mut rounds, mut names) = (None, Vec::new());
    let mut args = env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--rounds" => rounds = Some(args.next().and_then(|text| text.parse().ok()).expect("a number follows")),
            name => names.push(name.to_string()),
        }
    }
    precast::set_threads(1);
    println!("precast with {}; its time by that of others, median (fastest)", precast_kernels::bench::vectors());
    if let [first, networks @ ..] = &names[..]
        && first == "steps"
    {
        if let Err(why) = steps::print(rounds.unwrap_or(3), networks) {
            eprintln!("{why}");
            process::exit(1);
        }
        return;
    }
    let options = Options { rounds: rounds.unwrap_or(9), names };
    products::rows(&options);
    casts::rows(&options);
    functions::rows(&options);
    convolutions::rows(&options);
}
