// Finding the result with the first number of a skipped step that was not finite.
//
// cargo run --release --example find_overflow

use precast::{
    policy::{DynamicScale, LossScaleSpec},
    prelude::*,
};
use precast_diagnose::Monitor;
use precast_train::data;

fn main() -> Result<()> {
    let rng = &mut Rng::seed(1);
    let mut net = Child::new(sequential![Flatten::default(), Dense::new(64, 64, rng), ReLU, Dense::new(64, 10, rng)]);
    auto_mixed_precision(&mut net, Level::O2, DType::F16)?;
    net.set_train(true);

    let mut optimizer = Sgd::new(net.params(), 0.1);
    // MindSpore's manager begins at 2^24, which is too high for f16: the first steps find a lower scale.
    let mut scale = LossScale::new(LossScaleSpec::Dynamic(DynamicScale::mindspore_manager()))?;
    let mut monitor = Monitor::default();
    for batch in data::digits()?.batches(32)?.take(12) {
        let outcome = monitor.watch(&net, |net| {
            let loss = net.call(&batch.x)?.cross_entropy(&batch.y)?;
            scale.step(&mut optimizer, loss)
        })?;
        match monitor.fault() {
            Some(fault) => println!("{outcome}; it began with {fault}"),
            None => println!("{outcome}, at {}", scale.value()),
        }
    }
    Ok(())
}
