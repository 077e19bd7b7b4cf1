//! Training steps of five small networks compared with torch's, alternating: `cargo bench --bench steps`; of seven of the
//! size that people train with `-- real`.
//!
//! `-- --python PATH` names a Python with torch, whose f32 step is then 1.00; without one, it is precast's own O0. `--
//! --threads N`, `-- --rounds N`, `-- --times N` (batches N times as large) and names of networks select the
//! measurements; names of columns, such as `"O2 bf16"`, select those, and times are then relative to the first. Times are
//! the median over the rounds of the ratio to torch's step in the same round, followed by the ratio of the fastest of
//! each. `-- predict` compares the predictions of plans for forward and backward passes with the measured times; `--
//! memory` prints the memory of each network, `-- monitor` the cost of a monitor, `-- shadow` that of a shadow run. `--
//! families` prints the arithmetic and the bytes of each network, with the time by family of work, and `-- growth` time and
//! memory over batch, width, depth, sequence and images (`--svg FILE` draws them). With `PRECAST_VECTORS=8` torch is
//! limited to AVX2 as well; `PRECAST_AMX=1` multiplies bf16 by AMX, as torch does on processors that have it.

mod axes;
mod families;
mod growth;
mod memory;
mod monitor;
mod nets;
#[path = "../peers/mod.rs"]
mod peers;
mod shadow;

use std::time::Instant;

use memory::Saving;
use nets::{NAMES, REAL, Task, task};
use peers::{Options, Torch, fastest, median};
use precast::{
    Outcome,
    cost::{Limits, Speeds},
    plan::{Forecast, undo},
    policy::{DynamicScale, LossScaleSpec, Prefer},
    prelude::*,
};
use precast_graph::{GraphPolicy, rewrite};
use precast_kernels::bench;

/// A column of the table: a level, or the graph (`None`), with a low dtype; or torch in a mode.
#[derive(Clone, Copy, PartialEq)]
enum Column {
    Ours(Option<Level>, DType),
    Torch(&'static str),
}

const COLUMNS: [Column; 10] = [
    Column::Torch("f32"),
    Column::Ours(Some(Level::O0), DType::F16),
    Column::Ours(Some(Level::O1), DType::F16),
    Column::Ours(Some(Level::O1), DType::Bf16),
    Column::Ours(Some(Level::O2), DType::F16),
    Column::Ours(Some(Level::O2), DType::Bf16),
    Column::Ours(None, DType::F16),
    Column::Ours(None, DType::Bf16),
    Column::Torch("f16"),
    Column::Torch("bf16"),
];

impl Column {
    fn name(self) -> String {
        match self {
            Column::Ours(Some(Level::O0), _) => "O0".into(),
            Column::Ours(Some(level), dtype) => format!("{level} {dtype}"),
            Column::Ours(None, dtype) => format!("graph {dtype}"),
            Column::Torch(mode) => format!("torch {mode}"),
        }
    }
}

/// A network with its optimizer and scale, ready to step.
struct Trainer {
    task: Task,
    optimizer: Box<dyn Optimizer>,
    scale: LossScale,
    saving: Saving,
    /// Bytes kept by the tape between the forward and the backward pass.
    kept: usize,
}

impl Trainer {
    fn new(name: &str, times: usize, level: Option<Level>, dtype: DType) -> Result<Self> {
        let mut trainer = Trainer::untouched(name, times, level, dtype)?;
        trainer.kept = trainer.loss()?.tape_bytes();
        let _ = trainer.step()?;
        Ok(trainer)
    }

    /// Creates a trainer before its first step.
    fn untouched(name: &str, times: usize, level: Option<Level>, dtype: DType) -> Result<Self> {
        Trainer::of(task(name, times)?, level, dtype)
    }

    fn of(mut task: Task, level: Option<Level>, dtype: DType) -> Result<Self> {
        match level {
            Some(level) => _ = Policy::new(level, dtype)?.apply(&mut task.net)?,
            None => {
                let policy = GraphPolicy::new(dtype)?;
                task.net = rewrite(&mut task.net, std::slice::from_ref(&task.x), &policy)?.erase();
            }
        }
        task.net.set_train(true);
        let optimizer = task.optimizer();
        let scaled = level != Some(Level::O0) && dtype == DType::F16;
        let scale = match scaled {
            true => LossScaleSpec::Dynamic(DynamicScale::default().init(1024.0)),
            false => LossScaleSpec::None,
        };
        Ok(Trainer { task, optimizer, scale: LossScale::new(scale)?, saving: Saving::Nothing, kept: 0 })
    }

