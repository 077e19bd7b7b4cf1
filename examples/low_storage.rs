// Weights stored in bf16 without masters: rounded to nearest, stochastically, and with Kahan compensation. At a small
// learning rate, rounding to nearest loses updates. Adam keeps its averages in 8 bits.
//
// cargo run --release --example low_storage

use precast::prelude::*;
use precast_train::data;

fn main() -> Result<()> {
    let bf16 = || Decorate::new(DType::Bf16).masters(false);
    let ways = [("nearest", bf16()), ("stochastic", bf16().stochastic_rounding(1)), ("kahan", bf16().kahan())];
    for (name, storage) in ways {
        let rng = &mut Rng::seed(1);
        let mut net =
            Child::new(sequential![Flatten::default(), Dense::new(64, 128, rng), ReLU, Dense::new(128, 10, rng)]);
        decorate(&net, storage)?;
        auto_mixed_precision(&mut net, Level::O2, DType::Bf16)?;
        net.set_train(true);
        let mut optimizer = Adam::new(net.params(), 1e-5).state_8bit(true).count_lost_updates();
        let mut last = f64::INFINITY;
        for epoch in 0..2 {
            for batch in data::digits()?.shuffled_batches(32, 1, epoch)? {
                let loss = net.call(&batch.x)?.cross_entropy(&batch.y)?;
                last = loss.item()?;
                let _outcome = LossScale::none().step(&mut optimizer, &loss)?;
            }
        }
        println!("{name}: loss {last:.4}");
        for lost in optimizer.lost_updates().iter().filter(|lost| lost.path.ends_with("weight")) {
            println!("  {}: {:.0} % of the updates lost in the last step", lost.path, 100.0 * lost.share());
        }
    }
    Ok(())
}
