//! Networks that are rewritten as graphs learn as well as they do in f32.

use precast::{
    io::models::Model,
    layers::{Dense, LayerNorm, MultiheadAttention, MultiheadAttentionSpec, Rng},
    prelude::*,
};
use precast_graph::{GraphPolicy, rewrite};

/// A transformer block over the rows of a digit.
#[derive(Cell, Debug)]
struct Rows {
    embed: Child<Dense>,
    norm: Child<LayerNorm>,
    attention: Child<MultiheadAttention>,
    up: Child<Dense>,
    down: Child<Dense>,
    head: Child<Dense>,
}

impl Forward for Rows {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let rows = x.reshape(&[x.shape()[0], 8, 8])?;
        let x = self.embed.call(&rows)?;
        let n = self.norm.call(&x)?;
        let x = x.add(&self.attention.call(&n)?)?;
        let x = x.add(&self.down.call(&self.up.call(&x)?.gelu()?)?)?;
        self.head.call(&x.flatten(1)?)
    }
}

fn transformer(seed: u64) -> Child {
    let r = &mut Rng::seed(seed);
    Child::of(Rows {
        embed: Child::new(Dense::new(8, 32, r)),
        norm: Child::new(LayerNorm::new(&[32])),
        attention: Child::new(MultiheadAttentionSpec::new(32, 4).build(r).unwrap()),
        up: Child::new(Dense::new(32, 64, r)),
        down: Child::new(Dense::new(64, 32, r)),
        head: Child::new(Dense::new(256, 10, r)),
    })
}

/// A rewritten network learns as well as the f32 network: the mean accuracy of two seeds is within a point. Two runs
/// that differ only in rounding are half a point apart.
#[test]
fn rewritten_networks_learn() {
    let data = precast_train::data::digits().unwrap().split(1000, 1).unwrap();
    let accuracy_of = |make: &dyn Fn(u64) -> Child, policy: Option<&str>, seed: u64| {
        let mut net = make(seed);
        let x = data.train.batches(8).unwrap().next().unwrap().x;
        let mut scale = LossScale::none();
        if let Some(policy) = policy {
            let policy = GraphPolicy::named(policy).unwrap();
            scale = policy.loss_scale().unwrap();
            net = rewrite(&mut net, &[x], &policy).unwrap().erase();
        }
        net.set_train(true);
        let mut optimizer = Adam::new(net.params(), 3e-3);
        for epoch in 0..15 {
            optimizer.set_lr(5e-3 * (1.0 - epoch as f64 / 15.0));
            for batch in data.train.shuffled_batches(32, seed, epoch).unwrap() {
                let loss = net.call(&batch.x).unwrap().cross_entropy(&batch.y).unwrap();
                let _ = scale.step(&mut optimizer, &loss).unwrap();
            }
        }
        net.set_train(false);
        precast_train::accuracy(&net, &data.test, 64).unwrap()
    };
    let accuracy =
        |make: &dyn Fn(u64) -> Child, policy| (accuracy_of(make, policy, 3) + accuracy_of(make, policy, 4)) / 2.0;
    let lenet5 = |seed| Model::named("lenet5_8x8", seed).unwrap().net;
    let nets: [(&str, &dyn Fn(u64) -> Child); 2] = [("lenet5", &lenet5), ("transformer", &transformer)];
    for (name, make) in nets {
        let full = accuracy(make, None);
        for policy in ["graph", "graph-bf16"] {
            let low = accuracy(make, Some(policy));
            println!("accuracy of {name}: {full:.4} in f32, {low:.4} by {policy}");
            assert!(full > 0.93 && (full - low).abs() < 0.01, "{name}: {full}, by {policy} {low}");
        }
    }
}
