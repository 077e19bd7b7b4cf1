//! Cost of a shadow run, in forward passes: `cargo bench --bench steps -- shadow`.

use std::time::Instant;

use precast::{no_grad, prelude::*};
use precast_diagnose::shadow::Shadow;

use super::{Trainer, fastest, median, peers::Options};

/// Prints one network: the time of a shadow run divided by that of a forward pass in f32, in turns.
pub fn row(name: &str, options: &Options) -> Result<()> {
    let mut task = Trainer::untouched(name, options.times, Some(Level::O0), DType::Bf16)?.task;
    task.net.set_train(false);
    let policy = Policy::new(Level::O2, DType::Bf16)?;
    let (mut passes, mut shadows) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        let start = Instant::now();
        let _ = no_grad(|| task.net.call(&task.x))?;
        passes.push(start.elapsed().as_secs_f64());
        let start = Instant::now();
        let _ = Shadow::of(&policy, &mut task.net, &task.x)?;
        shadows.push(start.elapsed().as_secs_f64());
    }
    let ratio = median(passes.iter().zip(&shadows).map(|(pass, shadow)| shadow / pass).collect());
    println!("  {name:10} {ratio:6.2} forward passes  fastest {:6.2}", fastest(&shadows) / fastest(&passes));
    Ok(())
}
