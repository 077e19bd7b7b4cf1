// Gradient accumulation: four small batches are added before one update, with one vote on the loss scale for all four.
//
// cargo run --release --example gradient_accumulation

use precast::prelude::*;
use precast_train::data;

const PARTS: usize = 4;

fn main() -> Result<()> {
    let rng = &mut Rng::seed(1);
    let mut net = Child::new(sequential![Flatten::default(), Dense::new(64, 64, rng), ReLU, Dense::new(64, 10, rng)]);
    let policy = Policy::new(Level::O2, DType::F16)?;
    policy.apply(&mut net)?;

    let mut optimizer = Sgd::new(net.params(), 0.1).momentum(0.9);
    let mut scale = policy.loss_scale()?;
    net.set_train(true);
    let batches: Vec<_> = data::digits()?.shuffled_batches(16, 1, 0)?.collect();
    let (mut skipped, mut last) = (0, f64::INFINITY);
    for parts in batches.chunks_exact(PARTS) {
        let mut sum = None;
        for batch in parts {
            // The mean over all examples of the window, so each part counts for a quarter.
            let loss = formula!(net.call(&batch.x).cross_entropy(&batch.y) / PARTS)?;
            last = loss.item()? * PARTS as f64;
            let scaled = scale.scale(&loss)?.backward()?;
            match &mut sum {
                None => sum = Some(scaled),
                Some(sum) => sum.accumulate(scaled)?, // refuses gradients of another scale
            }
        }
        if let Some(mut sum) = sum {
            let grads = sum.unscale(optimizer.params())?;
            if scale.apply(&mut optimizer, &grads)? != Outcome::Stepped {
                skipped += 1; // one part that overflowed skips the whole window
            }
            scale.update()?;
        }
    }
    println!("{} windows, {skipped} skipped, loss {last:.3}, scale {}", batches.len() / PARTS, scale.value());
    Ok(())
}
