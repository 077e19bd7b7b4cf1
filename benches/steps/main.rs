//! Training steps of five networks beside torch's, in turns: `cargo bench --bench steps`.
//!
//! `-- --python PATH` names a Python that has torch, whose f32 step is then 1.00; without one, precast's own O0 is.
//! `-- --threads N`, `-- --rounds N` and names of networks choose what runs. Times are the median over the rounds of the
//! ratio to the step that torch did in the same round, and beside it the ratio of the fastest of each.

mod nets;
#[path = "../peers/mod.rs"]
mod peers;

use std::time::Instant;

use nets::{NAMES, Task, task};
use peers::{Options, Torch, fastest, median};
use precast::{
    Outcome,
    policy::{DynamicScale, LossScaleSpec},
    prelude::*,
};

/// One column of the table: a level with a low dtype, or torch in a mode.
#[derive(Clone, Copy, PartialEq)]
enum Column {
    Ours(Level, DType),
    Torch(&'static str),
}

const COLUMNS: [Column; 8] = [
    Column::Torch("f32"),
    Column::Ours(Level::O0, DType::F16),
    Column::Ours(Level::O1, DType::F16),
    Column::Ours(Level::O1, DType::Bf16),
    Column::Ours(Level::O2, DType::F16),
    Column::Ours(Level::O2, DType::Bf16),
    Column::Torch("f16"),
    Column::Torch("bf16"),
];

impl Column {
    fn name(self) -> String {
        match self {
            Column::Ours(Level::O0, _) => "O0".into(),
            Column::Ours(level, dtype) => format!("{level} {dtype}"),
            Column::Torch(mode) => format!("torch {mode}"),
        }
    }
}

/// A network with its optimizer and scale, ready to step.
struct Trainer {
    task: Task,
    optimizer: Box<dyn Optimizer>,
    scale: LossScale,
    /// Bytes that the tape keeps between the forward and the backward pass.
    kept: usize,
}

impl Trainer {
    fn new(name: &str, level: Level, dtype: DType) -> Result<Self> {
        let mut task = task(name)?;
        task.net.set_train(true);
        let _applied = Policy::new(level, dtype)?.apply(&mut task.net)?;
        let params = task.net.params();
        let optimizer: Box<dyn Optimizer> = match task.adamw {
            true => Box::new(Adam::decoupled(params, 1e-3)),
            false => Box::new(Sgd::new(params, 0.01).momentum(0.9)),
        };
        let scaled = level != Level::O0 && dtype == DType::F16;
        let scale = match scaled {
            true => LossScaleSpec::Dynamic(DynamicScale { init: 1024.0, ..DynamicScale::default() }),
            false => LossScaleSpec::None,
        };
        let mut trainer = Trainer { task, optimizer, scale: LossScale::new(scale)?, kept: 0 };
        trainer.kept = trainer.loss()?.tape_bytes();
        let _ = trainer.step()?;
        Ok(trainer)
    }

    fn loss(&self) -> Result<Tensor> {
        self.task.net.call(&self.task.x)?.cross_entropy(&self.task.y)
    }

    fn step(&mut self) -> Result<Outcome> {
        let loss = self.loss()?;
        self.scale.step(&mut *self.optimizer, &loss)
    }

    /// Seconds per step.
    fn time(&mut self, steps: usize) -> Result<f64> {
        let start = Instant::now();
        for _ in 0..steps {
            let _ = self.step()?;
        }
        Ok(start.elapsed().as_secs_f64() / steps as f64)
    }
}

fn main() -> Result<()> {
    let options = Options::read(9);
    precast::set_threads(options.threads);
    let mut torch = match &options.python {
        None => None,
        Some(python) => {
            let (torch, version) =
                Torch::start(python, "torch_steps.py").map_err(|e| Error::io(python.as_ref(), &e))?;
            println!("{version}, {} threads", options.threads);
            Some(torch)
        }
    };
    let all = NAMES.map(String::from);
    for name in if options.names.is_empty() { &all[..] } else { &options.names } {
        row(name, &options, torch.as_mut())?;
    }
    Ok(())
}

/// One network: every column in turn, round by round.
fn row(name: &str, options: &Options, mut torch: Option<&mut Torch>) -> Result<()> {
    let mut trainers = Vec::new();
    for column in COLUMNS {
        if let Column::Ours(level, dtype) = column {
            trainers.push((column, Trainer::new(name, level, dtype)?));
        }
    }
    let mut times: Vec<(Column, Vec<f64>, Option<String>)> = COLUMNS.map(|column| (column, Vec::new(), None)).into();
    // One step before the others says how many make a measurement of some tenth of a second.
    let steps = (0.1 / trainers[0].1.time(1)?).ceil().clamp(1.0, 20.0) as usize;
    for _ in 0..options.rounds {
        for (column, seconds, failure) in &mut times {
            let time = match (*column, &mut torch) {
                (Column::Ours(..), _) => {
                    let (_, trainer) = trainers.iter_mut().find(|(c, _)| c == column).expect("one for each column");
                    Some(trainer.time(steps)?)
                }
                // torch's own 16 bit is slow; a step or two say how slow.
                (Column::Torch(mode), Some(torch)) if failure.is_none() => {
                    let steps = if mode == "f32" { steps } else { steps.min(2) };
                    torch
                        .time(&format!("{name} {mode} {} {steps}", options.threads))
                        .map_err(|why| *failure = Some(why))
                        .ok()
                }
                _ => None,
            };
            seconds.extend(time);
        }
    }
    let base = times[usize::from(torch.is_none())].1.clone();
    println!("\n{name}: 1.00 is {:.3} ms", fastest(&base) * 1e3);
    for (column, seconds, failure) in &times {
        let kept = trainers.iter().find(|(c, _)| c == column).map(|(_, trainer)| trainer.kept);
        let kept = kept.map_or(String::new(), |bytes| format!("  {:.1} KiB kept", bytes as f64 / 1024.0));
        match failure {
            Some(why) => println!("  {:10} {why}", column.name()),
            None if seconds.is_empty() => {}
            None => {
                let ratio = median(seconds.iter().zip(&base).map(|(a, b)| a / b).collect());
                println!("  {:10} {ratio:5.2}  fastest {:5.2}{kept}", column.name(), fastest(seconds) / fastest(&base));
            }
        }
    }
    Ok(())
}