    fn loss(&self) -> Result<Tensor> {
        self.task.net.call(&self.task.x)?.cross_entropy(&self.task.y)
    }

    fn step(&mut self) -> Result<Outcome> {
        let loss = self.loss()?;
        match self.saving {
            Saving::Nothing | Saving::Blocks => self.scale.step(&mut *self.optimizer, loss),
            Saving::Within | Saving::WithinOfLow => self.scale.step_in_backward(&mut *self.optimizer, loss),
        }
    }

    /// Returns the seconds of a forward and a backward pass after a parameter update.
    fn time_passes(&mut self) -> Result<f64> {
        let _ = self.step()?;
        let (start, busy) = (Instant::now(), busy());
        let _grads = self.loss()?.into_grads()?;
        Ok(busy.zip(self::busy()).map_or(start.elapsed().as_secs_f64(), |(before, after)| after - before))
    }

    /// Applies a policy to the network, replacing the previous one.
    fn plan(&mut self, policy: &Policy, speeds: &Speeds) -> Result<Forecast> {
        undo(&mut self.task.net);
        let (called, trace) = self.task.net.trace(|net| net.call(&self.task.x)?.cross_entropy(&self.task.y));
        called?;
        let plan = policy.plan_for(&self.task.net, &trace, speeds)?;
        let _ = plan.apply(&mut self.task.net)?;
        self.kept = self.loss()?.tape_bytes();
        Ok(plan.prediction.expect("it was made for a machine"))
    }

    /// Returns the seconds per step.
    fn time(&mut self, steps: usize) -> Result<f64> {
        let start = Instant::now();
        for _ in 0..steps {
            let _ = self.step()?;
        }
        Ok(start.elapsed().as_secs_f64() / steps as f64)
    }
}

/// Returns the CPU seconds of this thread, where available, which excludes other load on the machine. The resolution is
/// some milliseconds, so only sums of many are meaningful.
fn busy() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse::<f64>().ok().map(|nanos| nanos / 1e9)
}

fn main() -> Result<()> {
    let mut options = Options::read(9);
    precast::set_threads(options.threads);
    if let [asked, name, column] = &options.names[..]
        && asked == memory::ASKED
    {
        return memory::answer(name, options.times, column);
    }
    if let [asked, axis, size, column] = &options.names[..]
        && asked == growth::ASKED
    {
        return growth::answer(axis, size, column);
    }
    let mut asked =
        |word: &str| options.names.iter().position(|name| name == word).map(|i| options.names.remove(i)).is_some();
    let (predict, memory, monitored, real) = (asked("predict"), asked("memory"), asked("monitor"), asked("real"));
    let (shadowed, by_family, grown) = (asked("shadow"), asked("families"), asked("growth"));
    if grown {
        return growth::print(&options);
    }
    let mut columns = Vec::from(COLUMNS);
    let named: Vec<Column> = columns.iter().copied().filter(|column| asked(&column.name())).collect();
    if !named.is_empty() {
        columns = named;
    }
    let all: Vec<String> = if real { &REAL[..] } else { &NAMES[..] }.iter().map(|name| name.to_string()).collect();
    let names = if options.names.is_empty() { &all[..] } else { &options.names };
    if memory {
        return names.iter().try_for_each(|name| memory::row(name, &options));
    }
    if by_family {
        let (limits, speeds) = (Limits::measure(), Speeds::measure());
        println!("{}, peak of one thread {:.0} Gflop/s in f32", bench::vectors(), limits.gflops.unwrap_or(f64::NAN));
        return names.iter().try_for_each(|name| families::row(name, &options, &limits, &speeds));
    }
    if shadowed {
        return names.iter().try_for_each(|name| shadow::row(name, &options));
    }
    if monitored {
        println!("{}, {} threads: a watched step is that much of one that is not", bench::vectors(), options.threads);
        return names.iter().try_for_each(|name| monitor::row(name, &options));
    }
    if predict {
        let speeds = Speeds::measure();
        println!("speeds of {}", speeds.host);
        return names.iter().try_for_each(|name| predictions(name, &options, &speeds));
    }
    let mut torch = match &options.python {
        None => None,
        Some(python) => {
            let (torch, version) =
                Torch::start(python, "torch_steps.py", options.threads).map_err(|e| Error::io(python.as_ref(), &e))?;
            println!("{version}, precast with {}, {} threads", bench::vectors(), options.threads);
            Some(torch)
        }
    };
    for name in names {
        row(name, &options, &columns, torch.as_mut())?;
    }
    Ok(())
}

