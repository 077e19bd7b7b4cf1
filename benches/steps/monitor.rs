//! Cost of watching every step with a [`Monitor`]: `cargo bench --bench steps -- monitor`.

use precast::prelude::*;
use precast_diagnose::Monitor;

use super::{Trainer, fastest, median, peers::Options};

/// Prints one network in each dtype: the time of a step with a monitor divided by that without, in turns.
pub fn row(name: &str, options: &Options) -> Result<()> {
    for (level, dtype) in
        [(Level::O1, DType::F16), (Level::O1, DType::Bf16), (Level::O2, DType::F16), (Level::O2, DType::Bf16)]
    {
        let mut without = Trainer::new(name, options.times, Some(level), dtype)?;
        let mut with = Trainer::new(name, options.times, Some(level), dtype)?;
        let mut monitor = Monitor::default();
        let steps = (0.05 / without.time(1)?).ceil().clamp(1.0, 200.0) as usize;
        let (mut base, mut watched) = (Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            base.push(without.time(steps)?);
            watched.push(with.time_watched(steps, &mut monitor)?);
        }
        let ratio = median(base.iter().zip(&watched).map(|(base, watched)| watched / base).collect());
        let (best, edges) = (fastest(&watched) / fastest(&base), monitor.peaks(&with.task.net).len());
        println!(
            "  {name:10} {level} {dtype:5} {:9.3} ms  {ratio:6.3}  fastest {best:6.3}  {edges} results",
            fastest(&base) * 1e3
        );
    }
    Ok(())
}

impl Trainer {
    /// Returns the seconds per step, each of which is watched.
    fn time_watched(&mut self, steps: usize, monitor: &mut Monitor) -> Result<f64> {
        let start = std::time::Instant::now();
        for _ in 0..steps {
            let Trainer { task, optimizer, scale, .. } = self;
            let _ = monitor.watch(&task.net, |net| {
                let loss = net.call(&task.x)?.cross_entropy(&task.y)?;
                scale.step(&mut **optimizer, loss)
            })?;
        }
        Ok(start.elapsed().as_secs_f64() / steps as f64)
    }
}
