// AdamW with a schedule and parameter groups by path: no weight decay for biases, a smaller learning rate for the head.
//
// cargo run --release --example optimizers

use precast::prelude::*;
use precast_train::data;

fn main() -> Result<()> {
    let rng = &mut Rng::seed(1);
    let mut net = Child::new(sequential![Flatten::default(), Dense::new(64, 64, rng), ReLU, Dense::new(64, 10, rng)]);
    let policy = Policy::new(Level::O2, DType::F16)?;
    policy.apply(&mut net)?;
    net.set_train(true);

    let lr = 3e-3;
    let mut optimizer = AdamW::new(net.params(), lr)
        .group("**.bias", |group| group.weight_decay(0.0))?
        .group("3.*", |group| group.lr_factor(0.5))?;
    let mut scale = policy.loss_scale()?;
    let batches: Vec<_> = data::digits()?.shuffled_batches(32, 1, 0)?.collect();
    let (mut stepped, mut last) = (0, f64::INFINITY);
    for batch in &batches {
        // Five steps of warm-up, then half a cosine wave. Skipped steps do not count.
        optimizer.set_lr(lr * Schedule::Cosine.factor_after(5, stepped, batches.len()));
        let loss = net.call(&batch.x)?.cross_entropy(&batch.y)?;
        last = loss.item()?;
        stepped += usize::from(scale.step(&mut optimizer, loss)? == Outcome::Stepped);
    }
    println!("{stepped} of {} steps, loss {last:.3}, learning rate {:.1e}", batches.len(), optimizer.lr());
    Ok(())
}
