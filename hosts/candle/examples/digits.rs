//! A network on handwritten digits, in the precisions of `digits.yaml`: `cargo run --release --example digits`.

mod data;
mod random;

use candle_core::{Device, Module, Result, Tensor};
use candle_nn::{AdamW, VarBuilder, VarMap, loss::cross_entropy};
use precast_candle::{LayerNorm, Linear, Network, Outcome, Policy, ScaleMachine, layer_norm, linear};

struct Net {
    up: Linear,
    norm: LayerNorm,
    head: Linear,
}

impl Net {
    fn new(vb: VarBuilder) -> Result<Self> {
        Ok(Net {
            up: linear(64, 64, vb.pp("up"))?,
            norm: layer_norm(64, 1e-5, vb.pp("norm"))?,
            head: linear(64, 10, vb.pp("head"))?,
        })
    }
}

impl Module for Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.head.forward(&self.norm.forward(&self.up.forward(x)?)?.relu()?)
    }
}

fn main() -> precast_candle::Result<()> {
    let (train, test) = data::digits()?;
    let vars = VarMap::new();

    let policy = Policy::load(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/digits.yaml"))?;
    let mut net = Network::new(&vars, &Device::Cpu, Net::new)?;
    let plan = net.plan(&policy)?;
    println!("{plan}");
    net.apply(plan)?;

    random::seeded(&vars, 1)?;
    let mut adamw = AdamW::new_lr(net.vars(), 3e-3)?;
    let mut scale = ScaleMachine::new(policy.loss_scale.clone())?;
    for epoch in 0..8 {
        for (x, y) in train.batches(epoch)? {
            let model = net.build()?;
            let loss = cross_entropy(&model.forward(&x)?, &y)?;
            match net.step(&mut scale, &mut adamw, &loss)? {
                Outcome::Stalled { cause, .. } => panic!("training has stalled: {cause}"),
                Outcome::Skipped { cause } => println!("skipped: {cause}"),
                _ => {}
            }
        }
        let accuracy = test.accuracy(&net.build()?.forward(&test.x)?)?;
        println!("epoch {epoch}: {accuracy:.1} %");
    }
    Ok(())
}
