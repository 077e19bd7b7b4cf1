//! A convolutional network of burn on handwritten digits, in f16 by the policy in `digits.yaml`.
//!
//! cargo run --release --example digits

use burn::{
    nn::{
        BatchNorm, BatchNormConfig, Linear, LinearConfig, Relu,
        conv::{Conv2d, Conv2dConfig},
        loss::CrossEntropyLossConfig,
        pool::{MaxPool2d, MaxPool2dConfig},
    },
    optim::{AdamConfig, ModuleOptimizer},
    prelude::*,
};
use precast_burn::{Amp, Forward, LossScale, Outcome, Policy, Result};
use precast_train::data::{Batch, Split, digits};

#[derive(Module, Debug)]
pub struct Net {
    conv1: Amp<Conv2d>,   // `digits.yaml` keeps it in f32
    norm: Amp<BatchNorm>, // level O2 keeps it in f32
    act: Relu,
    pool: MaxPool2d,
    conv2: Conv2d,
    head: Linear,
}

impl Net {
    pub fn new(device: &Device) -> Self {
        Net {
            conv1: Conv2dConfig::new([1, 16], [3, 3]).init(device).into(),
            norm: BatchNormConfig::new(16).init(device).into(),
            act: Relu::new(),
            pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            conv2: Conv2dConfig::new([16, 32], [3, 3]).init(device),
            head: LinearConfig::new(32, 10).init(device),
        }
    }
}

impl Forward<Tensor<4>> for Net {
    type Output = Tensor<2>;

    fn forward(&self, x: Tensor<4>) -> Tensor<2> {
        let x = self.act.forward(self.norm.forward(self.conv1.forward(x)));
        let x = self.act.forward(self.conv2.forward(self.pool.forward(x)));
        let [batch, ..] = x.dims();
        self.head.forward(x.reshape([batch, 32]))
    }
}

/// Accuracy of a trained network, and how its steps went.
pub struct Trained {
    /// Share of the test digits that it knows.
    pub accuracy: f64,
    pub skipped: usize,
    pub scale: f32,
}

/// Trains a network by a policy, for a few seconds.
pub fn train(policy: &Policy, seed: u64, epochs: u64, device: &Device) -> Result<Trained> {
    let device = &device.clone().autodiff();
    device.seed(seed);
    let Split { train, test, .. } = digits()?.split(1500, 0)?;
    let mut net = Amp::new(Net::new(device));
    let applied = policy.apply(&mut net)?;
    print!("{applied}");

    let mut optimizer: ModuleOptimizer = AdamConfig::new().init();
    let mut scale = LossScale::new(policy)?;
    let cross_entropy = CrossEntropyLossConfig::new().init(device);
    let mut skipped = 0;
    for epoch in 0..epochs {
        for batch in train.shuffled_batches(50, seed, epoch)? {
            let (x, y) = tensors(&batch, device);
            let loss = cross_entropy.forward(net.forward(x), y);
            let outcome;
            (net, outcome) = scale.step(&mut optimizer, 3e-3, net, loss)?;
            if let Outcome::Skipped { cause } = outcome {
                println!("  skipped: {cause}");
                skipped += 1;
            }
        }
    }

    let evaluated = net.valid();
    let mut right = 0;
    for batch in test.batches(99)? {
        let (x, y) = tensors(&batch, &device.clone().inner());
        let rows = x.dims()[0];
        let guesses = evaluated.forward(x).argmax(1).reshape([rows]);
        right += guesses.equal(y).int().sum().into_scalar::<i64>();
    }
    Ok(Trained { accuracy: right as f64 / test.len() as f64, skipped, scale: scale.value() })
}

/// Returns a batch as tensors of burn: images of (batch, 1, 8, 8), and classes.
pub fn tensors(batch: &Batch, device: &Device) -> (Tensor<4>, Tensor<1, Int>) {
    let x: Vec<f32> = batch.x.to_f64().into_iter().map(|pixel| pixel as f32).collect();
    let y: Vec<i32> = batch.y.to_f64().into_iter().map(|class| class as i32).collect();
    let shape = [y.len(), 1, 8, 8];
    (Tensor::<1>::from_floats(&x[..], device).reshape(shape), Tensor::from_ints(&y[..], device))
}

#[allow(dead_code)]
fn main() -> Result<()> {
    let device = Device::default();
    let text = include_str!("digits.yaml");
    let (f16, bf16) = (Policy::parse(text, "digits.yaml")?, text.replace("float16", "bfloat16"));
    println!("{}", f16.plan(&Amp::new(Net::new(&device)))?);
    for (name, policy) in [("f32", Policy::named("o0")?), ("bf16", Policy::parse(&bf16, "digits.yaml")?), ("f16", f16)]
    {
        let trained = train(&policy, 1, 6, &device)?;
        let (accuracy, scale) = (100.0 * trained.accuracy, trained.scale);
        println!("{name:4}  {accuracy:.1} % of the test digits, {} steps skipped, loss scale {scale}", trained.skipped);
    }
    Ok(())
}
