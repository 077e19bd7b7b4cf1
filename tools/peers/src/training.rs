//! Training compared with torch, step by step: optimizers in f32, autocast with a loss scale, and a penalty on
//! gradients.

use precast::{
    Adam, AdamW, Autocast, Child, DType, Error, LossScale, Optimizer, Outcome, Result, Sgd, Tensor, autocast,
    policy::{DynamicScale, LossScaleSpec},
    twice_differentiable,
};
use serde_json::{Value, json};

use crate::{
    draw::{Draw, Values},
    layers::{network, parameters},
    peer::Peer,
};

const BATCHES: usize = 4;
const EXAMPLES: usize = 8;
pub const CLASSES: usize = 5;

/// A run: a network, an optimizer, and its loss scaling.
pub struct Run {
    network: &'static str,
    optimizer: Value,
    steps: usize,
    scaled: Option<Scaled>,
    /// `true` when the norm of all gradients is added to the loss.
    penalty: bool,
}

#[derive(Clone, Copy)]
struct Scaled {
    dtype: DType,
    init: f64,
    interval: u32,
    /// Interval in steps at which the inputs are multiplied by the factor, so that gradients overflow.
    large: Option<(usize, f64)>,
}

/// Returns the description of a network, and the shape of an example.
pub fn description(name: &str) -> (Value, Vec<usize>) {
    let dense =
        |inward: usize, outward: usize| json!({"kind": "Dense", "in_features": inward, "out_features": outward});
    let kind = |kind: &str| json!({"kind": kind});
    let (cells, input) = match name {
        "mlp" => (json!([dense(6, 16), kind("Tanh"), dense(16, 16), kind("GELU"), dense(16, CLASSES)]), vec![6]),
        "normed" => {
            let norm = json!({"kind": "LayerNorm", "normalized_shape": [16]});
            (json!([dense(6, 16), norm, kind("SiLU"), dense(16, CLASSES)]), vec![6])
        }
        "plain cnn" => {
            let conv = json!({"kind": "Conv2d", "in_channels": 2, "out_channels": 6, "kernel_size": 3, "padding": 1});
            let pool = json!({"kind": "AvgPool2d", "kernel_size": 2});
            (json!([conv, kind("ReLU"), pool, kind("Flatten"), dense(54, CLASSES)]), vec![2, 6, 6])
        }
        _ => {
            let conv = json!({"kind": "Conv2d", "in_channels": 2, "out_channels": 6, "kernel_size": 3, "padding": 1});
            let pool = json!({"kind": "MaxPool2d", "kernel_size": 2});
            let norm = json!({"kind": "BatchNorm2d", "num_features": 6});
            (json!([conv, norm, kind("ReLU"), pool, kind("Flatten"), dense(54, CLASSES)]), vec![2, 6, 6])
        }
    };
    (json!({"kind": "Sequential", "cells": cells}), input)
}

/// Returns the training curves in f32.
pub fn curves() -> Vec<Run> {
    let optimizers = [
        json!({"kind": "sgd", "lr": 0.02, "momentum": 0.9, "nesterov": false, "weight_decay": 0.0}),
        json!({"kind": "sgd", "lr": 0.02, "momentum": 0.9, "nesterov": true, "weight_decay": 1e-3}),
        json!({"kind": "adam", "lr": 0.01, "weight_decay": 1e-3}),
        json!({"kind": "adamw", "lr": 0.01, "weight_decay": 0.05}),
    ];
    let run = |network| {
        let run = move |optimizer| Run { network, optimizer, steps: 60, scaled: None, penalty: false };
        optimizers.clone().into_iter().map(run)
    };
    ["mlp", "normed", "cnn"].into_iter().flat_map(run).collect()
}

/// Returns the runs with a loss scale under autocast.
pub fn scaled() -> Vec<Run> {
    let mut all = Vec::new();
    for network in ["mlp", "plain cnn"] {
        for dtype in DType::LOW {
            for init in [1024.0, 65536.0 * 4096.0] {
                for interval in [3, 8] {
                    for large in [None, Some((7, 40.0))] {
                        // bf16 has the range of f32: only a scale near its end overflows.
                        let init = if dtype == DType::Bf16 && init > 1024.0 { 124f64.exp2() } else { init };
                        let optimizer =
                            json!({"kind": "sgd", "lr": 0.02, "momentum": 0.0, "nesterov": false, "weight_decay": 0.0});
                        let scaled = Some(Scaled { dtype, init, interval, large });
                        all.push(Run { network, optimizer, steps: 24, scaled, penalty: false });
                    }
                }
            }
        }
    }
    all
}

/// Returns the runs with the norm of all gradients added to the loss: in f32, and under autocast with a loss scale.
pub fn penalized() -> Vec<Run> {
    let scaled = |dtype| Scaled { dtype, init: 1024.0, interval: 100, large: None };
    let mut all = Vec::new();
    for network in ["mlp", "normed", "plain cnn"] {
        for scaled in [None, Some(scaled(DType::Bf16)), Some(scaled(DType::F16))] {
            let optimizer = json!({"kind": "sgd", "lr": 0.02, "momentum": 0.0, "nesterov": false, "weight_decay": 0.0});
            all.push(Run { network, optimizer, steps: 10, scaled, penalty: true });
        }
    }
    all
}

/// Result of a run.
pub struct Followed {
    pub name: String,
    /// Largest difference of two losses, relative to torch's.
    pub loss: f64,
    pub steps: usize,
    /// Number of steps skipped by torch, and the first whose skip or scale differs here.
    pub skipped: usize,
    pub parted: Option<usize>,
    pub dtype: Option<DType>,
}

