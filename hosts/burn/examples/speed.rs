//! Time of a training step and memory of the device: an MLP, a ResNet and a GPT in f32, bf16 and f16, with precast and
//! with burn alone.
//!
//! `cargo run --release --features cuda --example speed -- NETWORK MODE [STEPS]`, with a network of `mlp`, `resnet` and
//! `gpt`, and a mode of `burn-f32`, `burn-bf16`, `burn-f16`, `hand-bf16`, `hand-f16`, `o0`, `o2-bf16`, `o2-f16`, or the
//! path of a policy file.
//! `burn-bf16` is what burn offers alone: everything in bf16, weights and optimizer included. `hand-bf16` casts f32
//! weights without precast, all of them, and checks nothing. One network and mode a process, since burn sets
//! the default dtype of a device once.

use std::time::Instant;

use burn::{
    module::{Module, ModuleDisplay, ModuleMapper, ModuleVisitor, Param},
    nn::{
        BatchNorm, BatchNormConfig, Embedding, EmbeddingConfig, Gelu, LayerNorm, LayerNormConfig, Linear, LinearConfig,
        PaddingConfig2d, Relu,
        conv::{Conv2d, Conv2dConfig},
        loss::{CrossEntropyLoss, CrossEntropyLossConfig},
        pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig, MaxPool2d, MaxPool2dConfig},
    },
    optim::{AdamWConfig, GradientsParams, ModuleOptimizer},
    tensor::{Bool, Device, Distribution, FloatDType, Int, Tensor, activation::softmax},
};
use precast_burn::{Amp, Castable, Forward, LossScale, Policy, in_f32};

#[derive(Module, Debug)]
struct Mlp {
    layers: Vec<Linear>,
    act: Relu,
}

impl Forward<Tensor<2>> for Mlp {
    type Output = Tensor<2>;

    fn forward(&self, mut x: Tensor<2>) -> Tensor<2> {
        for layer in &self.layers {
            x = self.act.forward(layer.forward(x));
        }
        x
    }
}

#[derive(Module, Debug)]
struct ConvNorm {
    conv: Conv2d,
    norm: Amp<BatchNorm>,
}

impl ConvNorm {
    fn new(channels: [usize; 2], kernel: usize, stride: usize, device: &Device) -> Self {
        let pad = kernel / 2;
        let conv = Conv2dConfig::new(channels, [kernel, kernel])
            .with_stride([stride, stride])
            .with_padding(PaddingConfig2d::Explicit(pad, pad, pad, pad))
            .with_bias(false);
        ConvNorm { conv: conv.init(device), norm: BatchNormConfig::new(channels[1]).init(device).into() }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        self.norm.forward(self.conv.forward(x))
    }
}

/// A bottleneck of ResNet-50.
#[derive(Module, Debug)]
struct Bottleneck {
    parts: [ConvNorm; 3],
    shortcut: Option<ConvNorm>,
    act: Relu,
}

impl Bottleneck {
    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let mut y = x.clone();
        for (i, part) in self.parts.iter().enumerate() {
            y = part.forward(y);
            if i < 2 {
                y = self.act.forward(y);
            }
        }
        let x = match &self.shortcut {
            Some(shortcut) => shortcut.forward(x),
            None => x,
        };
        self.act.forward(x + y)
    }
}

#[derive(Module, Debug)]
struct ResNet {
    stem: ConvNorm,
    act: Relu,
    pool: MaxPool2d,
    blocks: Vec<Bottleneck>,
    average: AdaptiveAvgPool2d,
    head: Linear,
}

impl ResNet {
    fn new(device: &Device) -> Self {
        let (mut blocks, mut from) = (Vec::new(), 64);
        for (stage, count) in [3, 4, 6, 3].into_iter().enumerate() {
            let width = 64 << stage;
            for block in 0..count {
                let stride = if block == 0 && stage > 0 { 2 } else { 1 };
                let shortcut = (block == 0).then(|| ConvNorm::new([from, 4 * width], 1, stride, device));
                let parts = [
                    ConvNorm::new([from, width], 1, 1, device),
                    ConvNorm::new([width, width], 3, stride, device),
                    ConvNorm::new([width, 4 * width], 1, 1, device),
                ];
                blocks.push(Bottleneck { parts, shortcut, act: Relu::new() });
                from = 4 * width;
            }
        }
        ResNet {
            stem: ConvNorm::new([3, 64], 7, 2, device),
            act: Relu::new(),
            pool: MaxPool2dConfig::new([3, 3])
                .with_strides([2, 2])
                .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
                .init(),
            blocks,
            average: AdaptiveAvgPool2dConfig::new([1, 1]).init(),
            head: LinearConfig::new(2048, 1000).init(device),
        }
    }
}

