// Finding the op that produced the first non-finite number of a skipped step.
//
// cargo run --release --example find_overflow

use precast::{
    data,
    policy::{DynamicScale, LossScaleSpec},
    prelude::*,
};

fn main() -> Result<()> {
    let rng = &mut Rng::seed(1);
    let mut net = Child::new(sequential![Flatten::default(), Dense::new(64, 64, rng), ReLU, Dense::new(64, 10, rng)]);
    auto_mixed_precision(&mut net, Level::O2, DType::F16)?;
    net.set_train(true);

    let mut optimizer = Sgd::new(net.params(), 0.1);
    // MindSpore's manager begins at 2^24, which is too high for f16: the first steps find a lower scale.
    let mut scale = LossScale::new(LossScaleSpec::Dynamic(DynamicScale::mindspore_manager()))?;
    for batch in data::digits()?.batches(32)?.take(12) {
        // This reads every number of every op, so use it for diagnosis, not in every step of a long run.
        let (outcome, found) = net.find_non_finite(|net| {
            let loss = net.call(&batch.x)?.cross_entropy(&batch.y)?;
            scale.step(&mut optimizer, &loss)
        });
        match (outcome?, found) {
            (Outcome::Skipped { cause }, Some(found)) => println!("{cause}: by {found}"),
            (outcome, _) => println!("{outcome:?} at {}", scale.value()),
        }
    }
    Ok(())
}
