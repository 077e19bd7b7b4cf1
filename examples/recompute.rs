// Activation checkpointing: the hidden blocks are recomputed in the backward pass. Less memory, the same bits.
//
// cargo run --release --example recompute

use precast::{policy::Rule, prelude::*};
use precast_train::data;

fn net() -> Result<Child> {
    let rng = &mut Rng::seed(1);
    let mut net = sequential![Flatten::default(), Dense::new(64, 128, rng)];
    for _ in 0..6 {
        net.push(sequential![Dense::new(128, 128, rng), GELU::default(), Dropout::new(0.1, rng)]);
    }
    net.push(Dense::new(128, 10, rng));
    let mut net = Child::of(net);
    net.set_train(true);
    Ok(net)
}

fn main() -> Result<()> {
    let batch = data::digits()?.shuffled_batches(64, 1, 0)?.next().expect("there are digits");
    let mut losses = vec![];
    for recompute in [false, true] {
        let mut net = net()?;
        let mut policy = Policy::new(Level::O2, DType::Bf16)?;
        if recompute {
            // In a file: `rules: [{ kind: Sequential, checkpoint: true }]`; for one cell in code: `Child::recompute`.
            for block in 2..8 {
                policy = policy.rule(Rule::recompute(&block.to_string())?)?;
            }
        }
        policy.apply(&mut net)?;
        let mut optimizer = Sgd::new(net.params(), 0.05);
        let mut bytes = 0;
        for _ in 0..5 {
            let loss = net.call(&batch.x)?.cross_entropy(&batch.y)?;
            bytes = loss.tape_bytes();
            losses.push(loss.item()?);
            optimizer.update(&loss.backward()?)?;
        }
        println!("recomputed: {recompute:5}  {:6.1} KiB kept", bytes as f64 / 1024.0);
    }
    let (plain, lean) = losses.split_at(5);
    assert_eq!(plain, lean);
    println!("losses are the same, bit for bit: {plain:.4?}");
    Ok(())
}