/// Prints one network under every level, with and without `prefer: speed`: milliseconds of a forward and a backward
/// pass and bytes kept, predicted and measured.
fn predictions(name: &str, options: &Options, speeds: &Speeds) -> Result<()> {
    let mut rows = Vec::new();
    for column in COLUMNS {
        // Predictions of a plan are per cell.
        let Column::Ours(Some(level), dtype) = column else { continue };
        for prefer in Prefer::ALL.into_iter().filter(|prefer| *prefer == Prefer::Memory || level != Level::O0) {
            let mut trainer = Trainer::new(name, options.times, Some(level), dtype)?;
            let policy = Policy::new(level, dtype)?.with_prefer(prefer);
            let prediction = trainer.plan(&policy, speeds)?;
            let column = if prefer == Prefer::Speed { format!("{} speed", column.name()) } else { column.name() };
            rows.push((column, trainer, prediction.planned, Vec::new()));
        }
    }
    let steps = (0.2 / rows[0].1.time(1)?).ceil().clamp(4.0, 100.0) as usize;
    for _ in 0..options.rounds {
        for (_, trainer, _, seconds) in &mut rows {
            let times: Result<Vec<f64>> = (0..steps).map(|_| trainer.time_passes()).collect();
            seconds.push(times?.iter().sum::<f64>() / steps as f64);
        }
    }
    println!("\n{name}: ms predicted, met, their ratio; KiB kept predicted, met");
    for (column, trainer, predicted, seconds) in rows {
        let (predicted_ms, met) = (predicted.nanos as f64 / 1e6, median(seconds) * 1e3);
        let (predicted_kib, kib) = (predicted.kept as f64 / 1024.0, trainer.kept as f64 / 1024.0);
        let ratio = predicted_ms / met;
        println!("  {column:13} {predicted_ms:8.3} {met:8.3} {ratio:6.2}   {predicted_kib:9.1} {kib:9.1}");
    }
    Ok(())
}

/// Prints one network: every column in turn, round by round.
fn row(name: &str, options: &Options, columns: &[Column], mut torch: Option<&mut Torch>) -> Result<()> {
    let columns: Vec<Column> =
        columns.iter().copied().filter(|c| torch.is_some() || matches!(c, Column::Ours(..))).collect();
    let mut trainers = Vec::new();
    for &column in &columns {
        if let Column::Ours(level, dtype) = column {
            trainers.push((column, Trainer::new(name, options.times, level, dtype)?));
        }
    }
    let mut times: Vec<(Column, Vec<f64>, Option<String>)> =
        columns.iter().map(|&column| (column, Vec::new(), None)).collect();
    // A first step determines how many steps make a measurement of some tenth of a second.
    let steps = match trainers.first_mut() {
        Some((_, trainer)) => (0.1 / trainer.time(1)?).ceil().clamp(1.0, 20.0) as usize,
        None => 1,
    };
    for _ in 0..options.rounds {
        for (column, seconds, failure) in &mut times {
            let time = match (*column, &mut torch) {
                (Column::Ours(..), _) => {
                    let (_, trainer) = trainers.iter_mut().find(|(c, _)| c == column).expect("one for each column");
                    Some(trainer.time(steps)?)
                }
                // torch's own 16-bit steps are slow; one or two suffice to measure them.
                (Column::Torch(mode), Some(torch)) if failure.is_none() => {
                    let steps = if mode == "f32" { steps } else { steps.min(2) };
                    torch
                        .time(&format!("{} {steps} {name} {mode} {}", options.threads, options.times))
                        .map_err(|why| *failure = Some(why))
                        .ok()
                }
                _ => None,
            };
            seconds.extend(time);
        }
    }
    let Some(base) = times.first().map(|(_, seconds, _)| seconds.clone()).filter(|seconds| !seconds.is_empty()) else {
        println!("\n{name}: nothing was measured");
        return Ok(());
    };
    println!("\n{name}: 1.00 is {:.3} ms", fastest(&base) * 1e3);
    for (column, seconds, failure) in &times {
        let kept = trainers.iter().find(|(c, _)| c == column).map(|(_, trainer)| trainer.kept);
        let kept = kept.map_or(String::new(), |bytes| format!("  {:.1} KiB kept", bytes as f64 / 1024.0));
        match failure {
            Some(why) => println!("  {:10} {why}", column.name()),
            None => {
                let ratio = median(seconds.iter().zip(&base).map(|(a, b)| a / b).collect());
                println!("  {:10} {ratio:5.2}  fastest {:5.2}{kept}", column.name(), fastest(seconds) / fastest(&base));
            }
        }
    }
    Ok(())
}
