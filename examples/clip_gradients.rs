// Gradient clipping between unscaling and the update: by the norm of all together, and each element by value.
//
// cargo run --release --example clip_gradients

use precast::prelude::*;
use precast_train::data;

fn main() -> Result<()> {
    let rng = &mut Rng::seed(1);
    let mut net = Child::new(sequential![Flatten::default(), Dense::new(64, 64, rng), ReLU, Dense::new(64, 10, rng)]);
    let policy = Policy::new(Level::O2, DType::F16)?;
    policy.apply(&mut net)?;

    let mut optimizer = Sgd::new(net.params(), 0.1).momentum(0.9);
    let mut scale = policy.loss_scale()?;
    net.set_train(true);
    let (mut largest, mut last) = (0.0f64, f64::INFINITY);
    for batch in data::digits()?.shuffled_batches(32, 1, 0)? {
        let loss = net.call(&batch.x)?.cross_entropy(&batch.y)?;
        last = loss.item()?;
        // `grads.clip_norm` on still-scaled gradients would not compile, since they are another type.
        let mut scaled = scale.scale(&loss)?.backward()?;
        let mut grads = scaled.unscale(optimizer.params())?;
        let norm = grads.clip_norm(1.0)?; // the norm before; gradients that are not finite stay as they are
        grads.clip_value(0.5)?;
        if scale.apply(&mut optimizer, &grads)? == Outcome::Stepped {
            largest = largest.max(norm);
        }
        scale.update()?;
    }
    println!("largest norm {largest:.2}, clipped to 1; loss {last:.3}, scale {}", scale.value());
    Ok(())
}