impl Forward<Tensor<4>> for ResNet {
    type Output = Tensor<2>;

    fn forward(&self, x: Tensor<4>) -> Tensor<2> {
        let mut x = self.pool.forward(self.act.forward(self.stem.forward(x)));
        for block in &self.blocks {
            x = block.forward(x);
        }
        let x = self.average.forward(x);
        let [batch, channels, ..] = x.dims();
        self.head.forward(x.reshape([batch, channels]))
    }
}

#[derive(Module, Debug)]
struct Block {
    norms: [Amp<LayerNorm>; 2],
    qkv: Linear,
    out: Linear,
    up: Linear,
    act: Gelu,
    down: Linear,
}

const HEADS: usize = 12;

impl Block {
    fn attention(&self, x: Tensor<3>, mask: &Tensor<4, Bool>) -> Tensor<3> {
        let [batch, length, width] = x.dims();
        let qkv = self.qkv.forward(x).reshape([batch, length, 3, HEADS, width / HEADS]).permute([2, 0, 3, 1, 4]);
        let part = |i: usize| qkv.clone().narrow(0, i, 1).reshape([batch, HEADS, length, width / HEADS]);
        let scores = part(0).matmul(part(1).transpose()).div_scalar(((width / HEADS) as f32).sqrt());
        let mask = mask.clone().expand([batch, HEADS, length, length]);
        let weights = in_f32(scores, |scores| softmax(scores.mask_fill(mask, -1e30), 3));
        let y = weights.matmul(part(2)).swap_dims(1, 2).reshape([batch, length, width]);
        self.out.forward(y)
    }

    fn forward(&self, x: Tensor<3>, mask: &Tensor<4, Bool>) -> Tensor<3> {
        let x = x.clone() + self.attention(self.norms[0].forward(x), mask);
        let h = self.act.forward(self.up.forward(self.norms[1].forward(x.clone())));
        x + self.down.forward(h)
    }
}

#[derive(Module, Debug)]
struct Gpt {
    words: Embedding,
    places: Embedding,
    blocks: Vec<Block>,
    norm: Amp<LayerNorm>,
    head: Linear,
}

const WORDS: usize = 50_304;

impl Gpt {
    fn new(depth: usize, width: usize, length: usize, device: &Device) -> Self {
        let linear = |from, to| LinearConfig::new(from, to).init(device);
        let norm = || Amp::new(LayerNormConfig::new(width).init(device));
        let block = || Block {
            norms: [norm(), norm()],
            qkv: linear(width, 3 * width),
            out: linear(width, width),
            up: linear(width, 4 * width),
            act: Gelu::new(),
            down: linear(4 * width, width),
        };
        Gpt {
            words: EmbeddingConfig::new(WORDS, width).init(device),
            places: EmbeddingConfig::new(length, width).init(device),
            blocks: (0..depth).map(|_| block()).collect(),
            norm: norm(),
            head: linear(width, WORDS),
        }
    }
}

impl Forward<Tensor<2, Int>> for Gpt {
    type Output = Tensor<2>;

    fn forward(&self, words: Tensor<2, Int>) -> Tensor<2> {
        let [batch, length] = words.dims();
        let device = words.device();
        let places = Tensor::<1, Int>::arange(0..length as i64, &device).reshape([1, length]);
        let mut x = self.words.forward(words) + self.places.forward(places);
        let mask = Tensor::<2, Bool>::tril_mask([length, length], 0, &device).reshape([1, 1, length, length]);
        for block in &self.blocks {
            x = block.forward(x, &mask);
        }
        self.head.forward(self.norm.forward(x)).reshape([batch * length, WORDS])
    }
}

/// Copies a network into 16 bits, as a loop without precast does it: weights of the same ids, detached from the f32 ones.
struct Low(FloatDType);

impl ModuleMapper for Low {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|weight| weight.cast(self.0).detach().require_grad())
    }
}

/// Casts gradients to f32.
struct Widen(GradientsParams);

