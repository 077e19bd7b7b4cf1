//! Training on handwritten digits in f32, bf16 and f16, from a policy in YAML in which one layer stays f32.

mod common;
#[path = "../examples/data/mod.rs"]
mod data;

use candle_core::{Module, Result, Tensor};
use candle_nn::{AdamW, VarBuilder, VarMap, loss::cross_entropy};
use common::{CPU, policy, random};
use precast_candle::{LayerNorm, Linear, Network, Outcome, Policy, ScaleMachine, layer_norm, linear};

struct Net(Linear, LayerNorm, Linear);

impl Net {
    fn new(vb: VarBuilder) -> Result<Self> {
        let (up, norm) = (linear(64, 64, vb.pp("up"))?, layer_norm(64, 1e-5, vb.pp("norm"))?);
        Ok(Net(up, norm, linear(64, 10, vb.pp("head"))?))
    }
}

impl Module for Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.2.forward(&self.1.forward(&self.0.forward(x)?)?.relu()?)
    }
}

/// Returns the accuracy in percent after training by a policy, and the number of skipped steps.
fn train(policy: &Policy, seed: u64) -> precast_candle::Result<(f64, usize)> {
    let (train, test) = data::digits()?;
    let vars = VarMap::new();
    let mut net = Network::new(&vars, CPU, |vb| Net::new(vb))?;
    net.apply(net.plan(policy)?)?;
    random::seeded(&vars, seed)?;
    let mut adamw = AdamW::new_lr(net.vars(), 3e-3)?;
    let mut scale = ScaleMachine::new(policy.loss_scale.clone())?;
    let mut skipped = 0;
    for epoch in 0..12 {
        for (x, y) in train.batches(seed * 100 + epoch)? {
            let loss = cross_entropy(&net.build()?.forward(&x)?, &y)?;
            match net.step(&mut scale, &mut adamw, &loss)? {
                Outcome::Stepped => {}
                Outcome::Skipped { .. } => skipped += 1,
                outcome => panic!("{outcome}"),
            }
        }
    }
    Ok((test.accuracy(&net.build()?.forward(&test.x)?)?, skipped))
}

#[test]
fn accuracy_is_that_of_f32() {
    let rules = "rules: [{ path: head, run: float32, because: the logits }]";
    let low = |dtype: &str, scale: &str| {
        policy(&format!(
            "version: 1\nlevel: O2\ndtype: {dtype}\n{rules}\nloss_scale: {{ kind: dynamic, init: {scale} }}"
        ))
    };
    let mean = |policy: &Policy| {
        let runs: Vec<(f64, usize)> = (1..=4).map(|seed| train(policy, seed).unwrap()).collect();
        (runs.iter().map(|run| run.0).sum::<f64>() / 4.0, runs.iter().map(|run| run.1).sum::<usize>())
    };
    let (f32, none) = mean(&Policy::named("o0").unwrap());
    let (bf16, _) = mean(&low("bfloat16", "65536"));
    let (f16, skipped) = mean(&low("float16", "16777216"));
    println!(
        "accuracy on 297 digits, means of 4 seeds: f32 {f32:.2} %, bf16 {bf16:.2} %, f16 {f16:.2} % ({skipped} skipped)"
    );
    assert!(f32 > 90.0 && none == 0);
    assert!((f32 - bf16).abs() <= 0.5 && (f32 - f16).abs() <= 0.5, "f32 {f32}, bf16 {bf16}, f16 {f16}");
    assert!(skipped >= 8, "f16 overflowed at the first scale: {skipped}");
}
