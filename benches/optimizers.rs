//! Optimizer steps over 25 million parameters compared with torch's fused ones, alternating:
//! `cargo bench --bench optimizers`.
//!
//! `-- --python PATH` names a Python with torch; without one, only the times of precast are printed. `update` is the
//! update alone, `whole` is unscaling, the check for non-finite gradients, and the update. The figure is the median
//! over the rounds of the ratio to torch's time in the same round, followed by the ratio of the fastest of each. Times
//! are CPU times of one thread, where available (Linux). `-- --rounds N` and names of optimizers select the
//! measurements.

#[path = "peers/mod.rs"]
mod peers;

use std::time::Instant;

use peers::{Options, Torch, fastest, median};
use precast::{Grads, LossScale, Param, cell::Params, layers::CellList, prelude::*, storage::Decorate};

const TENSORS: usize = 24;
const SHAPE: [usize; 2] = [1024, 1024];
const NAMES: [&str; 5] = ["sgd", "adam", "adamw", "adam 8-bit", "lion"];
/// Low-precision storage of the parameters, for Adam and SGD; torch has no counterpart.
const STORED: [&str; 8] = [
    "adam f16 masters",
    "adam bf16 masters",
    "adam f16 low",
    "adam bf16 low",
    "adam stochastic",
    "adam kahan",
    "sgd bf16 masters",
    "sgd bf16 low",
];
/// Number of steps per measurement.
const REPEATS: usize = 6;

/// Creates the parameters, stored as the name says.
fn params(name: &str) -> Result<Params> {
    if !STORED.contains(&name) {
        return Ok((0..TENSORS).map(|_| Param::new(Tensor::full(&SHAPE, 0.5, DType::F32))).collect());
    }
    let layers = (0..TENSORS).map(|_| DenseSpec::new(SHAPE[1], SHAPE[0]).bias(false).build(&mut Rng::seed(1)));
    let net = Child::of(layers.collect::<Result<CellList>>()?);
    for (_, param) in net.params().iter() {
        param.set(&Tensor::full(&SHAPE, 0.5, DType::F32))?;
    }
    let how = Decorate::new(if name.contains("f16 ") && !name.contains("bf16") { DType::F16 } else { DType::Bf16 });
    decorate(
        &net,
        match name.rsplit_once(' ').map_or(name, |(_, way)| way) {
            "low" => how.masters(false),
            "stochastic" => how.stochastic_rounding(1),
            "kahan" => how.kahan(),
            _ => how,
        },
    )?;
    Ok(net.params())
}

struct Bench {
    optimizer: Box<dyn Optimizer>,
    grads: Grads,
    scales: [LossScale; 2],
}

impl Bench {
    fn new(name: &str) -> Result<Self> {
        let params = params(name)?;
        let mut grads = Grads::default();
        for (_, param) in params.iter() {
            let numbers = (0..param.value().len()).map(|i| (i * 7919 % 1024) as f32 / 1024.0 - 0.5).collect();
            grads.set(param, Tensor::from_vec(numbers, &SHAPE)?);
        }
        let optimizer: Box<dyn Optimizer> = match name {
            name if name.starts_with("sgd") => Box::new(Sgd::new(params, 1e-3).momentum(0.9)),
            "adam 8-bit" => Box::new(Adam::new(params, 1e-3).state_8bit(true)),
            "lion" => Box::new(precast::Lion::new(params, 1e-4)),
            "adamw" => Box::new(AdamW::new(params, 1e-3)),
            _ => Box::new(Adam::new(params, 1e-3)),
        };
        // Every other step scales the gradients back up.
        let mut bench = Bench { optimizer, grads, scales: [LossScale::fixed(2.0)?, LossScale::fixed(0.5)?] };
        bench.time("whole")?;
        Ok(bench)
    }

    /// Returns the seconds per step.
    fn time(&mut self, mode: &str) -> Result<f64> {
        let (start, busy) = (Instant::now(), busy());
        for i in 0..REPEATS {
            if mode == "whole" {
                let scale = &mut self.scales[i % 2];
                let grads = scale.already_scaled(self.grads.clone()).unscale(self.optimizer.params())?;
                assert_eq!(scale.apply(self.optimizer.as_mut(), &grads)?, precast::Outcome::Stepped);
                scale.update()?;
            } else {
                self.optimizer.update(&self.grads)?;
            }
        }
        let seconds = busy.zip(self::busy()).map_or(start.elapsed().as_secs_f64(), |(before, after)| after - before);
        Ok(seconds / REPEATS as f64)
    }
}

/// Returns the CPU seconds of this thread, with a resolution of some milliseconds.
fn busy() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse::<f64>().ok().map(|nanos| nanos / 1e9)
}

fn main() -> Result<()> {
    let options = Options::read(15);
    precast::set_threads(1);
    let mut torch = options.python.as_ref().map(|python| {
        let (torch, version) = Torch::start(python, "torch_optimizers.py", 1).expect("it starts");
        println!("{version}, one thread, {} rounds", options.rounds);
        torch
    });
    for name in NAMES
        .into_iter()
        .chain(STORED)
        .filter(|name| options.names.is_empty() || options.names.iter().any(|n| n == name))
    {
        let mut bench = Bench::new(name)?;
        for mode in ["update", "whole"] {
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for _ in 0..options.rounds {
                if let Some(torch) = torch.as_mut().filter(|_| NAMES.contains(&name)) {
                    // Those that torch lacks are compared with its Adam.
                    let peer = if matches!(name, "sgd" | "adamw") { name } else { "adam" };
                    let line = format!("1 {REPEATS} {peer} {mode}");
                    theirs.push(torch.time(&line).expect("torch has it"));
                }
                ours.push(bench.time(mode)?);
            }
            print!("{name:17} {mode:6}  {:6.2} ms", 1e3 * median(ours.clone()));
            if !theirs.is_empty() {
                let ratios = ours.iter().zip(&theirs).map(|(a, b)| a / b).collect();
                print!("  {:.2} of torch's time ({:.2})", median(ratios), fastest(&ours) / fastest(&theirs));
            }
            println!();
        }
    }
    Ok(())
}