impl ModuleVisitor for Widen {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(grad) = self.0.remove::<D>(param.id) {
            self.0.register(param.id, grad.cast(FloatDType::F32));
        }
    }
}

/// The loop around a network: who casts, and what is checked.
enum Loop {
    /// burn's own, in the default dtype of the device.
    Burn,
    /// 16-bit copies of f32 weights at each step, and no check.
    Hand(FloatDType),
    Precast(LossScale),
}

/// Training of a network on one batch.
struct Training<M: Module, I> {
    /// `None` during a step, so that the optimizer owns the weights and can change them in place.
    net: Option<Amp<M>>,
    x: I,
    classes: Tensor<1, Int>,
    cross_entropy: CrossEntropyLoss,
    optimizer: ModuleOptimizer,
    by: Loop,
    skipped: usize,
}

const LR: f64 = 1e-4;
const PHASES: [&str; 4] = ["forward", "backward", "check", "update"];

impl<M, I> Training<M, I>
where
    M: Module + Forward<I, Output = Tensor<2>>,
    I: Castable + Clone,
{
    /// Takes a step and returns its loss. Calls `done` after each of the [`PHASES`].
    fn step(&mut self, mut done: impl FnMut()) -> Tensor<1> {
        let loss = |net: &Amp<M>, x: I| self.cross_entropy.forward(net.forward(x), self.classes.clone());
        let net = self.net.take().unwrap();
        let (net, value) = match &mut self.by {
            Loop::Burn => {
                let loss = loss(&net, self.x.clone());
                done();
                let value = loss.clone().detach();
                let grads = GradientsParams::from_grads(loss.backward(), &net);
                done();
                done();
                (self.optimizer.step(LR, net, grads), value)
            }
            Loop::Hand(dtype) => {
                let low = net.clone().map(&mut Low(*dtype));
                let loss = loss(&low, self.x.clone().cast_to(*dtype));
                done();
                let value = loss.clone().detach();
                let mut wide = Widen(GradientsParams::from_grads(loss.backward(), &low));
                net.visit(&mut wide);
                done();
                done();
                (self.optimizer.step(LR, net, wide.0), value)
            }
            Loop::Precast(scale) => {
                let loss = loss(&net, self.x.clone());
                done();
                let value = loss.clone().detach();
                let scaled = scale.backward(loss, &net).unwrap();
                done();
                let checked = scaled.unscale(&net);
                let steps = scale.judge(&checked).is_step();
                done();
                self.skipped += usize::from(!steps);
                (if steps { self.optimizer.step(LR, net, checked.grads) } else { net }, value)
            }
        };
        self.net = Some(net);
        done();
        value
    }
}

fn number(tensor: Tensor<1>) -> f32 {
    tensor.into_data().convert::<f32>().iter::<f32>().next().unwrap()
}

fn median(mut times: Vec<f64>) -> (f64, f64) {
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], times[0])
}