/// Returns the loss plus the norm of its gradients, which are taken from the scaled loss.
fn penalized_loss(loss: Tensor, scale: &LossScale, net: &Child) -> Result<Tensor> {
    let values: Vec<Tensor> = net.params().iter().map(|(_, param)| param.tensor()).collect();
    let mut sum = Tensor::zeros(&[], DType::F32);
    for grad in scale.scale(&loss)?.gradients_on_tape(&values.iter().collect::<Vec<_>>())? {
        let grad = grad.ok_or_else(|| Error::gradient("a parameter has no gradient"))?;
        sum = sum.add(&grad.square()?.sum_all()?)?;
    }
    loss.add(&sum.sqrt()?)
}

impl Run {
    fn name(&self) -> String {
        if self.penalty {
            return format!("{} {}", self.network, self.scaled.map_or(DType::F32, |scaled| scaled.dtype));
        }
        let optimizer = &self.optimizer;
        let Some(Scaled { dtype, init, interval, large }) = self.scaled else {
            return format!("{} {optimizer}", self.network);
        };
        let large = large.map_or(String::new(), |(every, by)| format!(", inputs times {by} every {every} steps"));
        format!("{} {dtype}, scale 2^{}, growth after {interval}{large}", self.network, init.log2())
    }

    /// Trains here and in torch.
    pub fn follow(&self, peer: &mut Peer, seed: u64) -> std::result::Result<Followed, String> {
        let name = self.name();
        let fail = |why: String| format!("{name}: {why}");
        let (ours, question, arrays) = self.ours(seed).map_err(|error| fail(error.to_string()))?;
        let (answer, numbers) = peer.ask(question, &arrays).map_err(fail)?;
        let [losses, scales, skips] = &numbers[..] else { return Err(fail(format!("torch answered {answer}"))) };
        let mut followed = Followed {
            name,
            loss: 0.0,
            steps: self.steps,
            skipped: 0,
            parted: None,
            dtype: self.scaled.map(|s| s.dtype),
        };
        for (step, (loss, scale, skipped)) in ours.into_iter().enumerate() {
            let theirs = losses[step];
            let difference = (loss - theirs).abs() / theirs.abs();
            followed.loss = followed.loss.max(if difference.is_nan() { f64::INFINITY } else { difference });
            followed.skipped += usize::from(skips[step] != 0.0);
            if (scale, skipped) != (scales[step], skips[step] != 0.0) && followed.parted.is_none() {
                followed.parted = Some(step);
            }
        }
        Ok(followed)
    }

    fn optimizer(&self, net: &Child) -> Box<dyn Optimizer> {
        let number = |name: &str| self.optimizer[name].as_f64().unwrap_or_default();
        let (lr, decay) = (number("lr"), number("weight_decay"));
        match self.optimizer["kind"].as_str() {
            Some("adam") => Box::new(Adam::new(net.params(), lr).weight_decay(decay)),
            Some("adamw") => Box::new(AdamW::new(net.params(), lr).weight_decay(decay)),
            _ => {
                let sgd = Sgd::new(net.params(), lr).momentum(number("momentum")).weight_decay(decay);
                Box::new(if self.optimizer["nesterov"] == true { sgd.nesterov(true) } else { sgd })
            }
        }
    }

    /// Returns loss, scale after the step, and whether it was skipped, for each step, along with the question for
    /// torch.
    #[allow(clippy::type_complexity)]
    fn ours(&self, seed: u64) -> Result<(Vec<(f64, f64, bool)>, Value, Vec<Vec<f64>>)> {
        let (description, input) = description(self.network);
        let mut draw = Draw::new(seed, DType::F32, Values::Plain);
        let mut net = network(&description, &mut draw)?;
        net.set_train(true);
        let (abouts, mut arrays) = parameters(&net);
        let mut batches = Vec::new();
        for _ in 0..BATCHES {
            let x = draw.float(&[&[EXAMPLES], &input[..]].concat())?;
            let y = draw.indices(&[EXAMPLES], CLASSES)?;
            arrays.extend([x.to_f64(), y.to_f64()]);
            batches.push((x, y));
        }
        let question = json!({
            "ask": "train", "layer": description, "parameters": abouts, "optimizer": self.optimizer,
            "input": input, "batches": BATCHES, "examples": EXAMPLES, "steps": self.steps, "penalty": self.penalty,
            "scaled": self.scaled.map(|s| json!({
                "dtype": s.dtype.to_string(), "init": s.init, "interval": s.interval, "large": s.large,
            })),
        });
        let mut optimizer = self.optimizer(&net);
        let mut scale = match self.scaled {
            None => LossScale::none(),
            Some(scaled) => LossScale::new(LossScaleSpec::Dynamic(
                DynamicScale::default()
                    .init(scaled.init as f32)
                    .interval(scaled.interval)
                    .max(f32::MAX)
                    .min(f32::MIN_POSITIVE),
            ))?,
        };
        let mut steps = Vec::new();
        for step in 0..self.steps {
            let (x, y) = &batches[step % BATCHES];
            let large = self.scaled.and_then(|s| s.large).filter(|(every, _)| step % every == every - 1);
            let x = match large {
                Some((_, by)) => x.mul(&Tensor::scalar(by, DType::F32))?,
                None => x.clone(),
            };
            let forward = || net.call(&x)?.cross_entropy(y);
            let loss = || match self.scaled {
                Some(scaled) => autocast(Autocast::new("torch-2.15-cpu")?.dtype(scaled.dtype), forward),
                None => forward(),
            };
            let loss = match self.penalty {
                true => twice_differentiable(|| penalized_loss(loss()?, &scale, &net))?,
                false => loss()?,
            };
            let outcome = scale.step(&mut *optimizer, &loss)?;
            steps.push((loss.item()?, f64::from(scale.value()), outcome != Outcome::Stepped));
        }
        Ok((steps, question, arrays))
    }
}
