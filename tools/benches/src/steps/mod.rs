//! Whole training steps of networks of the size that people train, beside those of other crates.

#[cfg(feature = "burn")]
mod burn;
mod candle;
#[path = "../../../../benches/steps/nets.rs"]
mod nets;
mod weights;

use std::time::Instant;

use candle_core::DType as CandleDType;
use precast::{policy::LossScaleSpec, prelude::*};

use crate::times::{fastest, median};
use nets::{REAL, Task, task};
use weights::Weights;

/// Takes a training step, and returns the loss before it.
type Step = Box<dyn FnMut() -> std::result::Result<f64, String>>;

/// Columns after precast's O0.
const COLUMNS: [&str; 4] = ["O2 bf16", "candle f32", "candle bf16", "burn f32"];

/// A step longer than this many seconds is taken once.
const LONG: f64 = 60.0;

/// Largest differences from precast at O0: of the first loss, relative to it, and of the change of the loss by the first
/// update, relative to that change; in f32 and in bf16. The change depends on all gradients, and in a ResNet that has not
/// been trained also on the order of their sums.
const TOLERANCES: [[f64; 2]; 2] = [[1e-4, 3e-2], [1e-2, 1e-1]];

/// A kind of network, which decides how a peer builds it.
#[derive(Clone, Copy)]
enum Kind {
    ResNet,
    Mlp,
    Gpt { heads: usize },
    Lstm,
}

fn kind(name: &str) -> Kind {
    match name {
        "mlp-2048" => Kind::Mlp,
        "gpt2-small" => Kind::Gpt { heads: 12 },
        "gpt-4096" => Kind::Gpt { heads: 8 },
        "lstm-1024" => Kind::Lstm,
        _ => Kind::ResNet,
    }
}

/// Steps of one column.
struct Candidate {
    step: Step,
    losses: Vec<f64>,
    times: Vec<f64>,
    /// Seconds of the first step, which warms up.
    first: f64,
}

impl Candidate {
    fn new(step: std::result::Result<Step, String>) -> std::result::Result<Self, String> {
        let mut candidate = Candidate { step: step?, losses: Vec::new(), times: Vec::new(), first: 0.0 };
        candidate.first = candidate.time()?;
        Ok(candidate)
    }

    fn time(&mut self) -> std::result::Result<f64, String> {
        let start = Instant::now();
        let loss = (self.step)()?;
        let seconds = start.elapsed().as_secs_f64();
        self.losses.push(loss);
        Ok(seconds)
    }

    fn round(&mut self) -> std::result::Result<(), String> {
        if self.first < LONG {
            let seconds = self.time()?;
            self.times.push(seconds);
        }
        Ok(())
    }
}

/// Prints the networks that are named, or all.
///
/// # Errors
/// When no network has a name that begins like one of these; and the errors of the networks.
pub fn print(rounds: usize, names: &[String]) -> Result<()> {
    if let Some(unknown) = names.iter().find(|wanted| !REAL.iter().any(|name| name.starts_with(wanted.as_str()))) {
        return Err(Error::path(format!("no network is called `{unknown}`; allowed: {}", REAL.join(", "))));
    }
    print!("{:<20} {:>10}", "training steps", "O0");
    COLUMNS.iter().for_each(|column| print!("  {column:>16}"));
    println!();
    for name in REAL.iter().filter(|name| names.is_empty() || names.iter().any(|wanted| name.starts_with(wanted))) {
        row(name, rounds.max(1))?;
    }
    Ok(())
}

fn row(name: &str, rounds: usize) -> Result<()> {
    let mut base = Candidate::new(ours(name, Level::O0)).map_err(Error::value)?;
    let mut columns = vec![Candidate::new(ours(name, Level::O2))];
    columns.extend(peers(name)?);
    for _ in 0..rounds {
        base.round().map_err(Error::value)?;
        for column in &mut columns {
            if let Ok(candidate) = column
                && let Err(why) = candidate.round()
            {
                *column = Err(why);
            }
        }
    }
    print!("{name:<20} {:>7.0} ms", fastest(&base.times) * 1e3);
    for (i, column) in columns.iter().enumerate() {
        let low = COLUMNS[i].ends_with("bf16");
        let text = match column {
            Ok(candidate) => off(&base, candidate, TOLERANCES[usize::from(low)])
                .unwrap_or_else(|| if i == 0 { ratio(candidate, &base) } else { ratio(&base, candidate) }),
            Err(why) => why.lines().next().unwrap_or_default().to_string(),
        };
        print!("  {text:>16}");
    }
    println!();
    Ok(())
}

/// Creates the steps of other crates, from the weights of precast's network.
fn peers(name: &str) -> Result<[std::result::Result<Candidate, String>; 3]> {
    let task = task(name, 1)?;
    let weights = Weights::of(&task.net)?;
    let candle = |dtype| Candidate::new(candle::step(kind(name), &task, &weights, dtype));
    let f32 = candle(CandleDType::F32);
    let bf16 = match kind(name) {
        Kind::Mlp | Kind::Gpt { .. } => candle(CandleDType::BF16),
        // candle has no convolution in bf16 on a CPU, and its LSTM multiplies in the dtype of its weights.
        _ => Err("-".to_string()),
    };
    Ok([f32, bf16, by_burn(name, &task, &weights)])
}

#[cfg(feature = "burn")]
fn by_burn(name: &str, task: &Task, weights: &Weights) -> std::result::Result<Candidate, String> {
    Candidate::new(burn::step(kind(name), task, weights))
}

#[cfg(not(feature = "burn"))]
fn by_burn(_: &str, _: &Task, _: &Weights) -> std::result::Result<Candidate, String> {
    Err("--features burn".to_string())
}

/// Returns the difference of the first loss, or of its change, that is too large, if there is one.
fn off(base: &Candidate, candidate: &Candidate, tolerances: [f64; 2]) -> Option<String> {
    let numbers = |Candidate { losses, .. }: &Candidate| [Some(losses[0]), losses.get(1).map(|next| next - losses[0])];
    let mut pairs = numbers(base).into_iter().zip(numbers(candidate)).zip(tolerances);
    pairs.find_map(|((expected, met), tolerance)| {
        let off = (met? - expected?).abs() / expected?.abs();
        (off > tolerance || off.is_nan()).then(|| format!("off {off:.1e}"))
    })
}

/// Returns the ratio of the times of two columns; by the first step of one that takes too long for more.
fn ratio(above: &Candidate, below: &Candidate) -> String {
    match below.times.is_empty() {
        true => format!("{:.3} once", median(above.times.clone()) / below.first),
        false => crate::ratio(&above.times, &below.times),
    }
}

/// Creates precast's step, as in `benches/steps`.
fn ours(name: &str, level: Level) -> std::result::Result<Step, String> {
    let step = || -> Result<Step> {
        let mut task = task(name, 1)?;
        let _ = Policy::new(level, DType::Bf16)?.apply(&mut task.net)?;
        task.net.set_train(true);
        let mut optimizer = task.optimizer();
        let mut scale = LossScale::new(LossScaleSpec::None)?;
        Ok(Box::new(move || {
            let mut step = || {
                let loss = task.net.call(&task.x)?.cross_entropy(&task.y)?;
                let value = loss.item()?;
                let _ = scale.step(&mut *optimizer, loss)?;
                Ok(value)
            };
            step().map_err(|e: Error| e.to_string())
        }))
    };
    step().map_err(|e| e.to_string())
}
