// The program of README.md: plan, wrap, train, unwrap.
//
// cargo run --release --example quickstart

use precast::prelude::*;
use precast_train::data;

fn main() -> Result<()> {
    let rng = &mut Rng::seed(1);
    let conv = Conv2d::new(1, 16, 3, rng);
    let head = Dense::new(144, 10, rng);
    let layers = sequential![conv, BatchNorm2d::new(16), ReLU, MaxPool2d::new(2), Flatten::default(), head];
    let mut net = Child::new(layers);

    let policy = Policy::new(Level::O2, DType::F16)?; // or Policy::load("my.yaml")?
    println!("{}", policy.plan(&net)?); // which cell will run in which precision, and why
    let applied = policy.apply(&mut net)?; // puts the casts of the plan into the network

    let mut optimizer = Sgd::new(net.params(), 0.05).momentum(0.9);
    let mut scale = policy.loss_scale()?; // f16 needs one, bf16 does not
    net.set_train(true);
    for batch in data::digits()?.shuffled_batches(32, 1, 0)? {
        let loss = net.call(&batch.x)?.cross_entropy(&batch.y)?;
        if let Outcome::Skipped { cause } = scale.step(&mut optimizer, loss)? {
            println!("skipped: {cause}");
        }
    }
    applied.undo(&mut net) // exact: the network as it was written, with its trained f32 weights
}