/// Trains a network on one batch and prints the times. `x` is its input, and `classes` has the class of each row of its
/// output.
fn measured<M, I>(name: &str, mode: &str, steps: usize, net: M, x: I, classes: Tensor<1, Int>, device: &Device)
where
    M: Module + ModuleDisplay + Forward<I, Output = Tensor<2>>,
    I: Castable + Clone,
{
    let mut net = Amp::new(net);
    let by = match mode {
        "burn-f32" | "burn-bf16" | "burn-f16" => Loop::Burn,
        "hand-bf16" => Loop::Hand(FloatDType::BF16),
        "hand-f16" => Loop::Hand(FloatDType::F16),
        _ => {
            let level = |level, dtype| Policy::parse(&format!("version: 1\nlevel: {level}\ndtype: {dtype}\n"), mode);
            let policy = match mode {
                "o0" => level("O0", "bfloat16"),
                "o2-bf16" => level("O2", "bfloat16"),
                "o2-f16" => level("O2", "float16"),
                file if file.ends_with(".yaml") => Policy::load(file),
                other => fail(&format!("no mode is called `{other}`, and a policy file ends in `.yaml`")),
            };
            let policy = policy.unwrap_or_else(|error| fail(&error.to_string()));
            let plan = policy.plan(&net).unwrap();
            println!("{}", plan.to_string().lines().last().unwrap_or_default());
            drop(plan.apply(&mut net).unwrap());
            Loop::Precast(LossScale::new(&policy).unwrap())
        }
    };
    let cross_entropy = CrossEntropyLossConfig::new().init(device);
    let optimizer: ModuleOptimizer = AdamWConfig::new().init();
    let mut training = Training { net: Some(net), x, classes, cross_entropy, optimizer, by, skipped: 0 };
    let began = Instant::now();
    let first = number(training.step(|| ()));
    let first_step = began.elapsed().as_secs_f64();
    for _ in 0..3 {
        number(training.step(|| ()));
    }
    device.sync().unwrap();
    let warm_up = began.elapsed().as_secs_f64();
    let (mut times, mut last) = (Vec::new(), 0.0);
    for _ in 0..5 {
        let began = Instant::now();
        for i in 0..steps {
            let loss = training.step(|| ());
            if i + 1 == steps {
                last = number(loss);
            }
        }
        device.sync().unwrap();
        times.push(began.elapsed().as_secs_f64() * 1e3 / steps as f64);
    }
    let (middle, least) = median(times);
    let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
    let memory = device.memory_pool_usage().map_or(0.0, |usage| gib(usage.bytes_reserved));
    let skipped = training.skipped;
    println!(
        "{name:6} {mode:9} {middle:9.2} ms, least {least:9.2}; {memory:6.2} GiB; loss {first:.4} to {last:.4}; {skipped} \
         skipped; first step {first_step:.1} s, warm-up {warm_up:.1} s"
    );
    // Each phase on its own, with a wait for the device after it: their sum is more than the time of a step.
    let mut phases = [const { Vec::new() }; PHASES.len()];
    for _ in 0..steps {
        let (mut began, mut phase) = (Instant::now(), 0);
        let _ = training.step(|| {
            device.sync().unwrap();
            phases[phase].push(began.elapsed().as_secs_f64() * 1e3);
            (began, phase) = (Instant::now(), phase + 1);
        });
    }
    let phases = PHASES.iter().zip(phases).map(|(phase, times)| format!("{phase} {:.2}", median(times).0));
    println!("{name:6} {mode:9} phases: {}", phases.collect::<Vec<_>>().join(", "));
}

fn fail(message: &str) -> ! {
    eprintln!("{message}");
    std::process::exit(2)
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let word = |at: usize, default: &str| words.get(at).cloned().unwrap_or(default.to_string());
    let (name, mode, steps) = (word(0, "mlp"), word(1, "o2-bf16"), word(2, "10").parse().unwrap_or(10));
    let size: usize = word(3, "1").parse().unwrap_or(1);
    let mut device = Device::default();
    if let Some(dtype) = match mode.as_str() {
        "burn-bf16" => Some(FloatDType::BF16),
        "burn-f16" => Some(FloatDType::F16),
        _ => None,
    } {
        device.configure(dtype).unwrap();
    }
    let device = device.autodiff();
    device.seed(1);
    let classes = |rows: usize, of: i64| {
        Tensor::<1, Int>::from_ints(&(0..rows).map(|i| (i as i64 * 7919 % of) as i32).collect::<Vec<_>>()[..], &device)
    };
    match name.as_str() {
        "mlp" => {
            let (width, batch) = (4096 / size, 4096 / size);
            let linear = || LinearConfig::new(width, width).init(&device);
            let net = Mlp { layers: (0..4).map(|_| linear()).collect(), act: Relu::new() };
            let x = Tensor::<2>::random([batch, width], Distribution::Normal(0.0, 1.0), &device);
            measured(&name, &mode, steps, net, x, classes(batch, width as i64), &device);
        }
        "resnet" => {
            let (batch, side) = ((64 / size).max(2), (224 / size).max(32));
            let x = Tensor::<4>::random([batch, 3, side, side], Distribution::Normal(0.0, 1.0), &device);
            measured(&name, &mode, steps, ResNet::new(&device), x, classes(batch, 1000), &device);
        }
        "gpt" => {
            let (batch, length, depth) = ((8 / size).max(1), 512 / size, 12 / size);
            let text: Vec<i32> = (0..batch * length).map(|i| (i * 7919 % WORDS) as i32).collect();
            let x = Tensor::<1, Int>::from_ints(&text[..], &device).reshape([batch, length]);
            let net = Gpt::new(depth.max(1), 768, length, &device);
            measured(&name, &mode, steps, net, x, classes(batch * length, WORDS as i64), &device);
        }
        other => fail(&format!("no network is called `{other}`; there are mlp, resnet and gpt")),
    }
}
